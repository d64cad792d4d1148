/* tests/fuzz/gen.c - the frame of the generator: streams, scopes, params, repeats. */
#include "tests/fuzz/gen_impl.h"

uint32_t rnd_to(struct rnd *r, uint32_t n)
{
	r->s += 0x9E3779B97F4A7C15ull;
	return n ? (uint32_t)(mix64(r->s) >> 33) % n : 0;
}

double rnd_unit(struct rnd *r)
{
	return rnd_to(r, 1u << 30) / (double)(1u << 30);
}

bool gen_step(struct gen *g)
{
	int i = g->c->steps++;

	g->r.s = mix64(g->c->seed * 1000003 + (uint64_t)i);
	return i < MOST_STEPS && !g->c->skip[i];
}

bool chance(struct gen *g, int percent)
{
	return (int)rnd_to(&g->r, 100) < percent;
}

uint32_t roll(struct gen *g, uint32_t n)
{
	return rnd_to(&g->r, n);
}

/* -- what a value is made of: 1 params, 2 inputs, kept in value.mark beside 4 for "known" -- */

int flags_of(struct gen *g, struct value *v)
{
	if (v->mark & 4)
		return (int)v->mark & 3;
	int flags = 0;
	if (v->def && v->def->code == OP_READ)
		flags = find_buffer(g->m, v->def->at.buf)->role == B_INPUT ? 2 : 1;
	for (uint32_t i = 0; v->def && i < v->def->nin; i++)
		flags |= flags_of(g, v->def->in[i]);
	v->mark = 4 | flags;
	return flags;
}

void arg_flags(struct value *arg, int flags)
{
	arg->mark = 4 | flags;
}

bool inner(struct gen *g, const struct value *v)
{
	return flags_of(g, (struct value *)v) == 3;
}

/* With microbatches a sum over the batch may not feed an inner value; of inputs alone it may. Of params
 * alone forward may, but not what backward makes of it. */
bool may_sum_batch(struct gen *g, const struct value *v)
{
	return g->m->micro == 1 || !(flags_of(g, (struct value *)v) & 1);
}

bool fits(const struct gen *g, int nd, const dimid *d)
{
	int64_t n = 1;

	for (int i = 0; i < nd; i++)
		n *= dim_size(g->m, d[i]);
	return nd <= 5 && n <= DRAWN_ELEMENTS;
}

/* -- values from outside -- */

static struct value *as_argument(struct gen *g, struct scope *s, values *in, values *args, struct value *v)
{
	dimid d[MAX_DIMS];
	int n = 0;

	for (uint32_t i = 0; i < in->n; i++)
		if (in->at[i] == v)
			return args->at[i];
	for (int i = 0; i < v->nd; i++)
		if (args == &s->with_arg || v->d[i] != s->dim)
			d[n++] = v->d[i];
	struct value *arg = block_arg(&s->b, s->b.block, v->dt, n, d);
	arg_flags(arg, flags_of(g, v));
	PUSH(g->mem, in, v);
	PUSH(g->mem, args, arg);
	return arg;
}

struct value *into(struct gen *g, struct scope *s, struct value *v)
{
	if (v->home == s->b.block || !s->up)
		return v;
	v = into(g, s->up, v);
	if (has_dim(v, s->dim))
		return as_argument(g, s, &s->over, &s->over_arg, v);
	return as_argument(g, s, &s->with, &s->with_arg, v);
}

struct value *pick(struct gen *g, struct scope *s)
{
	struct scope *from = s;

	while (from->up && (!from->pool.n || chance(g, 20)))
		from = from->up;
	if (!from->pool.n)
		return NULL;
	/* the later half is more likely */
	uint32_t n = from->pool.n, i = roll(g, n);
	if (i < n / 2 && chance(g, 50))
		i = n / 2 + roll(g, n - n / 2);
	return into(g, s, from->pool.at[i]);
}

/* -- params: of a layer, of an outer layer, or shared by all layers -- */

struct value *new_param(struct gen *g, struct scope *s, int nd, const dimid *d)
{
	dimid all[MAX_DIMS];
	int n = 0;
	struct scope *top = &g->top, *o = s;

	for (int depth = 0; depth < s->depth; depth++) {
		for (o = s; o->depth > depth + 1; o = o->up)
			;
		if (chance(g, 75))
			all[n++] = o->dim;
	}
	for (int i = 0; i < nd; i++)
		all[n + i] = d[i];
	n += nd;
	if (n > 1 && nd < n && chance(g, 10)) { /* a repeat's dim need not come first */
		dimid first = all[0];

		memmove(all, all + 1, (size_t)(n - 1) * sizeof *all);
		all[n - 1] = first;
	}
	/* an old one again: tied */
	for (uint32_t i = 0; i < g->tables.n && chance(g, 60); i++) {
		struct value *v = g->tables.at[(i * 7 + g->r.s % 5) % g->tables.n];

		if (v->nd == n && !memcmp(v->d, all, (size_t)n * sizeof *all))
			return into(g, s, v);
	}
	struct buffer *b = module_buffer(g->m, B_PARAM, arena_printf(g->mem, "p%d", g->nparam++), F32, n, all);
	b->init = chance(g, 80) ? INIT_NORMAL : INIT_UNIFORM;
	b->init_arg = 0.7;
	struct value *v = b_read(&top->b, b);
	PUSH(g->mem, &g->tables, v);
	return into(g, s, v);
}

/* -- blocks -- */

static void name_value(struct gen *g, struct scope *s, struct value *v)
{
	const char *path = "";

	if (!v->def || v->name || !chance(g, 45))
		return;
	for (struct scope *o = s; o->up; o = o->up)
		path = arena_printf(g->mem, "%s.%s", g->m->dims.at[o->dim].name, path);
	v->name = arena_printf(g->mem, "%sn%d", path, g->nname++);
	PUSH(g->mem, &g->names, v->name);
}

void fill_scope(struct gen *g, struct scope *s, int steps)
{
	for (int i = 0; i < steps; i++) {
		if (!gen_step(g))
			continue;
		struct value *v = gen_steps[roll(g, (uint32_t)gen_nsteps)](g, s);

		if (!v)
			continue;
		name_value(g, s, v);
		if (!is_float(v->dt))
			die("the generator made an int");
		if (v->nd)
			PUSH(g->mem, &s->pool, v);
		else
			PUSH(g->mem, &s->aux, v);
	}
}

/* Args in the order of the operands: carried, invariants, slices. */
static void close_repeat(struct gen *g, struct scope *s, uint32_t ncarry)
{
	struct block *body = s->op->body;
	values args = { 0 };

	for (uint32_t i = 0; i < ncarry; i++)
		PUSH(g->mem, &args, body->args.at[i]);
	for (uint32_t i = 0; i < s->with.n; i++) {
		op_add_in(g->m, s->op, s->with.at[i]);
		PUSH(g->mem, &args, s->with_arg.at[i]);
	}
	for (uint32_t i = 0; i < s->over.n; i++) {
		op_add_in(g->m, s->op, s->over.at[i]);
		PUSH(g->mem, &args, s->over_arg.at[i]);
	}
	for (uint32_t i = 0; i < args.n; i++) {
		body->args.at[i] = args.at[i];
		args.at[i]->no = i;
	}
	SET(s->op, nwith, (int64_t)s->with.n);
}

/* What is carried on: bounded, and of the dims of the argument. */
static struct value *next_carry(struct gen *g, struct scope *s, struct value *arg)
{
	values can = { 0 };

	for (uint32_t i = 0; i < s->pool.n; i++) {
		struct value *v = s->pool.at[i];
		bool sub = true;

		for (int k = 0; k < v->nd; k++)
			sub &= has_dim(arg, v->d[k]);
		if (sub && v != arg)
			PUSH(g->mem, &can, v);
	}
	struct value *y = can.n ? can.at[can.n - 1 - roll(g, can.n < 3 ? can.n : 3)] : arg;
	if (chance(g, 70) || y->nd != arg->nd) {
		y = two_op(s, OP_ADD, scaled(s, arg, 0.6), scaled(s, y, 0.5));
	} else if (y == arg) {
		y = one_op(s, OP_TANH, arg);
	}
	if (memcmp(y->d, arg->d, arg->nd * sizeof *y->d) != 0) {
		struct op *op = op_new(&s->b, OP_ACCUM, 1, &y, 1);

		y = op_type(&s->b, op, 0, F32, arg->nd, arg->d);
	}
	return y;
}

static bool is_chained(const struct gen *g, dimid d)
{
	for (int i = 0; i < g->nchain; i++)
		if (g->chain[i] == d)
			return true;
	return false;
}

static struct value *with_own_param(struct gen *g, struct scope *s, struct value *x)
{
	bool has = x->nd && x->d[x->nd - 1] != g->batch;
	struct value *p = new_param(g, s, has, x->d + x->nd - has);

	return one_op(s, OP_TANH, two_op(s, OP_ADD, x, p));
}

struct value *make_repeat(struct gen *g, struct scope *s, dimid d)
{
	struct value *init[3];
	uint32_t n = 0, tensors;
	bool aux;

	struct scope *body = NEW(g->mem, struct scope);
	int count = 2 + (int)roll(g, 4);
	init[n] = pick(g, s);
	if (!init[n] || has_dim(init[n], d) || (is_chained(g, d) && !(flags_of(g, init[n]) & 2)))
		return NULL;
	n++;
	if (chance(g, 25) && (init[n] = pick(g, s)) && !has_dim(init[n], d) &&
	    (!is_chained(g, d) || flags_of(g, init[n]) & 2)) /* what is of params alone is not cut */
		n++;
	tensors = n;
	aux = chance(g, 40);
	if (aux)
		init[n++] = konst(s, 0);
	struct op *op = op_new(&s->b, OP_REPEAT, n, init, n);
	op->body = block_new(g->m, op);
	SET(op, dim, d);
	SET(op, ncarry, (int64_t)n);
	*body = (struct scope){ .up = s, .b = s->b, .op = op, .dim = d, .depth = s->depth + 1 };
	body->b.block = op->body;
	body->b.before = NULL;
	s->b.before = op;
	bool named[3];
	const char *name[3] = { NULL };
	for (uint32_t i = 0; i < n; i++) {
		struct value *arg = block_arg(&body->b, op->body, init[i]->dt, init[i]->nd, init[i]->d);

		arg_flags(arg, 3);
		named[i] = chance(g, 50);
		if (named[i]) {
			arg->name = name[i] = arena_printf(g->mem, "c%d", g->nname++);
			PUSH(g->mem, &g->names, name[i]);
		}
		if (i < tensors)
			PUSH(g->mem, &body->pool, arg);
	}
	struct value *own = NULL, *scale = NULL;
	if (is_chained(g, d)) { /* of inputs alone it would not be cut */
		scale = new_param(g, body, 0, NULL);
		own = with_own_param(g, body, op->body->args.at[0]);
		PUSH(g->mem, &body->pool, own);
	}
	fill_scope(g, body, count);
	for (uint32_t i = 0; i < n; i++) {
		struct value *arg = op->body->args.at[i], *y = arg;

		if (i < tensors)
			y = next_carry(g, body, arg);
		else if (body->aux.n)
			y = body->aux.at[body->aux.n - 1];
		else if (body->pool.n)
			y = mean_all(g, body, body->pool.at[body->pool.n - 1]);
		if (i >= tensors && own && !(flags_of(g, y) & 2))
			y = mean_all(g, body, own);
		if (i >= tensors && y != arg)
			y = two_op(body, OP_ADD, arg, scale ? two_op(body, OP_MUL, y, scale) : y);
		if (own && i < tensors)
			y = two_op(body, OP_ADD, scaled(body, y, 0.7), i ? one_op(body, OP_SIN, scale) : scaled(body, own, 0.4));
		if (named[i] && y->def && !y->name)
			y->name = name[i];
		PUSH(g->mem, &op->body->yields, y);
	}
	s->b.before = s->up ? NULL : NULL;
	close_repeat(g, body, n);
	for (uint32_t i = 0; i < n; i++) {
		struct value *v = op_type(&s->b, op, i, init[i]->dt, init[i]->nd, init[i]->d);

		v->name = name[i];
		v->mark = 4 | 3;
		if (i && i < tensors)
			PUSH(g->mem, &s->pool, v);
		if (i >= tensors)
			PUSH(g->mem, &s->aux, v);
	}
	return op->out[0];
}

struct value *step_repeat(struct gen *g, struct scope *s)
{
	if (s->depth == 2 || g->c->steps > MOST_STEPS - 60)
		return NULL;
	return make_repeat(g, s, g->loop[s->depth]);
}

/* -- the module -- */

static dimid new_dim(struct gen *g, const char *name, int64_t size)
{
	return module_dim(g->m, name, size, (struct span){ 0 });
}

static int64_t random_size(struct gen *g)
{
	static const int64_t sizes[] = { 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9 };

	return chance(g, 3) ? 0 : sizes[roll(g, LEN(sizes))];
}

static int64_t small_size(struct gen *g, uint32_t most)
{
	return chance(g, 3) ? 0 : 1 + (int64_t)roll(g, most);
}

static void make_dims(struct gen *g)
{
	struct module *m = g->m;

	gen_step(g);
	m->micro = chance(g, g->c->staged ? 15 : 55) ? 1 : 1 + (int64_t)roll(g, g->c->staged ? 8 : 4);
	m->precision = chance(g, 12) ? BF16 : F32;
	m->probes = chance(g, 8);
	g->batch = m->batch = new_dim(g, "batch", m->micro * (1 + (int64_t)roll(g, m->micro == 1 ? 9 : 4)));
	int64_t seq = chance(g, 25) ? 4 << roll(g, 2) : random_size(g);
	g->seq = new_dim(g, "seq", seq);
	g->ctx = new_dim(g, "ctx", seq);
	g->vocab = new_dim(g, "vocab", 1 + random_size(g));
	for (int i = 0; i < FEATS; i++) {
		int64_t n = random_size(g);

		g->feat[i] = new_dim(g, arena_printf(g->mem, "f%d", i), n);
		g->twin[i] = new_dim(g, arena_printf(g->mem, "t%d", i), n);
	}
	g->heads = new_dim(g, "heads", small_size(g, 4));
	g->group = new_dim(g, "group", small_size(g, 3));
	g->head = new_dim(g, "head", small_size(g, 4));
	int64_t most = dim_size(m, g->feat[3]);
	g->wide = new_dim(g, "wide", dim_size(m, g->feat[0]) * dim_size(m, g->feat[1]));
	g->pick = new_dim(g, "pick", most ? small_size(g, (uint32_t)most) : 0);
	g->slot = new_dim(g, "slot", random_size(g));
	g->loop[0] = new_dim(g, "outer", small_size(g, 3));
	g->loop[1] = new_dim(g, "layer", small_size(g, 3));
	if (g->c->staged)
		make_chain(g);
}

static struct value *add_input(struct gen *g, const char *name, enum dtype dt, int64_t tokens, int nd, const dimid *d)
{
	struct buffer *b = module_buffer(g->m, B_INPUT, name, dt, nd, d);

	b->tokens = tokens;
	return b_read(&g->top.b, b);
}

static void make_inputs(struct gen *g)
{
	dimid bs[] = { g->batch, g->seq }, bsf[] = { g->batch, g->seq, g->feat[0] }, bf[] = { g->batch, g->feat[1] };

	add_input(g, "tokens", INT, dim_size(g->m, g->vocab), 2, bs);
	add_input(g, "targets", INT, dim_size(g->m, g->vocab), 2, bs);
	PUSH(g->mem, &g->top.pool, add_input(g, "x", F32, 0, 3, bsf));
	PUSH(g->mem, &g->top.pool, add_input(g, "y", F32, 0, 2, bf));
	for (struct op *op = g->m->top.first; op; op = op->next)
		op->out[0]->name = op->at.buf;
}

struct module *gen_module(struct arena *mem, struct gen_case *c)
{
	struct gen g = { .mem = mem, .c = c };

	c->steps = 0;
	g.m = module_new(mem, NULL);
	g.m->name = "fuzz";
	g.m->workspace = 0;
	g.top.b = (struct builder){ .m = g.m, .block = &g.m->top, .phase = FORWARD };
	g.top.dim = NODIM;
	make_dims(&g);
	make_inputs(&g);
	gen_step(&g);
	if (c->staged)
		fill_chain(&g);
	else
		fill_scope(&g, &g.top, 3 + (int)roll(&g, 12));
	gen_loss(&g);
	gen_mesh(&g);
	return g.m;
}
