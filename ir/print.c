/* ir/print.c - the IR as text: see text.h for the format. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/text.h"

struct printer {
	struct text t;
	struct module *m;
	struct value **by_id; /* all values that are in the module */
	uint32_t n;
};

static const char *const what_name[] = { NULL, "params", "grads", "optimizer", "activations" };

/* -- words and numbers -- */

static void put_number(struct text *t, double x)
{
	char s[40];

	if (isnan(x)) {
		text_put(t, "nan");
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(s, sizeof s, "%.*g", digits, x);
		if (strtod(s, NULL) == x)
			break;
	}
	text_put(t, "%s", s);
}

static void put_string(struct text *t, const char *s)
{
	text_put(t, "\"");
	for (; s && *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			text_put(t, "\\%c", c);
		else if (c == '\n')
			text_put(t, "\\n");
		else if (c < 32 || c == 127)
			text_put(t, "\\x%02x", c);
		else
			text_bytes(t, s, 1);
	}
	text_put(t, "\"");
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Names that would read as something else in an arrow are quoted, there and everywhere. */
static bool is_plain(const char *s)
{
	static const char *const taken[] = { "params", "grads", "optimizer", "activations", "none",
					     "host", "zigzag", "gather_step" };

	if (!is_letter(*s))
		return false;
	for (size_t i = 0; i < LEN(taken); i++)
		if (streq(s, taken[i]))
			return false;
	while (is_letter(*s) || (*s >= '0' && *s <= '9') || *s == '/' || *s == '\'')
		s++;
	return !*s;
}

static void put_name(struct text *t, const char *s)
{
	if (s && is_plain(s))
		text_put(t, "%s", s);
	else
		put_string(t, s);
}

static void put_dim(struct text *t, const struct module *m, dimid d)
{
	if (d < m->dims.n)
		put_name(t, m->dims.at[d].name);
	else
		text_put(t, "-");
}

static void put_axis(struct text *t, const struct module *m, int axis)
{
	if (axis < (int)m->axes.n)
		put_name(t, m->axes.at[axis].name);
	else
		text_put(t, "?");
}

static void put_span(struct text *t, const char *lead, struct span s)
{
	text_put(t, " %s%u:%u:%u:%u", lead, s.file, s.line, s.col, s.len);
}

static bool is_nowhere(struct span s)
{
	return !s.file && !s.line && !s.col && !s.len;
}

static bool same_span(struct span a, struct span b)
{
	return a.file == b.file && a.line == b.line && a.col == b.col && a.len == b.len;
}

static void put_op_span(struct text *t, struct span s)
{
	if (!is_nowhere(s))
		put_span(t, "!", s);
}

/* -- types -- */

static void put_axes(struct text *t, const struct module *m, const struct axes *l)
{
	for (int i = 0; i < l->n; i++) {
		text_put(t, i ? "." : "");
		put_axis(t, m, l->a[i]);
	}
}

static void put_pending(struct text *t, const struct module *m, const char *mark, uint32_t bits)
{
	for (int i = 0; i < (int)m->axes.n; i++) {
		if (!(bits >> i & 1))
			continue;
		text_put(t, "%s", mark);
		put_axis(t, m, i);
		mark = ".";
	}
}

static void put_shape(struct text *t, const struct module *m, int nd, const dimid *d,
		      const struct sharding *sh)
{
	text_put(t, "[");
	for (int i = 0; i < nd; i++) {
		text_put(t, i ? ", " : "");
		put_dim(t, m, d[i]);
		if (sh->on[i].n) {
			text_put(t, "@");
			put_axes(t, m, &sh->on[i]);
		}
	}
	text_put(t, "]");
	put_pending(t, m, "+", sh->sum);
	put_pending(t, m, "^", sh->max);
}

static void put_type(struct text *t, const struct module *m, const struct value *v)
{
	text_put(t, "%s", dtype_name[v->dt]);
	put_shape(t, m, v->nd, v->d, &v->sh);
}

const char *value_text(struct arena *mem, const struct module *m, const struct value *v)
{
	struct text t = { .mem = mem };

	put_type(&t, m, v);
	return t.s;
}

/* -- declarations -- */

static void put_module(struct printer *p)
{
	struct text *t = &p->t;
	const struct module *m = p->m;

	text_put(t, "ptc-ir 1\nmodule");
	if (m->name) {
		text_put(t, " ");
		put_string(t, m->name);
	}
	text_put(t, " form=%s precision=%s micro=%lld", form_name[m->form], dtype_name[m->precision],
		 (long long)m->micro);
	if (m->batch != NODIM) {
		text_put(t, " batch=");
		put_dim(t, m, m->batch);
	}
	text_put(t, " workspace=%lld", (long long)m->workspace);
	if (m->arena)
		text_put(t, " arena=%lld", (long long)m->arena);
	if (m->host)
		text_put(t, " host=%lld", (long long)m->host);
	text_put(t, "%s%s\n", m->deterministic ? " deterministic" : "", m->probes ? " probes" : "");
	for (uint32_t i = 0; m->src && i < m->src->files.n; i++) {
		text_put(t, "source %u ", i);
		put_string(t, m->src->files.at[i].name);
		text_put(t, "\n");
	}
}

static bool axes_are_mesh(const struct module *m)
{
	if (m->axes.n != m->mesh.n)
		return false;
	for (uint32_t i = 0; i < m->axes.n; i++) {
		const struct axis *a = &m->axes.at[i];

		if (a->time || a->user != (int)i || a->size != m->mesh.at[i].size ||
		    !streq(a->name, m->mesh.at[i].name))
			return false;
	}
	return true;
}

static void put_mesh(struct printer *p)
{
	struct text *t = &p->t;
	const struct module *m = p->m;

	for (uint32_t i = 0; i < m->mesh.n; i++) {
		text_put(t, "mesh ");
		put_name(t, m->mesh.at[i].name);
		text_put(t, "=%d", m->mesh.at[i].size);
		put_op_span(t, m->mesh.at[i].at);
		text_put(t, "\n");
	}
	if (axes_are_mesh(m))
		return;
	for (uint32_t i = 0; i < m->axes.n; i++) {
		const struct axis *a = &m->axes.at[i];

		text_put(t, "axis ");
		put_name(t, a->name);
		text_put(t, "=%d %s", a->size, a->time ? "time" : "of ");
		if (!a->time)
			put_name(t, a->user >= 0 && a->user < (int)m->mesh.n ?
				 m->mesh.at[a->user].name : "?");
		text_put(t, "\n");
	}
}

static double figure(const struct hardware *h, size_t i)
{
	return *(const double *)(const void *)((const char *)h + hardware_figure[i].at);
}

static void put_hardware(struct printer *p)
{
	struct text *t = &p->t;
	const struct hardware *h = &p->m->hw;
	const struct hardware_figure *field = hardware_figure;
	bool any = h->name || h->nlink;

	for (size_t i = 0; field[i].name; i++)
		any |= figure(h, i) != 0;
	if (!any)
		return;
	text_put(t, "hardware");
	if (h->name) {
		text_put(t, " ");
		put_string(t, h->name);
	}
	for (size_t i = 0; field[i].name; i++) {
		if (figure(h, i) == 0)
			continue;
		text_put(t, " %s=", field[i].name);
		put_number(t, figure(h, i));
	}
	for (int i = 0; i < h->nlink; i++) {
		text_put(t, " link=");
		put_name(t, h->link[i].name);
		text_put(t, ":%lld:", (long long)h->link[i].group);
		put_number(t, h->link[i].bandwidth);
		text_put(t, ":");
		put_number(t, h->link[i].latency);
	}
	text_put(t, "\n");
}

static void put_software(struct printer *p)
{
	const struct software *s = &p->m->software;
	bool any = s->name != NULL;

	for (int i = 0; i < NSWITCH; i++)
		any |= s->at[i] != 0;
	if (!any)
		return;
	text_put(&p->t, "software");
	if (s->name) {
		text_put(&p->t, " ");
		put_string(&p->t, s->name);
	}
	for (int i = 0; i < NSWITCH; i++)
		if (s->at[i])
			text_put(&p->t, " %s=%s", switches[i].name, switches[i].word[s->at[i]]);
	text_put(&p->t, "\n");
}

static void put_dims(struct printer *p)
{
	struct text *t = &p->t;

	for (uint32_t i = 0; i < p->m->dims.n; i++) {
		const struct dim *d = &p->m->dims.at[i];

		text_put(t, "dim ");
		put_name(t, d->name);
		if (d->part == PART_NONE)
			text_put(t, "=%lld", (long long)d->size);
		else {
			text_put(t, "=%s ", part_name[d->part]);
			put_dim(t, p->m, d->of);
			text_put(t, " %lld", (long long)d->from);
		}
		if (d->zigzag)
			text_put(t, " zigzag=%d", d->zigzag);
		put_op_span(t, d->at);
		text_put(t, "\n");
	}
}

/* The cells of a CSV, a string a stage. */
static void put_actions(struct printer *p, const struct pipe *x)
{
	for (int d = 0; x->list && d < pipe_stages(p->m); d++) {
		text_put(&p->t, d ? ", \"" : " list=(\"");
		for (uint32_t i = 0; i < x->list[d].n; i++) {
			const struct action *a = &x->list[d].at[i];

			text_put(&p->t, "%s%d%c%d", i ? "," : "", a->chunk, action_letter[a->kind], a->mb);
		}
		text_put(&p->t, "\"");
	}
	text_put(&p->t, "%s", x->list ? ")" : "");
}

static void put_pipe(struct printer *p)
{
	struct text *t = &p->t;
	const struct pipe *x = &p->m->pipe;

	if (x->user < 0)
		return;
	text_put(t, "pipeline ");
	put_string(t, schedule_name(x->order));
	text_put(t, " axis=");
	put_name(t, p->m->mesh.at[x->user].name);
	text_put(t, " chunks=%d", x->chunks);
	if (x->inflight)
		text_put(t, " inflight=%lld", (long long)x->inflight);
	if (x->buffers)
		text_put(t, " buffers=%lld", (long long)x->buffers);
	if (x->warm)
		text_put(t, " warm=%d", x->warm);
	text_put(t, "%s", x->fixed ? " fixed" : "");
	for (uint32_t i = 0; i < x->loops.n; i++) {
		text_put(t, i ? ", " : " loops=(");
		put_dim(t, p->m, x->loops.at[i]);
	}
	text_put(t, "%s", x->loops.n ? ")" : "");
	for (uint32_t i = 0; i < x->end.n; i++)
		text_put(t, "%s%lld", i ? ", " : " ends=(", (long long)x->end.at[i]);
	text_put(t, "%s", x->end.n ? ")" : "");
	put_actions(p, x);
	for (uint32_t i = 0; i < x->arena.n; i++)
		text_put(t, "%s%lld", i ? ", " : " arenas=(", (long long)x->arena.at[i]);
	text_put(t, "%s\n", x->arena.n ? ")" : "");
}

static void put_recompute(struct printer *p)
{
	struct text *t = &p->t;
	const struct recompute *x = &p->m->recompute;

	if (x->how == RECOMPUTE_NONE)
		return;
	text_put(t, "recompute %s", recompute_name[x->how]);
	if (x->memory)
		text_put(t, " memory=%lld", (long long)x->memory);
	if (x->first)
		text_put(t, " first=%lld", (long long)x->first);
	for (uint32_t i = 0; i < x->keep.n; i++) {
		text_put(t, i ? ", " : " keep=(");
		text_put(t, x->keep.at[i].glob ? "glob " : "");
		put_string(t, x->keep.at[i].sel);
	}
	text_put(t, "%s", x->keep.n ? ")" : "");
	put_op_span(t, x->at);
	text_put(t, "\n");
}

static void put_chunk(struct printer *p, const struct chunk *x)
{
	struct text *t = &p->t;

	text_put(t, "chunk ");
	put_string(t, x->sel);
	text_put(t, x->parts ? " parts=%lld" : " rows=%lld", (long long)(x->parts ? x->parts : x->rows));
	if (x->dim != NODIM)
		text_put(t, " dim=");
	if (x->dim != NODIM)
		put_dim(t, p->m, x->dim);
	put_op_span(t, x->at);
	text_put(t, "\n");
}

static void put_buffer(struct printer *p, const struct buffer *b)
{
	struct text *t = &p->t;

	text_put(t, "buffer @");
	put_string(t, b->name);
	text_put(t, " %s %s", role_name[b->role], dtype_name[b->dt]);
	put_shape(t, p->m, b->nd, b->d, &b->store);
	if (b->role != B_INPUT || b->init || b->init_arg != 0) {
		text_put(t, " init=%s", init_name[b->init]);
		if (b->init_arg != 0 || b->init > INIT_ONES) {
			text_put(t, "(");
			put_number(t, b->init_arg);
			text_put(t, ")");
		}
	}
	if (b->tokens)
		text_put(t, " tokens=%lld", (long long)b->tokens);
	if (b->next_of) {
		text_put(t, " next=");
		put_string(t, b->next_of);
		text_put(t, ":%lld", (long long)b->next_k);
	}
	if (b->owner) {
		text_put(t, " owner=");
		put_string(t, b->owner);
	}
	if (!sharding_equal(&b->store, &b->compute, b->nd)) {
		text_put(t, " compute=");
		put_shape(t, p->m, b->nd, b->d, &b->compute);
	}
	if (b->where)
		text_put(t, " where=%lld", (long long)b->where);
	text_put(t, "%s", b->host ? " host" : "");
	if (b->off != -1)
		text_put(t, " off=%lld", (long long)b->off);
	put_op_span(t, b->at);
	text_put(t, "\n");
}

static void put_arrow(struct printer *p, const struct arrow *a)
{
	struct text *t = &p->t;

	text_put(t, "arrow");
	if (a->sel) {
		text_put(t, a->glob ? " glob " : " ");
		put_string(t, a->sel);
		text_put(t, ":");
	}
	if (a->what != W_DIMS)
		text_put(t, " %s", what_name[a->what]);
	for (int i = 0; i < a->dims.n; i++) {
		text_put(t, i ? ", " : " ");
		put_dim(t, p->m, a->dims.d[i]);
	}
	text_put(t, " ->");
	for (int i = 0; i < a->naxes; i++) {
		text_put(t, i ? "." : " ");
		put_name(t, a->axes[i] < p->m->mesh.n ? p->m->mesh.at[a->axes[i]].name : "?");
	}
	text_put(t, "%s%s%s%s", a->none ? " none" : "", a->host ? " host" : "",
		 a->zigzag ? " zigzag" : "", a->gather_step ? " gather_step" : "");
	put_op_span(t, a->at);
	text_put(t, "\n");
}

/* -- ops -- */

static void put_attr_name(struct text *t, int *n, const char *name)
{
	text_put(t, "%s%s=", (*n)++ ? ", " : " {", name);
}

static void put_dimlist(struct text *t, const struct module *m, const struct dimlist *l)
{
	text_put(t, "(");
	for (int i = 0; i < l->n; i++) {
		text_put(t, i ? ", " : "");
		put_dim(t, m, l->d[i]);
	}
	text_put(t, ")");
}

static void put_axis_list(struct text *t, const struct module *m, const struct axes *l)
{
	text_put(t, "(");
	put_axes(t, m, l);
	text_put(t, ")");
}

static void put_attrs(struct text *t, const struct module *m, const struct op *op)
{
	int n = 0;

#define ATTR(x, put) \
	if (HAS(op, x)) { \
		put_attr_name(t, &n, #x); \
		put; \
	}
#define I(x) ATTR(x, text_put(t, "%lld", (long long)op->at.x))
#define N(x) ATTR(x, put_number(t, op->at.x))
#define S(x) ATTR(x, put_string(t, op->at.x))
#define D(x) ATTR(x, put_dim(t, m, op->at.x))
#define L(x) ATTR(x, put_dimlist(t, m, &op->at.x))
#define X(x) ATTR(x, put_axis_list(t, m, &op->at.x))
#define B(x) ATTR(x, text_put(t, "%s", bits_text(t->mem, op->at.x)))
	ATTRS(I, N, S, D, L, X, B)
#undef I
#undef N
#undef S
#undef D
#undef L
#undef X
#undef B
#undef ATTR
	if (n)
		text_put(t, "}");
}

static void put_value(struct printer *p, const struct value *v, struct span usual)
{
	struct text *t = &p->t;

	put_type(t, p->m, v);
	if (v->name) {
		text_put(t, " ");
		put_string(t, v->name);
	}
	if (v->kind)
		text_put(t, " kind=%s", kind_name[v->kind]);
	if (v->placed)
		text_put(t, " anchor");
	if (v->off != -1)
		text_put(t, " off=%lld", (long long)v->off);
	if (!same_span(v->span, usual))
		put_span(t, "at=", v->span);
}

/* An op that has left the module cannot be named, and is no longer anyone's forward op. */
static bool can_name(const struct printer *p, const struct op *op)
{
	return op && op->nout && op->out[0]->id < p->n && p->by_id[op->out[0]->id] == op->out[0];
}

static void put_block(struct printer *p, const struct block *block, enum phase phase, int depth);

static void put_body(struct printer *p, const struct op *op, int depth)
{
	struct text *t = &p->t;
	const struct block *body = op->body;

	text_put(t, " {\n");
	for (uint32_t i = 0; i < body->args.n; i++) {
		const struct value *v = body->args.at[i];

		if (i)
			text_put(t, ", ");
		else
			text_put(t, "%*sargs ", 2 * depth, "");
		text_put(t, "%%%u: ", v->id);
		put_value(p, v, (struct span){ 0 });
	}
	text_put(t, body->args.n ? "\n" : "");
	put_block(p, body, op->phase, depth);
	text_put(t, "%*syield", 2 * depth, "");
	for (uint32_t i = 0; i < body->yields.n; i++)
		text_put(t, "%s%%%u", i ? ", " : " ", body->yields.at[i]->id);
	text_put(t, "\n%*s}", 2 * depth - 2, "");
}

static void put_op(struct printer *p, const struct op *op, enum phase phase, int depth)
{
	struct text *t = &p->t;

	text_put(t, "%*s", 2 * depth, "");
	for (uint32_t i = 0; i < op->nout; i++)
		text_put(t, "%s%%%u", i ? ", " : "", op->out[i]->id);
	text_put(t, "%s%s", op->nout ? " = " : "", opinfo[op->code].name);
	for (uint32_t i = 0; i < op->nin; i++)
		text_put(t, "%s%%%u", i ? ", " : " ", op->in[i]->id);
	put_attrs(t, p->m, op);
	for (uint32_t i = 0; i < op->nout; i++) {
		text_put(t, i ? ", " : " : ");
		put_value(p, op->out[i], op->span);
	}
	if (can_name(p, op->of))
		text_put(t, " of=%%%u", op->of->out[0]->id);
	if (op->why) {
		text_put(t, " why=");
		put_string(t, op->why);
	}
	if (op->phase != phase)
		text_put(t, " phase=%s", phase_name[op->phase]);
	put_op_span(t, op->span);
	if (op->body)
		put_body(p, op, depth + 1);
	text_put(t, "\n");
}

static void put_block(struct printer *p, const struct block *block, enum phase phase, int depth)
{
	for (const struct op *op = block->first; op; op = op->next)
		put_op(p, op, phase, depth);
}

static void put_sections(struct printer *p)
{
	int now = -1;

	for (const struct op *op = p->m->top.first; op; op = op->next) {
		if ((int)op->phase != now)
			text_put(&p->t, "%s:\n", phase_name[op->phase]);
		now = (int)op->phase;
		put_op(p, op, op->phase, 1);
	}
}

/* -- numbering -- */

static uint32_t count_values(const struct block *block)
{
	uint32_t n = block->args.n;

	for (const struct op *op = block->first; op; op = op->next)
		n += op->nout + (op->body ? count_values(op->body) : 0);
	return n;
}

static void number(struct printer *p, struct value *v)
{
	v->id = p->n;
	p->by_id[p->n++] = v;
}

static void number_block(struct printer *p, struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		number(p, block->args.at[i]);
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++) {
			if (!op->out[i])
				die("result %u of %s has no type", i, opinfo[op->code].name);
			number(p, op->out[i]);
		}
		if (op->body)
			number_block(p, op->body);
	}
}

char *module_print(struct module *m, struct arena *mem, size_t *len)
{
	struct printer p = { .t = { .mem = mem }, .m = m };

	p.by_id = NEWN(mem, struct value *, count_values(&m->top) + 1);
	number_block(&p, &m->top);
	m->next_id = p.n;
	put_module(&p);
	put_mesh(&p);
	put_hardware(&p);
	put_software(&p);
	put_dims(&p);
	put_pipe(&p);
	put_recompute(&p);
	for (uint32_t i = 0; i < m->chunks.n; i++)
		put_chunk(&p, &m->chunks.at[i]);
	for (uint32_t i = 0; i < m->bufs.n; i++)
		put_buffer(&p, m->bufs.at[i]);
	for (uint32_t i = 0; i < m->arrows.n; i++)
		put_arrow(&p, &m->arrows.at[i]);
	put_sections(&p);
	if (len)
		*len = p.t.n;
	return p.t.s;
}
