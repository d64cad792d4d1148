/* passes/version.c - versions of values: which shardings there are, and making the one that is
 * asked for by the cheapest chain. Every version is kept and used again, which is how readers
 * share a collective. */
#include "ir/text.h"
#include "passes/partition.h"

struct info *info_of(struct part *p, const struct value *v)
{
	struct value *w = (struct value *)v;

	if (!w->aux)
		w->aux = NEW(p->m->mem, struct info);
	return w->aux;
}

void add_version(struct part *p, struct value *old, struct value *val)
{
	struct version ver = { val->sh, val, p->scope->b.phase };
	struct info *i = info_of(p, old);

	val->kind = old->kind;
	if (old->name)
		val->name = old->name;
	PUSH(p->m->mem, &i->ver, ver);
}

/* With a pipeline the epilogue finds a value as it is, and not what forward or backward made of one of the prologue for
 * themselves: that is at their place only. */
static bool is_there(const struct part *p, const struct info *i, uint32_t k)
{
	enum phase by = i->ver.at[k].phase;

	return !k || by == PROLOGUE || by == EPILOGUE || pipe_axis(p->m) < 0 || p->scope->b.phase != EPILOGUE;
}

static struct value *made(const struct part *p, const struct info *i, const struct value *v, const struct sharding *sh)
{
	for (uint32_t k = 0; k < i->ver.n; k++)
		if (sharding_equal(&i->ver.at[k].sh, sh, v->nd) && is_there(p, i, k))
			return i->ver.at[k].val;
	return NULL;
}

uint32_t until_late(const struct module *m)
{
	int t = time_axis(m), s = pipe_axis(m);

	return (t < 0 ? 0 : 1u << t) | (s < 0 ? 0 : 1u << s);
}

/* -- shardings seen through renames and loops -- */

static dimid renamed_from(const struct op *op, dimid d)
{
	for (int k = 0; k < op->at.tos.n; k++)
		if (op->at.tos.d[k] == d)
			return op->at.dims.d[k];
	return d;
}

/* Of the operand of a rename, given that of its result. */
static struct sharding before_rename(const struct value *v, const struct sharding *sh)
{
	const struct value *x = v->def->in[0];
	struct sharding r = { .sum = sh->sum, .max = sh->max };

	for (int i = 0; i < v->nd; i++)
		r.on[dim_pos(x, renamed_from(v->def, v->d[i]))] = sh->on[i];
	return r;
}

static struct sharding after_rename(const struct value *v, const struct sharding *sh)
{
	const struct value *x = v->def->in[0];
	struct sharding r = { .sum = sh->sum, .max = sh->max };

	for (int i = 0; i < v->nd; i++)
		r.on[i] = sh->on[dim_pos(x, renamed_from(v->def, v->d[i]))];
	return r;
}

/* Between a slice (nd dims) and the whole it is cut from along `dim`: a pipeline cuts it, nothing else. */
static struct sharding with_dim(const struct module *m, const struct value *whole, const struct value *slice,
				dimid dim, const struct sharding *sh)
{
	struct sharding r = { .sum = sh->sum, .max = sh->max };

	for (int i = 0; i < whole->nd; i++)
		if (whole->d[i] != dim)
			r.on[i] = sh->on[dim_pos(slice, whole->d[i])];
		else if (is_staged(m, dim))
			axes_push(&r.on[i], pipe_axis(m));
	return r;
}

static struct sharding without_dim(const struct value *whole, const struct value *slice,
				   const struct sharding *sh)
{
	struct sharding r = { .sum = sh->sum, .max = sh->max };

	for (int i = 0; i < slice->nd; i++)
		r.on[i] = sh->on[dim_pos(whole, slice->d[i])];
	return r;
}

static bool acc_result(const struct value *v)
{
	return repeat_adds(v->def, v->no);
}

static bool gate_shut(const struct part *p, const struct info *i)
{
	return i->gated && (i->weight ? p->scope->b.phase <= BACKWARD : p->scope->b.phase == EPILOGUE);
}

static void offer(struct part *p, shardings *list, const struct value *v, const struct sharding *sh)
{
	for (uint32_t k = 0; k < list->n; k++)
		if (sharding_equal(&list->at[k], sh, v->nd))
			return;
	PUSH(p->m->mem, list, *sh);
}

static uint32_t time_bit(const struct part *p)
{
	int t = time_axis(p->m);

	return t < 0 ? 0 : 1u << t;
}

static void available_from(struct part *p, struct value *v, const struct info *i, shardings *list)
{
	shardings from = { 0 };
	struct info *outer = info_of(p, i->from);
	bool gated = outer->gated;

	if (i->how == H_OVER)
		outer->gated = false; /* a slice is gathered in the loop, not the whole outside */
	available(p, i->from, &from);
	outer->gated = gated;
	for (uint32_t k = 0; k < from.n; k++) {
		struct sharding sh;

		if (i->how == H_ALIAS) {
			sh = after_rename(v, &from.at[k]);
		} else if (i->how == H_OVER) {
			sh = without_dim(i->from, v, &from.at[k]);
		} else if (i->how == H_STACKED) {
			sh = with_dim(p->m, v, i->from, v->def->at.dim, &from.at[k]);
			if (acc_result(v))
				sh.sum &= ~time_bit(p);
		} else {
			sh = from.at[k];
		}
		offer(p, list, v, &sh);
	}
}

void available(struct part *p, struct value *v, shardings *list)
{
	const struct info *i = info_of(p, v);

	if (gate_shut(p, i)) {
		offer(p, list, v, &i->gate);
		return;
	}
	for (uint32_t k = 0; k < i->ver.n; k++)
		if (is_there(p, i, k))
			offer(p, list, v, &i->ver.at[k].sh);
	if (i->how == H_ALIAS || i->how == H_STACKED ||
	    ((i->how == H_WITH || i->how == H_OVER) && i->scope->open))
		available_from(p, v, i, list);
}

struct value *rename_root(struct part *p, struct value *v)
{
	while (info_of(p, v)->how == H_ALIAS)
		v = info_of(p, v)->from;
	return v;
}

struct value *root_of(struct part *p, struct value *v, struct sharding *sh)
{
	while (info_of(p, v)->how == H_ALIAS) {
		*sh = before_rename(v, sh);
		v = info_of(p, v)->from;
	}
	return v;
}

/* Can v be had in any sharding for nothing, of whatever it is a rename, an argument or a slice? */
static bool any_will_do(struct part *p, struct value *v)
{
	const struct info *i = info_of(p, v);

	while (i->how == H_ALIAS || ((i->how == H_WITH || i->how == H_OVER) && i->scope->open))
		i = info_of(p, i->from);
	return i->how == H_FREE || i->how == H_WILD;
}

double version_seconds(struct part *p, struct value *v, const struct sharding *sh)
{
	struct info *i = info_of(p, v);
	shardings list = { 0 };
	double best = 1e30;

	if (any_will_do(p, v))
		return 0;
	if (i->how == H_ALIAS) {
		struct sharding from = before_rename(v, sh);

		return version_seconds(p, i->from, &from);
	}
	if (i->how == H_WITH && i->scope->open && !gate_shut(p, i))
		return made(p, i, v, sh) ? 0 : version_seconds(p, i->from, sh);
	available(p, v, &list);
	for (uint32_t k = 0; k < list.n; k++) {
		struct chain c = reshard_chain(p->m, v->nd, v->d, v->dt, &list.at[k], sh);

		if (gate_shut(p, i) && i->weight && !c.free)
			c.seconds = 1e20; /* weights stay put, activations move */
		double t = p->no_latency && c.seconds < 1e20 ? c.seconds - c.latency : c.seconds;
		if (t < best)
			best = t;
	}
	return best;
}

/* -- making -- */

/* What people call a value: its name, "the gradient of wte", or the op and line that made it. */
static const char *spoken(struct part *p, const struct value *v)
{
	struct arena *mem = p->m->mem;

	if (v->name && strncmp(v->name, "d:", 2) == 0)
		return arena_printf(mem, "the gradient of %s", v->name[2] ? v->name + 2 : "a carried value");
	if (v->name)
		return v->name;
	if (!v->def)
		return "a param";
	return arena_printf(mem, "the %s of %s", opinfo[v->def->code].name, span_text(mem, p->m->src, v->span));
}

static const char *reader_name(struct part *p, const struct value *v)
{
	const struct op *reader = p->reader;

	if (reader && reader == v->def)
		return "its layout";
	if (reader && reader->nout && reader->out[0]->name)
		return spoken(p, reader->out[0]);
	if (reader && reader->code == OP_WRITE)
		return reader->at.buf;
	return reader ? arena_printf(p->m->mem, "the next %s", opinfo[reader->code].name) : "the loop";
}

static const char *dim_name(const struct part *p, dimid d)
{
	return d == NODIM ? "?" : p->m->dims.at[d].name;
}

/* Why a step is needed: "q needs seq whole". */
static const char *reason(struct part *p, const struct value *v, const struct reshard *r)
{
	struct arena *mem = p->m->mem;
	const char *who = reader_name(p, v);
	bool self = p->reader && p->reader == v->def, late = p->scope->b.phase == EPILOGUE;

	if (late && info_of(p, v)->gated && r->code == OP_REDUCE_SCATTER &&
	    axes_has(&info_of(p, v)->gate.on[dim_pos(v, r->dim)], r->axes.a[0]))
		return arena_printf(mem, "its optimizer state is split by %s", dim_name(p, r->dim));
	if (late && info_of(p, v)->gated)
		return "each rank saw a part of what it depends on";
	if (self && info_of(p, v)->weight && p->scope->b.phase == PROLOGUE)
		return "it is gathered once a step";
	if (late && self && r->code == OP_ALL_GATHER)
		return arena_printf(mem, "it was updated in parts, and is read with %s whole", dim_name(p, r->dim));
	switch (r->code) {
	case OP_ALL_GATHER:
		return arena_printf(mem, "%s %s %s whole", who, self ? "has" : "needs", dim_name(p, r->dim));
	case OP_REDUCE_SCATTER:
		return arena_printf(mem, "%s %s its sum, split by %s", who, self ? "has" : "needs", dim_name(p, r->dim));
	case OP_ALL_TO_ALL:
		return arena_printf(mem, "%s %s it split by %s, not %s", who, self ? "has" : "needs",
				    dim_name(p, r->to), dim_name(p, r->dim));
	default:
		return arena_printf(mem, "%s %s its %s", who, self ? "has" : "needs", r->max ? "maximum" : "sum");
	}
}

/* "all_gather of h over tp: q needs seq whole (gpt2.pdsl:14)" */
static const char *explain(struct part *p, const struct value *v, const struct reshard *r)
{
	struct arena *mem = p->m->mem;
	uint32_t axes = 0;

	for (int i = 0; i < r->axes.n; i++)
		axes |= 1u << r->axes.a[i];
	return arena_printf(mem, "%s of %s over %s: %s (%s)", opinfo[r->code].name, spoken(p, v),
			    axes_user_text(mem, p->m, axes), reason(p, v, r),
			    span_text(mem, p->m->src, p->reader ? p->reader->span : v->span));
}

/* Of a repeat that is cut: each stage has some, or none. */
static bool has_rows(const struct module *m, const struct value *v)
{
	for (int i = 0; i < v->nd; i++)
		if (is_staged(m, v->d[i]))
			return true;
	return false;
}

static struct value *emit_step(struct part *p, struct value *old, struct value *val, const struct reshard *r)
{
	struct builder b = info_of(p, old)->scope->b;

	b.span = p->reader && p->reader->span.line ? p->reader->span : old->span;
	b.of = NULL;
	struct op *op = op_new(&b, r->code, 1, &val, 1);
	SET(op, axes, r->axes);
	if (b.phase == EPILOGUE && old->def && HAS(old->def, where) && !has_rows(p->m, old))
		SET(op, where, old->def->at.where); /* where the value is */
	if (HAS(op, where) && r->code == OP_TO_PARTIAL && axes_has(&r->axes, pipe_axis(p->m)))
		SET(op, from, op->at.where); /* the first stage need not have it */
	if (r->dim != NODIM)
		SET(op, dim, r->dim);
	if (r->to != NODIM)
		SET(op, to, r->to);
	if (r->max)
		SET(op, max, 1);
	if (r->code != OP_SHARD && r->code != OP_TO_PARTIAL)
		op->why = explain(p, old, r);
	struct value *out = op_type(&b, op, 0, val->dt, val->nd, val->d);
	out->sh = r->sh;
	out->placed = true;
	out->span = old->span;
	return out;
}

static struct value *emit_chain(struct part *p, struct value *old, struct value *val, const struct sharding *sh)
{
	struct chain c = reshard_best(p->m, val->nd, val->d, val->dt, &val->sh, sh);

	if (c.seconds >= 1e30) {
		struct value to = *val;

		to.sh = *sh;
		die("no way to reshard %s '%s' of a %s from %s to %s", kind_name[old->kind], old->name ? old->name : "a value",
		    old->def ? opinfo[old->def->code].name : "argument", value_text(p->m->mem, p->m, val),
		    value_text(p->m->mem, p->m, &to));
	}
	for (int i = 0; i < c.n; i++) {
		val = emit_step(p, old, val, &c.step[i]);
		add_version(p, old, val);
	}
	return val;
}

/* Inserts an operand and its argument at position `at` of the repeat that is being built. */
static struct value *add_arg(struct part *p, struct scope *s, uint32_t at, struct value *outer,
			     const struct value *like)
{
	struct op *op = s->new;
	struct value *arg = block_arg(&s->b, op->body, like->dt, like->nd, like->d);

	arg->span = like->span;
	arg->placed = true;
	op_add_in(p->m, op, outer);
	for (uint32_t i = op->nin - 1; i > at; i--) {
		op->in[i] = op->in[i - 1];
		op->body->args.at[i] = op->body->args.at[i - 1];
		op->body->args.at[i]->no = i;
	}
	op->in[at] = outer;
	op->body->args.at[at] = arg;
	arg->no = at;
	return arg;
}

static struct value *exact(struct part *p, struct value *v, const struct sharding *sh);

static struct value *exact_over(struct part *p, struct value *v, struct info *i, const struct sharding *sh)
{
	struct sharding whole = with_dim(p->m, i->from, v, i->scope->old->at.dim, sh);
	struct value *outer = exact(p, i->from, &whole);
	struct value *arg = add_arg(p, i->scope, i->scope->new->nin, outer, v);

	arg->sh = *sh;
	add_version(p, v, arg);
	return arg;
}

static struct value *exact_stacked(struct part *p, struct value *v, struct info *i, const struct sharding *sh)
{
	struct op *op = info_of(p, i->from)->scope->new;
	struct sharding slice = without_dim(v, i->from, sh);
	bool acc = acc_result(v);

	if (acc) /* what is the same in each microbatch counts once */
		slice.sum |= time_bit(p);
	struct value *y = acc ? get_version(p, i->from, &slice) : exact(p, i->from, &slice);
	PUSH(p->m->mem, &op->body->yields, y);
	struct value *out = op_add_out(p->m, op, v);
	int64_t k = (int64_t)op->nout - 1 - op->at.ncarry;
	if (acc)
		SET(op, acc, bits_with(p->m->mem, op->at.acc, k));
	out->sh = *sh;
	out->placed = true;
	add_version(p, v, out);
	return out;
}

/* The version that `available` lists as sh, made if it is only listed. */
static struct value *exact(struct part *p, struct value *v, const struct sharding *sh)
{
	struct info *i = info_of(p, v);
	struct value *val = made(p, i, v, sh);

	if (val)
		return val;
	switch (i->how) {
	case H_OVER:
		return exact_over(p, v, i, sh);
	case H_STACKED:
		return exact_stacked(p, v, i, sh);
	default:
		return get_version(p, v, sh);
	}
}

static struct chain cheapest(struct part *p, struct value *v, const struct sharding *sh, struct sharding *from)
{
	struct chain best = { .seconds = 1e31 };
	shardings list = { 0 };

	available(p, v, &list);
	for (uint32_t k = 0; k < list.n; k++) {
		struct chain c = reshard_chain(p->m, v->nd, v->d, v->dt, &list.at[k], sh);

		if (c.seconds < best.seconds) {
			best = c;
			*from = list.at[k];
		}
	}
	return best;
}

static struct value *get_alias(struct part *p, struct value *v, struct info *i, const struct sharding *sh)
{
	struct sharding from = before_rename(v, sh);
	struct value *x = get_version(p, i->from, &from);
	struct builder b = i->scope->b;

	b.span = v->def->span;
	struct op *op = op_new(&b, OP_RENAME, 1, &x, 1);
	op->at = v->def->at;
	op->has = v->def->has;
	struct value *out = op_type(&b, op, 0, v->dt, v->nd, v->d);
	out->sh = *sh;
	out->placed = true;
	out->span = v->span;
	add_version(p, v, out);
	return out;
}

static struct value *get_with(struct part *p, struct value *v, struct info *i, const struct sharding *sh)
{
	struct scope *s = i->scope, *here = p->scope;

	p->scope = s->up;
	struct value *outer = get_version(p, i->from, sh);
	p->scope = here;
	struct value *arg = add_arg(p, s, (uint32_t)s->new->at.ncarry + s->nwith++, outer, v);
	arg->sh = *sh;
	add_version(p, v, arg);
	return arg;
}

/* Does a free op again. Dims that it cannot be split along are made whole, then cut. */
static struct value *get_free(struct part *p, struct value *v, struct info *i, const struct sharding *sh)
{
	const struct op *op = v->def;
	struct sharding base = *sh;
	struct value **in = NEWN(p->m->mem, struct value *, op->nin ? op->nin : 1);

	base.sum = base.max = 0;
	for (int k = 0; k < v->nd; k++)
		if (op_closed_dim(op, v->d[k]) || !op_may_split(p->m, op, op_label(op, v->d[k], true), &base.on[k]))
			base.on[k] = (struct axes){ 0 };
	struct value *val = made(p, i, v, &base);
	if (!val) {
		for (uint32_t k = 0; k < op->nin; k++) {
			struct sharding need = { .sum = 0 };

			for (int x = 0; x < op->in[k]->nd; x++) {
				int pos = label_pos(op, v, op_label(op, op->in[k]->d[x], false), true);

				if (pos >= 0 && !op_closed_dim(op, op->in[k]->d[x]))
					need.on[x] = base.on[pos];
			}
			in[k] = get_version(p, op->in[k], &need);
		}
		struct builder b = i->scope->b;
		b.of = NULL;
		void *keep = v->aux;
		struct op *copy = op_clone(&b, op, false);
		v->aux = keep;
		copy->of = NULL;
		for (uint32_t k = 0; k < op->nin; k++)
			copy->in[k] = in[k];
		val = copy->out[0];
		val->sh = base;
		val->placed = true;
		add_version(p, v, val);
	}
	return emit_chain(p, v, val, sh);
}

void fix_wild(struct part *p, struct value *v, const struct sharding *sh)
{
	struct info *i = info_of(p, v);
	struct value *arg = i->scope->new->body->args.at[v->no];

	arg->sh = *sh;
	i->how = H_MADE;
	add_version(p, v, arg);
}

struct value *get_version(struct part *p, struct value *v, const struct sharding *sh)
{
	struct info *i = info_of(p, v);
	struct value *val = made(p, i, v, sh);
	struct sharding from;

	if (val)
		return val;
	if (i->how == H_FREE)
		return get_free(p, v, i, sh);
	if (i->how == H_ALIAS)
		return get_alias(p, v, i, sh);
	if (i->how == H_WITH && i->scope->open)
		return get_with(p, v, i, sh);
	if (i->how == H_WILD) {
		fix_wild(p, v, sh);
		return made(p, i, v, sh);
	}
	if (i->how == H_OVER && any_will_do(p, v))
		return exact_over(p, v, i, sh);
	if (gate_shut(p, i) && !sharding_equal(&i->gate, sh, v->nd)) {
		val = get_version(p, v, &i->gate);
		return emit_chain(p, v, val, sh);
	}
	bool gated = i->gated;
	i->gated = false; /* on the way to the gate all versions count */
	struct chain c = cheapest(p, v, sh, &from);
	i->gated = gated;
	if (c.seconds > 1e30)
		die("'%s' has no version", v->name ? v->name : v->def ? opinfo[v->def->code].name : "an argument");
	struct value *twin = c.free ? NULL : forward_twin(p, v, sh);
	if (twin)
		return get_version(p, twin, sh);
	return emit_chain(p, v, exact(p, v, &from), sh);
}
