/* Calls: arguments to places, defs expanded where they are called. */
#include "frontend/lower.h"

enum { MOST_DEEP = 64, MOST_CALLS = 20000, MOST_FORMALS = 32 };

struct val call_bad(void)
{
	return (struct val){ .kind = V_BAD };
}

static int count(const struct node *list)
{
	int n = 0;

	for (; list; list = list->next)
		n++;
	return n;
}

/* -- calls of built-in functions -- */

struct slot {
	const char *name;
	size_t len;
	bool optional, rest;
};

static int slots_of(const struct builtin *f, struct slot *s)
{
	int n = 0;

	for (const char *p = f->args; *p; n++) {
		s[n] = (struct slot){ p, strcspn(p, " ?*"), false, false };
		p += s[n].len;
		s[n].optional = *p == '?' || *p == '*';
		s[n].rest = *p == '*';
		p += strcspn(p, " ");
		p += *p == ' ';
	}
	return n;
}

static const char *optional_text(struct ctx *c, const struct slot *s, int n)
{
	struct text t = { .mem = c->mem };

	for (int i = 0; i < n; i++)
		if (s[i].optional && !s[i].rest)
			text_put(&t, "%s%.*s", t.n ? ", " : "", (int)s[i].len, s[i].name);
	return t.s;
}

static bool bind_key(struct call *k, const struct node *arg, const struct slot *s, int n)
{
	struct ctx *c = k->c;

	for (int i = 0; i < n; i++) {
		if (s[i].rest || strlen(arg->name) != s[i].len ||
		    strncmp(arg->name, s[i].name, s[i].len) != 0)
			continue;
		if (k->arg[i]) {
			fail(c, arg->at, "'%s' is given twice", arg->name);
			return false;
		}
		k->arg[i] = arg->a;
		return true;
	}
	fail(c, arg->name_at, "%s has no argument '%s'", k->f->name, arg->name);
	const char *takes = optional_text(c, s, n);
	if (takes)
		hint(c, "it takes %s", takes);
	else
		hint(c, "it is %s", builtin_usage(c, k->f->name));
	return false;
}

static bool bind_place(struct call *k, const struct node *arg, const struct slot *s, int n, int *at)
{
	while (*at < n && !s[*at].rest && k->arg[*at])
		++*at;
	if (*at < n && s[*at].rest && k->nrest < MAX_DIMS) {
		k->rest[k->nrest++] = arg;
		return true;
	}
	if (*at < n && !s[*at].rest) {
		k->arg[(*at)++] = arg;
		return true;
	}
	fail(k->c, arg->at, "%s takes at most %d arguments", k->f->name, n);
	hint(k->c, "it is %s", builtin_usage(k->c, k->f->name));
	return false;
}

static struct val call_builtin(struct call *k)
{
	struct ctx *c = k->c;
	struct slot s[16];
	int n = slots_of(k->f, s), at = 0;

	if (k->n->label)
		return fail(c, k->n->label_at, "'%s' is a function and takes no label", k->f->name);
	if (k->f->make == make_scatter)
		return make_scatter(k);
	for (const struct node *arg = k->n->list; arg; arg = arg->next) {
		bool good = false;

		if (arg->kind == N_WORD)
			fail(c, arg->at, "'%s' is no value", arg->name);
		else if (arg->kind == N_KEY)
			good = bind_key(k, arg, s, n);
		else
			good = bind_place(k, arg, s, n, &at);
		if (!good)
			return call_bad();
	}
	for (int i = 0; i < n; i++)
		if (!s[i].optional && !k->arg[i]) {
			fail(c, k->n->at, "%s needs '%.*s'", k->f->name, (int)s[i].len, s[i].name);
			hint(c, "it is %s", builtin_usage(c, k->f->name));
			return call_bad();
		}
	return k->f->make(k);
}

struct val arg_open(struct call *k, int i)
{
	return eval(k->c, k->arg[i], k->w);
}

struct val arg_value(struct call *k, int i)
{
	return eval(k->c, k->arg[i], NULL);
}

static dimid dim_argument(struct call *k, const struct node *n, int place)
{
	struct ctx *c = k->c;
	struct sym *s = n->kind == N_NAME ? find(c, n->name) : NULL;

	if (s && s->val.kind == V_DIM)
		return s->val.d;
	if (s && s->val.kind == V_BAD && (s->kind == S_FORMAL || s->kind == S_DIM))
		return NODIM;
	if (n->kind == N_NAME && !s)
		return find_dim_name(c, n->name, n->at);
	if (!s) {
		fail(c, n->at, "argument %d of %s must be a dim", place, k->f->name);
		return NODIM;
	}
	fail(c, n->at, "argument %d of %s must be a dim; '%s' is %s", place, k->f->name, n->name,
	     sym_kind_name(s));
	if (s->kind == S_PARAM && s->buf && s->buf->nd)
		hint(c, "%s(%s, %s) * %s", k->f->name, node_text(c->mem, c->src, k->arg[0]),
		     c->m->dims.at[s->buf->d[s->buf->nd - 1]].name, n->name);
	return NODIM;
}

dimid arg_dim(struct call *k, int i)
{
	return dim_argument(k, k->arg[i], i + 1);
}

bool arg_none(struct call *k, int i)
{
	struct val v;

	if (!k->arg[i])
		return true;
	if (k->arg[i]->kind != N_NAME)
		return false;
	struct sym *s = find(k->c, k->arg[i]->name);
	if (!s)
		return streq(k->arg[i]->name, "none");
	v = s->val;
	return s->kind == S_FORMAL && v.kind == V_NONE;
}

bool arg_number(struct call *k, int i, double *x)
{
	if (!k->arg[i])
		return true;
	return eval_number(k->c, k->arg[i], "this argument", x);
}

int arg_rest(struct call *k, dimid *d)
{
	int places = 0;

	while (k->arg[places])
		places++;
	for (int i = 0; i < k->nrest; i++) {
		d[i] = dim_argument(k, k->rest[i], places + i + 1);
		if (d[i] == NODIM)
			return -1;
		for (int j = 0; j < i; j++)
			if (d[j] == d[i]) {
				fail(k->c, k->rest[i]->at, "'%s' stands twice here",
				     k->c->m->dims.at[d[i]].name);
				return -1;
			}
	}
	return k->nrest;
}

/* -- calls of defs -- */

static bool bind_formal(struct ctx *c, const struct node *n, const struct node *def,
			const struct node *arg, int *place, const struct node **given)
{
	int i = 0;

	if (arg->kind == N_KEY) {
		for (const struct node *f = def->list; f; f = f->next, i++)
			if (streq(f->name, arg->name)) {
				if (given[i]) {
					fail(c, arg->at, "'%s' is given twice", arg->name);
					return false;
				}
				given[i] = arg->a;
				return true;
			}
		fail(c, arg->name_at, "%s has no argument '%s'", n->name, arg->name);
		hint(c, "it is %s", builtin_usage(c, n->name));
		return false;
	}
	if (*place >= count(def->list)) {
		fail(c, arg->at, "%s takes at most %d arguments", n->name, count(def->list));
		hint(c, "it is %s", builtin_usage(c, n->name));
		return false;
	}
	given[(*place)++] = arg;
	return true;
}

/* Arguments are evaluated where the call stands, defaults where the def does. */
static bool enter(struct ctx *c, const struct node *n, struct sym *def, const struct node **given)
{
	struct val vals[MOST_FORMALS];
	bool good = true;
	int i = 0;

	for (const struct node *f = def->def->list; f; f = f->next, i++) {
		if (!given[i] && !f->a) {
			fail(c, n->at, "%s needs '%s'", n->name, f->name);
			hint(c, "it is %s", builtin_usage(c, n->name));
			return false;
		}
		vals[i] = given[i] ? eval(c, given[i], NULL) : call_bad();
		good &= !given[i] || vals[i].kind != V_BAD;
	}
	if (!good)
		return false;
	scope_push(c, c->file);
	c->scope->call = true;
	c->scope->limit = def->order;
	i = 0;
	for (const struct node *f = def->def->list; f; f = f->next, i++) {
		struct val v = given[i] ? vals[i] : eval(c, f->a, NULL);

		declare(c, c->scope, S_FORMAL, f->name, f->at)->val = v;
	}
	return true;
}

static int expand(struct ctx *c, const struct node *n, struct sym *def, const struct node **given,
		  struct val *out, int most)
{
	struct ctx saved = *c;
	int got = -1;

	if (enter(c, n, def, given)) {
		c->prefix = arena_printf(c->mem, "%s%s%s%s.", c->prefix, n->name, n->label ? "." : "",
					 n->label ? n->label : "");
		c->call = n;
		c->calls++;
		c->ret = out;
		c->nret = most;
		c->returned = false;
		c->loop = NULL;
		lower_statements(c, def->def->body);
		if (!c->returned)
			fail(c, def->def->name_at, "'%s' returns nothing", n->name);
		else
			got = c->nret;
	}
	c->scope = saved.scope;
	c->prefix = saved.prefix;
	c->statement = saved.statement;
	c->left = saved.left;
	c->declared = saved.declared;
	c->call = saved.call;
	c->calls = saved.calls;
	c->ret = saved.ret;
	c->nret = saved.nret;
	c->returned = saved.returned;
	c->loop = saved.loop;
	return got;
}

static int call_def(struct ctx *c, const struct node *n, struct sym *def, struct val *out, int most)
{
	const struct node *given[MOST_FORMALS] = { NULL };
	int place = 0;

	def->used = true;
	if (c->full || def->val.kind == V_BAD)
		return -1;
	if (c->calls >= MOST_DEEP) {
		fail(c, n->at, "calls go more than %d deep", MOST_DEEP);
		return -1;
	}
	if (++c->ncalls > MOST_CALLS) {
		fail(c, n->at, "this model makes more than %d calls", MOST_CALLS);
		c->full = true;
		return -1;
	}
	if (!fits(c, 0, NULL, n->at))
		return -1;
	for (const struct node *arg = n->list; arg; arg = arg->next) {
		if (arg->kind == N_WORD) {
			fail(c, arg->at, "'%s' is no value", arg->name);
			return -1;
		}
		if (!bind_formal(c, n, def->def, arg, &place, given))
			return -1;
	}
	return expand(c, n, def, given, out, most);
}

static struct val no_function(struct ctx *c, const struct node *n)
{
	const struct sym *hidden = c->found_hidden;
	struct near near = { .name = n->name };

	fail(c, n->name_at, "there is no function '%s'", n->name);
	if (hidden && hidden->kind == S_DEF) {
		hint(c, "a def can call only what stands above it; '%s' is at %s", n->name,
		     line_of(c, hidden->at, n->at));
		return call_bad();
	}
	for (const struct node *d = c->items; d; d = d->next)
		if (d->kind == N_DEF && streq(d->name, n->name)) {
			hint(c, "it is defined below, at %s; a def stands above its calls",
			     line_of(c, d->name_at, n->at));
			return call_bad();
		}
	offer_builtins(&near);
	for (uint32_t i = 0; i < c->file->syms.n; i++)
		if (c->file->syms.at[i]->kind == S_DEF)
			near_offer(&near, c->file->syms.at[i]->name);
	if (near.best)
		hint(c, "did you mean %s?", builtin_usage(c, near.best));
	return call_bad();
}

struct val eval_call(struct ctx *c, const struct node *n, const struct want *w)
{
	struct sym *s = find(c, n->name);
	struct val out[MAX_DIMS];

	if (s && s->kind == S_DEF) {
		int got = call_def(c, n, s, out, MAX_DIMS);

		if (got > 1)
			return fail(c, n->at, "%s returns %d values; take them as a, b = %s(…)",
				    n->name, got, n->name);
		return got == 1 ? out[0] : call_bad();
	}
	struct call k = { .c = c, .n = n, .w = w, .f = find_builtin(n->name, count(n->list)) };
	if (k.f)
		return call_builtin(&k);
	if (s && (s->val.kind != V_BAD || s->buf))
		return fail(c, n->at, "'%s' is %s, not a function", n->name, sym_kind_name(s));
	return s ? call_bad() : no_function(c, n);
}

int eval_call_many(struct ctx *c, const struct node *n, struct val *out, int most)
{
	struct sym *s = n->kind == N_CALL ? find(c, n->name) : NULL;

	if (s && s->kind == S_DEF)
		return call_def(c, n, s, out, most);
	out[0] = eval(c, n, NULL);
	return out[0].kind == V_BAD ? -1 : 1;
}

/* "norm(x, e, eps)", for messages: of a def too. */
const char *builtin_usage(struct ctx *c, const char *name)
{
	struct text t = { .mem = c->mem };
	const struct builtin *f = find_builtin(name, 1);
	struct slot s[16];

	text_put(&t, "%s(", name);
	if (f) {
		int n = slots_of(f, s);

		for (int i = 0; i < n; i++)
			text_put(&t, "%s%.*s%s", i ? ", " : "", (int)s[i].len, s[i].name,
				 s[i].rest ? "…" : "");
	} else {
		const struct sym *def = find(c, name);

		for (const struct node *a = def && def->def ? def->def->list : NULL; a; a = a->next)
			text_put(&t, "%s%s", a == def->def->list ? "" : ", ", a->name);
	}
	text_put(&t, ")");
	return t.s;
}
