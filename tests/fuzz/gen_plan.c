/* tests/fuzz/gen_plan.c - the loss, the optimizer, the mesh and its arrows. */
#include "tests/fuzz/gen_impl.h"

static struct value *targets_of(struct gen *g)
{
	for (struct op *op = g->m->top.first; op; op = op->next)
		if (op->code == OP_READ && streq(op->at.buf, "targets"))
			return op->out[0];
	return NULL;
}

static struct value *cross_entropy(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s), *t = targets_of(g), *z, *m, *e;
	dimid d[MAX_DIMS], keep[4];
	int n = 0, nk = 0;

	if (!x || has_dim(x, g->vocab))
		return NULL;
	for (int i = 0; i < x->nd; i++)
		if (x->d[i] == g->batch || x->d[i] == g->seq)
			keep[nk++] = x->d[i];
		else
			d[n++] = x->d[i];
	d[n++] = g->vocab;
	keep[nk++] = g->vocab;
	if (chance(g, 40) && n == 2) {
		d[1] = d[0];
		d[0] = g->vocab;
	}
	z = b_einsum(&s->b, x, new_param(g, s, n, d), F32, nk, keep);
	if (chance(g, 60)) {
		z->name = "logits";
		PUSH(g->mem, &g->names, z->name);
	}
	m = one_op(s, OP_DETACH, b_reduce(&s->b, OP_RMAX, z, 1, &g->vocab));
	e = b_reduce(&s->b, OP_SUM, one_op(s, OP_EXP, two_op(s, OP_SUB, z, m)), 1, &g->vocab);
	struct value *lse = two_op(s, OP_ADD, one_op(s, OP_LOG, e), m);
	struct value *hit = b_map2(&s->b, OP_EQ, t, b_index(&s->b, g->vocab));
	struct value *right = b_reduce(&s->b, OP_SUM, b_where(&s->b, hit, z, konst(s, 0)), 1, &g->vocab);
	struct value *nll = two_op(s, OP_SUB, lse, right);
	struct value *valid = b_map2(&s->b, OP_NE, t, b_const(&s->b, INT, -100));
	nll = b_where(&s->b, valid, nll, konst(s, 0));
	struct value *count = b_reduce(&s->b, OP_SUM, b_cast(&s->b, valid, F32), valid->nd, valid->d);
	return two_op(s, OP_DIV, b_reduce(&s->b, OP_SUM, nll, nll->nd, nll->d), two_op(s, OP_MAX, count, konst(s, 1)));
}

static struct value *loss_term(struct gen *g, struct scope *s)
{
	struct value *x = pick(g, s);

	switch (roll(g, 5)) {
	case 0:
	case 1:
		return cross_entropy(g, s);
	case 2:
		return x ? mean_all(g, s, two_op(s, OP_MUL, x, x)) : NULL;
	case 3:
		if (g->tables.n) {
			struct value *p = g->tables.at[roll(g, g->tables.n)];

			if (in_chain(g, p))
				return NULL; /* on no stage as a whole */
			return scaled(s, mean_all(g, s, two_op(s, OP_MUL, p, p)), 0.3);
		}
		return NULL;
	default:
		return x ? mean_all(g, s, one_op(s, OP_SIN, x)) : NULL;
	}
}

static void report(struct gen *g, struct scope *s, struct value *v, const char *key)
{
	struct op *op = op_new(&s->b, OP_REPORT, 1, &v, 0);

	(void)g;
	SET(op, key, key);
}

/* Two groups may have losses of their own. */
static void minimize(struct gen *g, struct scope *s, struct value *loss, struct value *other)
{
	static const char *const opts[] = { "adamw", "adamw", "sgd", "sgd", "adafactor" };
	const char *opt = opts[roll(g, LEN(opts))];
	bool adam = streq(opt, "adamw"), fact = streq(opt, "adafactor"), clip = chance(g, 60);
	double decay = chance(g, 50) ? 0.1 : 0, momentum = chance(g, 50) ? 0.8 : 0;
	const double of_adam[] = { 0.01, decay, 0.9, 0.99, 1e-3 }, of_sgd[] = { 0.01, decay, momentum };
	const double of_fact[] = { 0.01, 0.8, 1e-3, 1 };
	const double *with = adam ? of_adam : fact ? of_fact : of_sgd;
	int frozen = chance(g, 20) ? (int)roll(g, (uint32_t)g->nparam + 1) : -1, k = 0;

	for (uint32_t i = 0; i < g->m->bufs.n; i++) {
		struct buffer *b = g->m->bufs.at[i];
		int group = other && k % 3 == 1;
		struct value *in[8] = { group ? other : loss };
		uint32_t n = 1;

		if (b->role != B_PARAM || k++ == frozen)
			continue;
		for (int j = 0; j < (adam ? 5 : fact ? 4 : 3); j++)
			in[n++] = konst(s, with[j]);
		if (clip)
			in[n++] = konst(s, 0.4);
		struct op *op = op_new(&s->b, OP_MINIMIZE, n, in, 0);
		SET(op, buf, b->name);
		SET(op, opt, opt);
		SET(op, group, group);
	}
}

void gen_loss(struct gen *g)
{
	struct scope *s = &g->top;
	struct value *loss = NULL;

	/* what nobody reads counts too: the last tensors join the loss */
	for (int i = 0; i < 4; i++) {
		if (!gen_step(g))
			continue;
		struct value *t = i == 0 && s->pool.n ? mean_all(g, s, one_op(s, OP_COS, s->pool.at[s->pool.n - 1])) :
				  loss_term(g, s);

		if (t)
			loss = loss ? two_op(s, OP_ADD, loss, t) : t;
	}
	for (uint32_t i = 0; i < s->aux.n; i++)
		if (gen_step(g) && (chance(g, 70) || g->nchain))
			loss = loss ? two_op(s, OP_ADD, loss, scaled(s, s->aux.at[i], 0.5)) : s->aux.at[i];
	if (!loss)
		loss = mean_all(g, s, s->pool.at[0]);
	report(g, s, loss, "loss");
	if (gen_step(g) && chance(g, 50)) {
		struct value *x = pick(g, s), *y = pick(g, s);

		x = mean_all(g, s, x);
		y = mean_all(g, s, two_op(s, OP_MUL, y, y));
		report(g, s, two_op(s, OP_DIV, x, two_op(s, OP_ADD, y, konst(s, 0.5))), "m0");
		report(g, s, y, "m1");
	}
	struct value *other = gen_step(g) && chance(g, 15) ? loss_term(g, s) : NULL;
	g->c->groups = 1 + (other != NULL);
	gen_step(g);
	minimize(g, s, loss, other);
}

/* -- mesh and arrows -- */

static bool is_loop(const struct gen *g, dimid d)
{
	for (int i = 0; i < g->nchain; i++)
		if (d == g->chain[i])
			return true;
	return d == g->loop[0] || d == g->loop[1];
}

/* What people write: dims that belong together. */
static void usual_dims(struct gen *g, struct dimlist *l)
{
	const dimid usual[][3] = {
		{ g->batch, NODIM, NODIM }, { g->seq, NODIM, NODIM }, { g->seq, g->ctx, NODIM }, { g->ctx, NODIM, NODIM },
		{ g->heads, g->group, g->vocab }, { g->feat[3], g->pick, NODIM }, { g->feat[0], g->feat[1], g->feat[2] },
	};
	const dimid *d = usual[roll(g, LEN(usual))];

	for (int i = 0; i < 3; i++)
		if (d[i] != NODIM)
			l->d[l->n++] = d[i];
}

static bool is_turned(const struct gen *g)
{
	for (uint32_t i = 0; i < g->m->arrows.n; i++)
		if (g->m->arrows.at[i].zigzag)
			return true;
	return false;
}

/* Zigzag order: an even number of equal chunks, one order for a sequence and what it is renamed to. */
static bool may_turn(struct gen *g, const struct arrow *a)
{
	int64_t k = 1;

	for (int i = 0; i < a->naxes; i++)
		k *= g->m->mesh.at[a->axes[i]].size;
	for (int i = 0; i < a->dims.n; i++)
		if (a->dims.d[i] != g->seq && a->dims.d[i] != g->ctx)
			return false;
	return a->dims.n && dim_size(g->m, g->seq) % (2 * k) == 0 && chance(g, 90) && !is_turned(g);
}

static void random_dims(struct gen *g, struct dimlist *l)
{
	int n = 1 + (int)roll(g, 4);

	for (int i = 0; i < n; i++) {
		dimid d = chance(g, 25) ? g->batch : (dimid)roll(g, g->m->dims.n);
		bool has = is_loop(g, d);

		for (int k = 0; k < l->n; k++)
			has |= l->d[k] == d;
		if (!has)
			l->d[l->n++] = d;
	}
}

static void add_arrow(struct gen *g)
{
	struct module *m = g->m;
	struct arrow a = { .what = W_DIMS };
	uint32_t base = m->pipe.user == 0, n = m->mesh.n - base; /* the pipeline's is not for others */
	uint32_t first = roll(g, n);

	a.axes[a.naxes++] = (uint8_t)(base + first);
	if (n > 1 && chance(g, 25))
		a.axes[a.naxes++] = (uint8_t)(base + (first + 1 + roll(g, n - 1)) % n);
	if (chance(g, 30)) {
		static const enum arrow_what kinds[] = { W_PARAMS, W_GRADS, W_OPTIMIZER, W_OPTIMIZER };

		a.what = kinds[roll(g, 4)];
		a.gather_step = a.what == W_PARAMS && chance(g, 40);
		PUSH(g->mem, &m->arrows, a);
		return;
	}
	if (chance(g, 40)) {
		usual_dims(g, &a.dims);
		a.zigzag = may_turn(g, &a);
	}
	else
		random_dims(g, &a.dims);
	if (g->names.n && chance(g, 30)) {
		a.sel = g->names.at[roll(g, g->names.n)];
		a.none = chance(g, 25);
		if (chance(g, 30)) {
			a.sel = arena_printf(g->mem, "%.1s*", strrchr(a.sel, '.') ? strrchr(a.sel, '.') + 1 : a.sel);
			a.glob = true;
		}
	} else if (g->nparam && chance(g, 15)) {
		a.sel = arena_printf(g->mem, "p%d", (int)roll(g, (uint32_t)g->nparam));
	}
	if (a.none)
		a.dims.n = a.zigzag = 0;
	if (a.dims.n || a.none)
		PUSH(g->mem, &m->arrows, a);
}

static void set_hardware(struct gen *g)
{
	static const struct hardware kinds[] = {
		{ .name = "cpu", .fp32 = 1e11, .bf16 = 2e11, .memory = 1e10, .bandwidth = 1e10, .nlink = 1,
		  .link = { { "shm", 0, 5e9, 1e-9 } } },
		{ .name = "h100", .fp32 = 6e14, .bf16 = 6e14, .memory = 8e10, .bandwidth = 3.35e12, .nlink = 2,
		  .link = { { "nv", 4, 4.5e11, 1e-5 }, { "ib", 0, 5e10, 3e-5 } } },
		{ .name = "free", .fp32 = 1e6, .bf16 = 1e6, .memory = 8e10, .bandwidth = 1e6, .nlink = 1,
		  .link = { { "nv", 0, 1e15, 0 } } },
		{ .name = "far", .fp32 = 1e15, .bf16 = 1e15, .memory = 8e10, .bandwidth = 1e15, .nlink = 1,
		  .link = { { "nv", 0, 1e3, 0 } } },
	};

	if (chance(g, 90))
		g->m->hw = kinds[roll(g, LEN(kinds))];
}

static void set_recompute(struct gen *g)
{
	struct recompute *r = &g->m->recompute;

	if (!gen_step(g) || !chance(g, 45))
		return;
	r->how = (enum recompute_how)(1 + roll(g, NRECOMPUTE - 1));
	if (r->how == RECOMPUTE_AUTO && chance(g, 70))
		r->memory = g->m->workspace + (1 + (int64_t)roll(g, 64)) * 512;
	if (r->how != RECOMPUTE_AUTO && chance(g, 40))
		r->first = 1 + (int64_t)roll(g, 3);
	for (int i = 0, n = g->names.n ? (int)roll(g, 3) : 0; i < n; i++) {
		const char *name = g->names.at[roll(g, g->names.n)];
		bool glob = chance(g, 30);
		struct keep_name k = { glob ? arena_printf(g->mem, "%.1s*", name) : name, glob, { 0 } };

		PUSH(g->mem, &r->keep, k);
	}
}

/* Any named value: whoever compiles it leaves out what can't be cut. */
static void set_chunk(struct gen *g)
{
	if (!gen_step(g) || !g->names.n || !chance(g, 50))
		return;
	struct chunk c = { .sel = g->names.at[roll(g, g->names.n)], .dim = NODIM };

	c.parts = chance(g, 60) ? 2 + (int64_t)roll(g, 3) : 0;
	c.rows = c.parts ? 0 : 1 + (int64_t)roll(g, 6);
	PUSH(g->mem, &g->m->chunks, c);
}

void gen_mesh(struct gen *g)
{
	static const char *const names[] = { "dp", "tp", "cp", "ep", "ax", "bx" };
	static const int sizes[] = { 1, 2, 2, 2, 2, 3, 4, 4, 5, 6, 8 };
	struct module *m = g->m;
	int ranks = 1, most;

	gen_step(g);
	set_hardware(g);
	bool many = chance(g, 4); /* too many to run, but they must compile */
	most = many ? 1 << 20 : chance(g, 30) ? 16 : 8;
	bool before = g->c->staged && g->nchain && chance(g, 60);
	if (before && gen_step(g))
		ranks = gen_pipeline(g);
	for (int i = 0; i < (many ? 6 : 4); i++) {
		bool made = gen_step(g);
		int size = many ? 1 + (int)roll(g, 16) : sizes[roll(g, LEN(sizes))];

		if (!chance(g, i ? 55 : 95) || ranks * size > most || m->mesh.n == MAX_MESH)
			continue;
		struct user_axis u = { names[i], made ? size : 1, { 0 } };
		struct axis a = { names[i], u.size, (int)m->mesh.n, false };
		PUSH(g->mem, &m->mesh, u);
		PUSH(g->mem, &m->axes, a);
		ranks *= size;
	}
	for (int i = 0, n = m->mesh.n > (m->pipe.user == 0) ? 2 + (int)roll(g, 6) : 0; i < n; i++)
		if (gen_step(g))
			add_arrow(g);
	set_recompute(g);
	if (g->c->staged && g->nchain && !before && gen_step(g))
		gen_pipeline(g);
	set_chunk(g);
}
