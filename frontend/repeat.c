/* repeat: a rolled loop whose body sees its arguments only, and the walk over statements. */
#include "frontend/lower.h"

struct carried {
	struct sym *sym;
	struct val before;
};

struct carries {
	VEC(struct carried) at;
	VEC(struct value *) init;
};

/* What the body binds and the outside has a value for is carried. */
static void find_carried(struct ctx *c, const struct node *body, struct carries *k)
{
	for (const struct node *n = body; n; n = n->next) {
		if (n->kind == N_REPEAT)
			find_carried(c, n->body, k);
		if (n->kind != N_ASSIGN)
			continue;
		for (const struct node *t = n->list; t; t = t->next) {
			struct sym *s = find(c, t->name);
			bool known = !s || (s->kind != S_VALUE && s->kind != S_FORMAL) ||
				     (s->val.kind != V_TENSOR && s->val.kind != V_NUMBER);

			for (uint32_t i = 0; !known && i < k->at.n; i++)
				known = k->at.at[i].sym == s;
			if (!known)
				PUSH(c->mem, &k->at, ((struct carried){ s, s->val }));
		}
	}
}

static void enter(struct ctx *c, const struct node *n, dimid d, struct frame *f, struct carries *k)
{
	struct builder *b = here(c, n->at);

	for (uint32_t i = 0; i < k->at.n; i++) {
		struct value *v = value_of(c, k->at.at[i].before, n->at);

		PUSH(c->mem, &k->init, v);
	}
	f->op = op_new(b, OP_REPEAT, k->init.n, k->init.at, k->init.n);
	f->op->body = block_new(c->m, f->op);
	SET(f->op, dim, d);
	SET(f->op, ncarry, k->init.n);
	f->up = c->frame;
	f->dim = d;
	f->b = *b;
	f->b.block = f->op->body;
	f->b.before = NULL;
	b->before = f->op;
	for (uint32_t i = 0; i < k->init.n; i++) {
		struct value *v = k->init.at[i], *arg = block_arg(&f->b, f->op->body, v->dt, v->nd, v->d);

		arg->name = k->at.at[i].sym->path;
		k->at.at[i].sym->val = tensor(arg);
	}
	c->frame = f;
}

static void add_operands(struct ctx *c, struct frame *f)
{
	for (uint32_t i = 0; i < f->with.n; i++)
		op_add_in(c->m, f->op, f->with.at[i]);
	for (uint32_t i = 0; i < f->over.n; i++)
		op_add_in(c->m, f->op, f->over.at[i]);
}

/* The arguments of the body in the order of the operands. */
static void order_arguments(struct ctx *c, struct frame *f, uint32_t ncarry)
{
	struct block *body = f->op->body;
	struct value **at = NEWN(c->mem, struct value *, body->args.n + 1);
	uint32_t n = 0;

	for (uint32_t i = 0; i < ncarry; i++)
		at[n++] = body->args.at[i];
	for (uint32_t i = 0; i < f->with_arg.n; i++)
		at[n++] = f->with_arg.at[i];
	for (uint32_t i = 0; i < f->over_arg.n; i++)
		at[n++] = f->over_arg.at[i];
	for (uint32_t i = 0; i < n; i++)
		at[i]->no = i;
	body->args.at = at;
	body->args.n = n;
}

static void leave(struct ctx *c, struct frame *f, struct carries *k)
{
	bool good = true;

	for (uint32_t i = 0; i < k->at.n; i++) {
		struct val now = k->at.at[i].sym->val;
		struct value *init = k->init.at[i];

		good &= now.kind != V_BAD;
		if (now.kind == V_BAD)
			continue;
		struct value *v = value_of(c, now, f->op->span);
		if (v->dt != init->dt)
			v = b_cast(&f->b, v, init->dt);
		if (memcmp(v->d, init->d, sizeof *v->d * v->nd) != 0)
			v = copy_of(c, v, v->span, init->nd, init->d).v;
		PUSH(c->mem, &f->op->body->yields, v);
	}
	c->frame = f->up;
	c->frame->b.before = NULL;
	SET(f->op, nwith, f->with.n);
	add_operands(c, f);
	order_arguments(c, f, k->at.n);
	for (uint32_t i = 0; i < k->at.n; i++) {
		struct sym *s = k->at.at[i].sym;
		struct value *v = k->init.at[i];
		struct value *out = op_type(&c->frame->b, f->op, i, v->dt, v->nd, v->d);

		out->name = s->path;
		out->span = s->at;
		s->val = good ? tensor(out) : call_bad();
	}
	leave_stacked(c, f);
}

static bool may_repeat(struct ctx *c, const struct node *n, dimid d)
{
	int depth = 0;

	for (const struct frame *f = c->frame; f->up; f = f->up, depth++)
		if (f->dim == d) {
			fail(c, n->name_at, "'%s' is being repeated already", n->name);
			return false;
		}
	if (depth < MAX_DIMS)
		return true;
	fail(c, n->name_at, "repeats go more than %d deep", MAX_DIMS);
	return false;
}

void lower_repeat(struct ctx *c, const struct node *n)
{
	dimid d = find_dim_name(c, n->name, n->name_at);
	struct frame f = { .op = NULL };
	struct carries k = { .at.n = 0 };
	struct scope *outer = c->scope;
	const char *prefix = c->prefix;
	const struct node *loop = c->loop;

	if (d == NODIM || !may_repeat(c, n, d))
		return;
	PUSH(c->mem, &c->repeated, d);
	find_carried(c, n->body, &k);
	for (uint32_t i = 0; i < k.at.n; i++)
		if (!k.at.at[i].sym->path)
			k.at.at[i].sym->path = arena_printf(c->mem, "%s%s", prefix, k.at.at[i].sym->name);
	enter(c, n, d, &f, &k);
	c->prefix = arena_printf(c->mem, "%s%s.", prefix, c->m->dims.at[d].name);
	c->loop = n;
	scope_push(c, outer)->repeat = n;
	lower_statements(c, n->body);
	for (uint32_t i = 0; i < c->scope->syms.n; i++) {
		c->scope->syms.at[i]->def = n;
		PUSH(c->mem, &c->dead, c->scope->syms.at[i]);
	}
	c->scope = outer;
	c->prefix = prefix;
	c->loop = loop;
	leave(c, &f, &k);
}

static void run_return(struct ctx *c, const struct node *n)
{
	int i = 0;

	if (!c->call || c->loop) {
		fail(c, n->at, c->loop ? "return can't leave a repeat" : "return stands outside a def");
		return;
	}
	c->left = NULL;
	c->declared = false;
	c->statement = arena_printf(c->mem, "%sreturn", c->prefix);
	for (const struct node *e = n->list; e; e = e->next) {
		if (i == MAX_DIMS) {
			fail(c, e->at, "a def returns at most %d values", MAX_DIMS);
			break;
		}
		struct val v = eval(c, e, NULL);

		c->ret[i++] = v;
	}
	c->nret = i;
	c->returned = true;
	if (n->next)
		fail(c, n->next->at, "nothing after 'return' is computed");
}

static bool file_level_only(struct ctx *c, const struct node *n)
{
	if (c->scope == c->file)
		return true;
	fail(c, n->at, "'metric' stands at file level only");
	return false;
}

static void run_statement(struct ctx *c, const struct node *n)
{
	switch (n->kind) {
	case N_DIM: lower_dims(c, n); break;
	case N_INPUT: lower_input(c, n); break;
	case N_PARAM: case N_STATE: lower_param(c, n); break;
	case N_UPDATE: lower_update(c, n); break;
	case N_DEF: lower_def(c, n); break;
	case N_ASSIGN: lower_assign(c, n); break;
	case N_REPEAT: lower_repeat(c, n); break;
	case N_RETURN: run_return(c, n); break;
	case N_MINIMIZE: PUSH(c->mem, &c->minimize, n); break; /* lowered last: then all params are known */
	case N_METRIC:
		if (file_level_only(c, n))
			lower_metric(c, n);
		break;
	case N_PLAN: PUSH(c->mem, &c->plans, n); break;
	case N_HARDWARE: PUSH(c->mem, &c->hardware, n); break;
	case N_CHECKPOINT: PUSH(c->mem, &c->checkpoints, n); break;
	default: break;
	}
}

void lower_statements(struct ctx *c, const struct node *list)
{
	for (const struct node *n = list; n && !c->full; n = n->next) {
		c->left = NULL;
		c->declared = false;
		run_statement(c, n);
	}
}
