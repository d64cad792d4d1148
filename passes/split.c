/* passes/split.c - an all_reduce whose result is worked on element by element, before somebody needs it whole,
 * becomes a reduce_scatter, that work on parts, and an all_gather of what the work makes.
 *
 * Requires form PARTITIONED, before fuse. An all_reduce is a reduce_scatter and an all_gather (Thakur, Rabenseifner,
 * Gropp 2005), so as long as what is gathered is no larger than what was reduced, no byte more is sent, and each of k
 * ranks does 1/k of the work in between: bias, dropout and the residual sum of a block, say. Every operand of that work
 * is whole on all ranks, so its part costs nothing. Each element is summed and worked on as before.
 *
 * It costs a latency more. The work is weighed by what kernels read and write: operands from outside and what
 * leaves; and a kernel that would have gone on with the result reads it anew. */
#include "passes/passes.h"
#include "ir/text.h"

enum { MOST_WORK = 64, FREE_DEEP = 6, FREE_OPERANDS = 4 };

static const double BETTER = 1.1;

typedef VEC(struct op *) ops;

static bool candidate(const struct op *op)
{
	return op->code == OP_ALL_REDUCE && op->nin == 1 && !(HAS(op, max) && op->at.max) &&
	       (op->phase == FORWARD || op->phase == BACKWARD) && !op->out[0]->sh.sum && !op->out[0]->sh.max;
}

/* A value of the block at work: who reads it there, and its part, if it was gathered from one. */
struct known {
	ops readers;
	bool yielded;
	struct value *part;
};

struct split {
	struct module *m;
	struct block *block;
	struct op *sum;        /* the all_reduce */
	dimid dim;
	struct axes part;      /* how dim is split in parts */
	int n;
	struct op *work[MOST_WORK]; /* in order; op.mark == 1 */
};

static struct known *known_of(const struct split *s, struct value *v)
{
	if (!v->aux)
		v->aux = NEW(s->m->mem, struct known);
	return v->aux;
}

static void survey(struct split *s)
{
	for (uint32_t i = 0; i < s->block->args.n; i++)
		s->block->args.at[i]->aux = NULL;
	for (struct op *op = s->block->first; op; op = op->next) {
		op->mark = 0;
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
	}
	for (struct op *op = s->block->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			PUSH(s->m->mem, &known_of(s, op->in[i])->readers, op);
	for (uint32_t i = 0; i < s->block->yields.n; i++)
		known_of(s, s->block->yields.at[i])->yielded = true;
}

/* -- what may be done on parts -- */

static bool in_work(const struct split *s, const struct value *v)
{
	return v == s->sum->out[0] || (v->def && v->home == s->block && v->def->mark == 1);
}

/* Whole on all ranks of the group, and split along dim as the sum is. */
static bool has_parts(const struct split *s, const struct value *v)
{
	const struct value *sum = s->sum->out[0];
	int p = dim_pos(v, s->dim);

	return !v->sh.sum && !v->sh.max && !(sharding_axes(&v->sh, v->nd) & axes_bits(&s->sum->at.axes)) &&
	       (p < 0 || axes_equal(&v->sh.on[p], &sum->sh.on[dim_pos(sum, s->dim)]));
}

static bool on_parts(const struct split *s, const struct op *op)
{
	enum opclass class = opinfo[op->code].class;
	bool reads = false;

	if (class != C_MAP && class != C_REDUCE)
		return false;
	if (op->phase != s->sum->phase || op->at.where != s->sum->at.where || dim_pos(op->out[0], s->dim) < 0)
		return false;
	for (uint32_t i = 0; i < op->nin; i++) {
		reads |= in_work(s, op->in[i]);
		if (!has_parts(s, op->in[i]))
			return false;
	}
	return reads && has_parts(s, op->out[0]);
}

/* -- what it saves -- */

static bool pointwise(const struct op *op)
{
	return opinfo[op->code].class == C_MAP || opinfo[op->code].class == C_REDUCE;
}

/* Made of leaves: made again in parts where it is read. */
static bool is_free(const struct split *s, const struct value *v, int deep)
{
	if (!has_dim(v, s->dim))
		return true;
	if (!v->def || v->home != s->block || v->def->code == OP_READ || deep > FREE_DEEP)
		return false;
	if (opinfo[v->def->code].class != C_LEAF && opinfo[v->def->code].class != C_MAP)
		return false;
	if (v->def->nin > FREE_OPERANDS)
		return false;
	for (uint32_t i = 0; i < v->def->nin; i++)
		if (!is_free(s, v->def->in[i], deep + 1))
			return false;
	return true;
}

/* Somebody reads it who is not at work on parts. */
static bool needed_whole(const struct split *s, struct value *v, bool *kernel, bool *other)
{
	const struct known *k = known_of(s, v);

	*other = k->yielded;
	*kernel = false;
	for (uint32_t i = 0; i < k->readers.n; i++)
		if (k->readers.at[i]->mark != 1)
			*(pointwise(k->readers.at[i]) ? kernel : other) = true;
	return *kernel || *other;
}

/* It was gathered from just these parts. */
static bool was_part(const struct split *s, const struct value *v)
{
	const struct op *op = v->def;
	int p = dim_pos(v, s->dim);

	return op && op->code == OP_ALL_GATHER && op->nin == 1 && p >= 0 && axes_equal(&op->in[0]->sh.on[p], &s->part);
}

struct gain {
	double gathered, moved, seconds; /* bytes; of time: what is saved */
};

static void weigh_value(const struct split *s, struct value *v, struct gain *g)
{
	double k = (double)group_size(s->m, axes_bits(&s->sum->at.axes)), n = (double)local_bytes(s->m, v);
	bool kernel, other;

	if (!needed_whole(s, v, &kernel, &other))
		return;
	g->gathered += n;
	g->moved += (other ? n : 0) - n / k - (kernel ? n : 0);
	g->seconds -= comm_seconds(s->m, axes_bits(&s->sum->at.axes), n * (k - 1) / k);
}

static void weigh_operands(const struct split *s, const struct op *op, struct gain *g)
{
	double k = (double)group_size(s->m, axes_bits(&s->sum->at.axes));

	for (uint32_t i = 0; i < op->nin; i++) {
		struct value *v = op->in[i];
		bool first = known_of(s, v)->readers.at[0] == op;

		for (uint32_t r = 0; !first && r < known_of(s, v)->readers.n; r++)
			if (known_of(s, v)->readers.at[r]->mark == 1) {
				first = known_of(s, v)->readers.at[r] == op;
				break;
			}
		double n = (double)local_bytes(s->m, v);

		if (first && has_dim(v, s->dim) && !in_work(s, v) && !is_free(s, v, 0))
			g->moved += (1 - 1 / k) * n - (was_part(s, v) ? 0 : 2 * n / k);
	}
}

static struct gain weigh(const struct split *s)
{
	uint32_t axes = axes_bits(&s->sum->at.axes);
	double k = (double)group_size(s->m, axes), n = (double)local_bytes(s->m, s->sum->out[0]);
	struct gain g = { .moved = (1 - 1 / k) * n,
			  .seconds = op_seconds(s->m, s->sum) - comm_seconds(s->m, axes, n * (k - 1) / k) };

	weigh_value(s, s->sum->out[0], &g);
	for (int i = 0; i < s->n; i++) {
		weigh_operands(s, s->work[i], &g);
		weigh_value(s, s->work[i]->out[0], &g);
	}
	g.seconds += s->m->hw.bandwidth > 0 ? g.moved / s->m->hw.bandwidth : 0;
	if (g.gathered > n)
		g.seconds = -1;
	return g;
}

/* Takes up what follows in the order of the block; the best beginning of it is kept. */
static double grow(struct split *s)
{
	double best = 0;
	int most = 0;

	s->n = 0;
	for (struct op *op = s->sum->next; op && s->n < MOST_WORK; op = op->next) {
		if (!on_parts(s, op))
			continue;
		op->mark = 1;
		s->work[s->n++] = op;
		double gain = weigh(s).seconds;

		if (gain > best) {
			best = gain;
			most = s->n;
		}
	}
	while (s->n > most)
		s->work[--s->n]->mark = 0;
	return best;
}

static void forget(struct split *s)
{
	while (s->n)
		s->work[--s->n]->mark = 0;
}

/* -- doing it -- */

static struct sharding in_parts(const struct split *s, const struct value *v)
{
	struct sharding sh = v->sh;

	sh.on[dim_pos(v, s->dim)] = s->part;
	return sh;
}

static struct value *comm(const struct split *s, struct builder *b, enum opcode code, struct value *v,
			  const struct sharding *sh, const char *why)
{
	struct op *op = op_new(b, code, 1, &v, 1);
	struct value *out = op_type(b, op, 0, v->dt, v->nd, v->d);

	SET(op, dim, s->dim);
	SET(op, axes, s->sum->at.axes);
	op->span = s->sum->span;
	out->sh = *sh;
	out->kind = v->kind;
	out->name = v->name;
	out->span = v->span;
	op->why = why;
	return out;
}

/* The part of a leaf, or of what is made of leaves, is made as the whole is. */
static struct value *free_part(const struct split *s, struct builder *b, struct value *v)
{
	struct known *k = known_of(s, v);

	if (!has_dim(v, s->dim))
		return v;
	if (k->part && axes_equal(&k->part->sh.on[dim_pos(v, s->dim)], &s->part))
		return k->part;
	struct value *in[FREE_OPERANDS] = { 0 };
	const struct op *def = v->def;

	for (uint32_t i = 0; i < def->nin; i++)
		in[i] = free_part(s, b, def->in[i]);
	struct op *op = op_clone(b, def, false);

	v->aux = k; /* op_clone has used it */
	memcpy(op->in, in, op->nin * sizeof *op->in);
	op->out[0]->sh = in_parts(s, v);
	op->out[0]->aux = NULL;
	k->part = op->out[0];
	return k->part;
}

/* A shard is over one axis. */
static struct value *shard(const struct split *s, struct builder *b, struct value *v)
{
	struct sharding sh = v->sh;

	for (int i = 0; i < s->sum->at.axes.n; i++) {
		struct axes one = { 0 };

		axes_push(&one, s->sum->at.axes.a[i]);
		axes_push(&sh.on[dim_pos(v, s->dim)], one.a[0]);
		v = comm(s, b, OP_SHARD, v, &sh, NULL);
		v->def->at.axes = one;
	}
	return v;
}

static struct value *part_of(const struct split *s, struct builder *b, struct value *v)
{
	struct known *k = known_of(s, v);
	int p = dim_pos(v, s->dim);

	if (p < 0 || in_work(s, v))
		return v;
	if (was_part(s, v))
		return v->def->in[0];
	if (is_free(s, v, 0))
		return free_part(s, b, v);
	if (!k->part || !axes_equal(&k->part->sh.on[p], &s->part))
		k->part = shard(s, b, v);
	return k->part;
}

/* "all_reduce of h over tp: the next add needs its sum (f:1)" as a reduce_scatter. */
static const char *why_scatter(const struct split *s)
{
	const struct op *op = s->sum;
	const char *of = op->why ? strstr(op->why, " of ") : NULL, *at = of ? strrchr(of, '(') : NULL;

	if (!at || at[-1] != ' ')
		return op->why;
	return arena_printf(s->m->mem, "reduce_scatter%.*s, split by %s %s", (int)(at - of - 1), of,
			    s->m->dims.at[s->dim].name, at);
}

static const char *why_gather(const struct split *s, const struct value *v)
{
	struct arena *mem = s->m->mem;
	const char *what = v->name ? v->name : arena_printf(mem, "the %s of %s", opinfo[v->def->code].name,
							   span_text(mem, s->m->src, v->span));

	return arena_printf(mem, "all_gather of %s over %s: it was made in parts, and is read with %s whole (%s)", what,
			    axes_user_text(mem, s->m, axes_bits(&s->sum->at.axes)), s->m->dims.at[s->dim].name,
			    span_text(mem, s->m->src, s->sum->span));
}

/* v is now a part; who is not at work on parts reads the whole again. */
static void gather(const struct split *s, struct value *v)
{
	struct builder b = { .m = s->m, .block = s->block, .before = v->def->next, .phase = s->sum->phase,
			     .span = v->span, .where = s->sum->at.where };
	struct sharding whole = v->sh;
	struct known *k = known_of(s, v);
	bool kernel, other;

	v->sh.on[dim_pos(v, s->dim)] = s->part;
	if (!needed_whole(s, v, &kernel, &other))
		return;
	struct value *all = comm(s, &b, OP_ALL_GATHER, v, &whole, why_gather(s, v));

	all->placed = v->placed;
	v->placed = false;
	for (uint32_t i = 0; i < k->readers.n; i++) {
		struct op *op = k->readers.at[i];

		if (op->code == OP_SHARD && axes_equal(&op->out[0]->sh.on[dim_pos(v, s->dim)], &s->part)) {
			replace_uses(s->block, op->out[0], v);
			continue;
		}
		for (uint32_t n = 0; n < op->nin && op->mark != 1; n++)
			if (op->in[n] == v)
				op->in[n] = all;
	}
	for (uint32_t i = 0; i < s->block->yields.n; i++)
		if (s->block->yields.at[i] == v)
			s->block->yields.at[i] = all;
}

static void apply(struct split *s)
{
	struct op *sum = s->sum;
	struct builder b = { .m = s->m, .block = s->block, .before = sum, .phase = sum->phase, .span = sum->span,
			     .where = sum->at.where };
	const struct value *old = sum->out[0];
	struct sharding sh = in_parts(s, old);
	struct value *part = comm(s, &b, OP_REDUCE_SCATTER, sum->in[0], &sh, why_scatter(s));

	part->name = old->name;
	for (int i = 0; i < s->n; i++) {
		struct op *op = s->work[i];

		b.before = op;
		for (uint32_t n = 0; n < op->nin; n++)
			op->in[n] = part_of(s, &b, op->in[n]);
	}
	struct value *v = sum->out[0];

	part->aux = v->aux;
	part->def->out[0] = v; /* the sum's readers find the part under the name they know */
	v->def = part->def;
	sum->nout = 0;
	op_unlink(sum);
	gather(s, v);
	for (int i = 0; i < s->n; i++)
		gather(s, s->work[i]->out[0]);
}

/* -- work on what is still pending --
 *
 * A sum may also have passed through work that is linear in it: all_reduce(to_partial(x) + y) is x + all_reduce(y).
 * Where y is the one pending value that this begins with, the reduction is moved back to it, and what stood before
 * it is work behind it. Undone if nothing comes of it. */

struct chain_of {
	int n;
	struct op *op[MOST_WORK];     /* in order; while they are searched op.mark == 4 */
	struct value **in[MOST_WORK]; /* their operands before */
	struct value *from, *last;    /* what is pending at first, and in the end */
	struct op *next;              /* behind the sum */
};

static bool stands_before(const struct op *a, const struct op *b)
{
	while (b && b != a)
		b = b->prev;
	return b;
}

/* Pending v, an operand of op, as a whole: what it was made of, or what another all_reduce makes of it. */
static struct value *whole_of(const struct split *s, struct value *v, const struct op *op)
{
	uint32_t axes = axes_bits(&s->sum->at.axes);
	const struct known *k = known_of(s, v);

	if (v->def && v->def->code == OP_TO_PARTIAL && !(HAS(v->def, form) && v->def->at.form))
		return axes_bits(&v->def->at.axes) == axes ? v->def->in[0] : NULL;
	for (uint32_t i = 0; i < k->readers.n; i++) {
		const struct op *r = k->readers.at[i];

		if (r != s->sum && candidate(r) && axes_bits(&r->at.axes) == axes && stands_before(r, op))
			return r->out[0];
	}
	return NULL;
}

static bool is_linear(const struct split *s, struct value *v)
{
	const struct op *op = v->def;
	const struct known *k = known_of(s, v);

	return op && v->home == s->block && opinfo[op->code].class == C_MAP && op->phase == s->sum->phase &&
	       op->at.where == s->sum->at.where && k->readers.n == 1 && !k->yielded &&
	       v->sh.sum == axes_bits(&s->sum->at.axes);
}

static bool trace(const struct split *s, struct chain_of *l, struct value *v)
{
	if (!is_linear(s, v)) {
		bool first = !l->from || l->from == v;

		l->from = v;
		return first && v->sh.sum == axes_bits(&s->sum->at.axes);
	}
	if (l->n++ == MOST_WORK)
		return false;
	v->def->mark = 4;
	for (uint32_t i = 0; i < v->def->nin; i++) {
		struct value *x = v->def->in[i];

		if (x->sh.sum && !whole_of(s, x, v->def) && !trace(s, l, x))
			return false;
	}
	return true;
}

static bool find_linear(const struct split *s, struct chain_of *l)
{
	bool ok = trace(s, l, s->sum->in[0]) && l->from && l->n && local_bytes(s->m, l->from) <= local_bytes(s->m, s->sum->out[0]);

	l->n = 0;
	for (struct op *op = s->block->first; op != s->sum; op = op->next) {
		if (op->mark == 4 && ok)
			l->op[l->n++] = op;
		op->mark = 0;
	}
	return ok;
}

static void move_back(struct split *s, struct chain_of *l)
{
	struct op *sum = s->sum, *end = l->op[l->n - 1];
	struct builder b = { .m = s->m, .block = s->block };
	struct value *out = sum->out[0], *from = l->from;

	l->next = sum->next;
	l->last = end->out[0];
	for (int i = 0; i < l->n; i++) {
		struct op *op = l->op[i];

		l->in[i] = NEWN(s->m->mem, struct value *, op->nin + 1);
		memcpy(l->in[i], op->in, op->nin * sizeof *op->in);
		for (uint32_t n = 0; n < op->nin; n++) {
			struct value *x = op->in[n], *whole = x->sh.sum && x != from ? whole_of(s, x, op) : NULL;

			op->in[n] = whole ? whole : x;
		}
	}
	sum->in[0] = from;
	struct value *now = op_type(&b, sum, 0, from->dt, from->nd, from->d);

	now->sh = from->sh;
	now->sh.sum = 0;
	now->kind = from->kind;
	now->span = from->span;
	for (int i = l->n - 1; i >= 0; i--) {
		l->op[i]->out[0]->sh.sum = 0;
		for (uint32_t n = 0; n < l->op[i]->nin; n++)
			if (l->op[i]->in[n] == from) {
				op_move_before(sum, l->op[i]);
				l->op[i]->in[n] = now;
			}
	}
	end->out[0] = out;
	out->def = end;
}

static void move_forth(struct split *s, struct chain_of *l)
{
	struct op *sum = s->sum, *end = l->op[l->n - 1];
	struct value *out = end->out[0];

	op_move_before(sum, l->next);
	sum->in[0] = end->out[0] = l->last;
	sum->out[0] = out;
	out->def = sum;
	for (int i = 0; i < l->n; i++) {
		memcpy(l->op[i]->in, l->in[i], l->op[i]->nin * sizeof *l->op[i]->in);
		l->op[i]->out[0]->sh.sum = axes_bits(&sum->at.axes);
	}
}

/* -- finding them -- */

static bool even(const struct split *s)
{
	return dim_size(s->m, s->dim) % group_size(s->m, axes_bits(&s->part)) == 0;
}

static bool choose_dim(struct split *s, int i)
{
	const struct value *v = s->sum->out[0];

	s->dim = v->d[i];
	s->part = v->sh.on[i];
	if (s->part.n + s->sum->at.axes.n > MAX_ON || is_staged(s->m, s->dim))
		return false;
	if (HAS(s->sum, where) && axes_has(&s->sum->at.axes, pipe_axis(s->m)))
		return false; /* some stages, not all, have it */
	for (int k = 0; k < s->sum->at.axes.n; k++)
		axes_push(&s->part, s->sum->at.axes.a[k]);
	return even(s);
}

/* Along the dim that saves most. */
static bool consider(struct split *s)
{
	const struct value *v = s->sum->out[0];
	double best = 0;
	int at = -1;

	for (int i = 0; i < v->nd; i++) {
		if (!choose_dim(s, i))
			continue;
		double gain = grow(s);

		forget(s);
		if (gain > BETTER * best) { /* of about equals the outer one: its parts lie together */
			best = gain;
			at = i;
		}
	}
	if (at < 0)
		return false;
	choose_dim(s, at);
	grow(s);
	apply(s);
	return true;
}

static void try_sum(struct split *s, struct op *sum)
{
	struct chain_of l = { 0 };

	s->sum = sum;
	s->n = 0;
	survey(s);
	bool moved = find_linear(s, &l);

	if (moved) {
		move_back(s, &l);
		survey(s);
	}
	if (!consider(s) && moved)
		move_forth(s, &l);
}

/* Leaves, and gathered values, of which only parts are read now. value.mark: somebody reads it. */
static void drop_free(struct block *block)
{
	for (struct op *op = block->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = 0;
	for (uint32_t i = 0; i < block->yields.n; i++)
		block->yields.at[i]->mark = 1;
	for (struct op *op = block->last, *prev; op; op = prev) {
		bool pure = opinfo[op->code].class == C_LEAF || opinfo[op->code].class == C_MAP ||
			    op->code == OP_ALL_GATHER || op->code == OP_TO_PARTIAL || op->code == OP_SHARD;

		prev = op->prev;
		if (pure && !op->out[0]->mark) {
			op_unlink(op);
			continue;
		}
		for (uint32_t i = 0; i < op->nin; i++)
			op->in[i]->mark = 1;
	}
}

/* From the end: a sum that goes on, pending, to a later one is read by nobody else when that is moved back. */
static void split_block(struct module *m, struct block *block)
{
	struct split s = { .m = m, .block = block };
	bool any = false;

	for (struct op *op = block->first; op; op = op->next) {
		any |= candidate(op);
		if (op->code == OP_REPEAT)
			split_block(m, op->body);
	}
	if (!any)
		return;
	for (struct op *op = block->last, *prev; op; op = prev) {
		prev = op->prev;
		if (candidate(op))
			try_sum(&s, op);
	}
	drop_free(block);
}

bool pass_split(struct module *m, struct diag *d)
{
	(void)d;
	split_block(m, &m->top);
	return true;
}
