/* Random kernels against the reference evaluator: see test_codegen.h. FUZZ=1000 FROM=0 for more. */
#include "tests/unit/test_codegen.h"

struct rnd {
	uint64_t x;
};

static int below(struct rnd *r, int n)
{
	r->x = r->x * 6364136223846793005ull + 1442695040888963407ull;
	return (int)((r->x >> 33) % (uint64_t)n);
}

struct made {
	int id;
	char dims[8]; /* letters, in order */
};

struct fuzz {
	struct rnd r;
	struct arena *mem;
	struct script s;
	const char *on[128]; /* by letter: "@p" or "" */
	struct made v[64];
	int n;
};

static const char *dims_text(const struct fuzz *f, const char *dims)
{
	struct text t = { .mem = f->mem };

	text_put(&t, "f32[");
	for (const char *c = dims; *c; c++)
		text_put(&t, "%s%c%s", c == dims ? "" : ", ", *c, f->on[(int)*c]);
	text_put(&t, "]");
	return t.s;
}

static void shuffle(struct rnd *r, char *s)
{
	for (int i = (int)strlen(s) - 1; i > 0; i--) {
		int j = below(r, i + 1);
		char c = s[i];

		s[i] = s[j];
		s[j] = c;
	}
}

/* whole: the first has all dims. */
static void read_inputs(struct fuzz *f, bool whole)
{
	static const char *const dims[] = { "abcd", "abc", "cd" };

	for (; f->n < 3; f->n++) {
		struct made *v = &f->v[f->n];

		strcpy(v->dims, dims[f->n]);
		shuffle(&f->r, v->dims);
		if (f->n || !whole)
			v->dims[1 + below(&f->r, (int)strlen(v->dims))] = 0;
		text_put(&f->s.buffers, "buffer @\"x%d\" param %s init=normal(1)\n", f->n, dims_text(f, v->dims));
		v->id = say(&f->s, false, dims_text(f, v->dims), "read {buf=\"x%d\"}", f->n);
	}
}

static void random_map(struct fuzz *f, const struct made *a, const struct made *b, struct made *c, bool keep)
{
	static const char *const ones[] = { "neg", "tanh", "sigmoid", "silu", "abs", "relu", "gelu" };
	static const char *const twos[] = { "add", "sub", "mul", "min", "max" };

	if (*b->dims && below(&f->r, 7) < 3) {
		c->id = say(&f->s, keep, dims_text(f, c->dims), "%s %%%d", ones[below(&f->r, LEN(ones))], b->id);
		return;
	}
	for (const char *d = a->dims; *d; d++)
		if (!strchr(c->dims, *d))
			strncat(c->dims, d, 1);
	if (below(&f->r, 3) == 0)
		shuffle(&f->r, c->dims);
	c->id = say(&f->s, keep, dims_text(f, c->dims), "%s %%%d, %%%d", twos[below(&f->r, LEN(twos))], a->id, b->id);
}

/* b has dim d. */
static void random_view(struct fuzz *f, const struct made *b, struct made *c, bool keep)
{
	struct rnd *r = &f->r;

	if (!strchr(b->dims, 'b') || below(r, 3)) {
		bool slice = below(r, 2), roll = below(r, 2);

		c->id = say(&f->s, keep, dims_text(f, c->dims), roll ? "roll %%%d {dim=d, shift=%d}" :
			    slice ? "slice %%%d {dim=d, to=d, start=%d, stride=2}" : "pad %%%d {dim=d, to=d, start=%d, stride=2}",
			    b->id, below(r, 5) - 2);
		return;
	}
	int i = say(&f->s, false, "int[d]", "index {dim=d}"), k = say(&f->s, false, "int[]", "const {value=%d}", below(r, 4) - 1);
	int row = say(&f->s, false, "int[d]", below(r, 2) ? "add %%%d, %%%d" : "sub %%%d, %%%d", i, k);
	bool back = below(r, 2);

	if (!back)
		memmove(strchr(c->dims, 'b'), strchr(c->dims, 'b') + 1, strlen(strchr(c->dims, 'b')));
	c->id = say(&f->s, keep, dims_text(f, c->dims), back ? "scatter_add %%%d, %%%d {dims=(b)}" : "lookup %%%d, %%%d {dims=(b)}",
		    b->id, row);
}

static void random_numbers(struct fuzz *f, const struct made *b, struct made *c, bool keep)
{
	struct text list = { .mem = f->mem };

	for (const char *d = b->dims; *d; d++)
		text_put(&list, "%s%c", d == b->dims ? "" : ", ", *d);
	int u = say(&f->s, false, dims_text(f, c->dims), "rng {key=\"k%d\", dims=(%s)}", f->n, list.s);

	c->id = say(&f->s, keep, dims_text(f, c->dims), "mul %%%d, %%%d", b->id, u);
}

/* Loses one dim or more; what is pending then is resolved. */
static void random_sum(struct fuzz *f, const struct made *b, struct made *c, bool keep)
{
	int n = (int)strlen(b->dims), lost = below(&f->r, n);
	bool max = below(&f->r, 4) == 0, p = false, q = false;
	char *to = c->dims;

	for (int i = 0; i < n; i++) {
		const char *axis = f->on[(int)b->dims[i]];

		if (i != lost && below(&f->r, 2)) {
			*to++ = b->dims[i];
			continue;
		}
		p |= *axis && axis[1] == 'p';
		q |= *axis && axis[1] == 'q';
	}
	*to = 0;
	const char *type = dims_text(f, c->dims), *owed = p && q ? "p.q" : p ? "p" : q ? "q" : "";

	c->id = say(&f->s, keep && !*owed, *owed ? SAY(f->mem, "%s%c%s", type, max ? '^' : '+', owed) : type, "%s %%%d",
		    max ? "rmax" : "sum", b->id);
	if (*owed)
		c->id = say(&f->s, keep, type, "all_reduce %%%d {axes=(%s)%s}", c->id, owed, max ? ", max=1" : "");
}

/* Has all that is kept the dims of the first, then results of maps may lie on operands. */
static void widen(struct fuzz *f, struct made *c)
{
	const struct made *first = &f->v[0];

	for (const char *d = c->dims; *d; d++)
		if (!strchr(first->dims, *d))
			return;
	c->id = say(&f->s, true, dims_text(f, first->dims), "add %%%d, %%%d", first->id, c->id);
	strcpy(c->dims, first->dims);
}

/* Tensors of dims a b c d in any order, on one rank or six. maps: nothing else. */
static void random_kernel(uint64_t seed, bool maps)
{
	struct fuzz f = { .r = { seed * 77 + 5 }, .mem = arena_new() };
	bool split = below(&f.r, 2);

	f.on['a'] = split ? "@p" : "";
	f.on['b'] = f.on['d'] = "";
	f.on['c'] = split ? "@q" : "";
	const char *dims = SAY(f.mem, "%sdim a=%d\ndim b=%d\ndim c=%d\ndim d=%d\n", split ? "mesh p=2\nmesh q=3\n" : "",
			       1 + below(&f.r, 6), 1 + below(&f.r, 4), 1 + below(&f.r, 40), 1 + below(&f.r, 5));
	f.s = script_new(f.mem, dims, "", 0);
	read_inputs(&f, maps);
	for (int ops = 4 + below(&f.r, 14); ops > 0; ops--, f.n++) {
		const struct made *a = &f.v[below(&f.r, f.n)], *b = &f.v[f.n - 1 - below(&f.r, f.n < 4 ? f.n : 4)];
		struct made *c = &f.v[f.n];
		bool keep = below(&f.r, 3) == 0 || ops == 1;
		int what = below(&f.r, 10);

		strcpy(c->dims, b->dims);
		if (maps || what < 6 || !*b->dims)
			random_map(&f, a, b, c, keep && !maps);
		else if (what < 8 && strchr(b->dims, 'd'))
			random_view(&f, b, c, keep);
		else if (what < 8)
			random_numbers(&f, b, c, keep);
		else
			random_sum(&f, b, c, keep);
		if (maps && keep)
			widen(&f, c);
	}
	check_script("micro=1", &f.s, -1, 1e-4);
	arena_free(f.mem);
}

static void test_fuzz(void **state)
{
	const char *n = getenv("FUZZ"), *from = getenv("FROM");
	uint64_t first = from ? (uint64_t)atoll(from) : 0;

	(void)state;
	for (uint64_t i = first; i < first + (uint64_t)(n ? atoll(n) : 20); i++) {
		if (n)
			fprintf(stderr, "seed %d\n", (int)i);
		random_kernel(i, false);
		random_kernel(i, true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fuzz),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
