/* Adafactor (Shazeer & Stern 2018, without momentum) against its formulas, for three steps: a vector,
 * a matrix, a tensor of three dims, params of a loop, of which each layer counts by itself; then the
 * runtime against the evaluator on meshes. */
#include "tests/unit/both.h"

static const char model[] =
	"dim b=4\ndim a=3\ndim c=2\ndim d=4\ndim l=2\n"
	"buffer @\"x\" input f32[b, d]\n"
	"buffer @\"v\" param f32[a] init=normal(1)\nbuffer @\"m\" param f32[a, d] init=normal(1)\n"
	"buffer @\"t\" param f32[c, a, d] init=normal(1)\nbuffer @\"lv\" param f32[l, d] init=normal(1)\n"
	"buffer @\"lm\" param f32[l, a, d] init=normal(1)\nbuffer @\"n\" param f32[] init=constant(0.5)\n"
	"forward:\n"
	"%0 = read {buf=\"x\"} : f32[b, d]\n%1 = read {buf=\"v\"} : f32[a]\n%2 = read {buf=\"m\"} : f32[a, d]\n"
	"%3 = read {buf=\"t\"} : f32[c, a, d]\n%4 = read {buf=\"lv\"} : f32[l, d]\n%5 = read {buf=\"lm\"} : f32[l, a, d]\n"
	"%6 = read {buf=\"n\"} : f32[]\n"
	"%10 = repeat %0, %4, %5 {dim=l, ncarry=1, nwith=0} : f32[b, d] {\n"
	"args %20: f32[b, d], %21: f32[d], %22: f32[a, d]\n%23 = einsum %20, %22 : f32[b, a]\n%24 = tanh %23 : f32[b, a]\n"
	"%25 = einsum %24, %22 : f32[b, d]\n%26 = mul %25, %21 : f32[b, d]\n%27 = add %20, %26 : f32[b, d]\n"
	"%28 = sin %27 : f32[b, d]\nyield %28\n}\n"
	"%30 = einsum %10, %2 : f32[b, a]\n%31 = mul %30, %1 : f32[b, a]\n%32 = einsum %31, %3 : f32[b, c, d]\n"
	"%33 = mul %32, %6 : f32[b, c, d]\n%34 = tanh %33 : f32[b, c, d]\n%35 = sum %34 : f32[]\nreport %35 {key=\"loss\"}\n"
	"%40 = const {value=0.05} : f32[]\n%41 = const {value=0.8} : f32[]\n%42 = const {value=1e-30} : f32[]\n"
	"%43 = const {value=0.7} : f32[]\n%44 = const {value=0.3} : f32[]\n"
	"minimize %35, %40, %41, %42, %43, %44 {buf=\"v\", opt=\"adafactor\", group=0}\n"
	"minimize %35, %40, %41, %42, %43, %44 {buf=\"m\", opt=\"adafactor\", group=0}\n"
	"minimize %35, %40, %41, %42, %43, %44 {buf=\"t\", opt=\"adafactor\", group=0}\n"
	"minimize %35, %40, %41, %42, %43, %44 {buf=\"lv\", opt=\"adafactor\", group=0}\n"
	"minimize %35, %40, %41, %42, %43, %44 {buf=\"lm\", opt=\"adafactor\", group=0}\n"
	"minimize %35, %40, %41, %42, %43, %44 {buf=\"n\", opt=\"adafactor\", group=0}\n";

/* A param: n tensors of k matrices of rows x cols, each tensor by itself; rows 0: not factored. */
struct param {
	const char *name;
	int n, k, rows, cols;
};

static const struct param params[] = {
	{ "v", 1, 1, 0, 3 }, { "m", 1, 1, 3, 4 }, { "t", 1, 2, 3, 4 }, { "lv", 2, 1, 0, 4 }, { "lm", 2, 1, 3, 4 },
	{ "n", 1, 1, 0, 1 },
};

/* One tensor: u of g, with the states r and c (or r alone), then the step. */
static void by_formula(const struct param *p, double beta, const double *g, double *r, double *c, double *x)
{
	double u[64], rms = 0;
	int count = p->k * (p->rows ? p->rows : 1) * p->cols;

	for (int k = 0; k < p->k; k++) {
		const double *gk = g + k * p->rows * p->cols;
		double *rk = r + k * p->rows, *ck = c + k * p->cols, all = 0;

		for (int j = 0; !p->rows && j < p->cols; j++) {
			r[j] = beta * r[j] + (1 - beta) * (g[j] * g[j] + 1e-30);
			u[j] = g[j] / sqrt(r[j]);
		}
		for (int i = 0; i < p->rows; i++) {
			double sum = 0;

			for (int j = 0; j < p->cols; j++)
				sum += gk[i * p->cols + j] * gk[i * p->cols + j] + 1e-30;
			rk[i] = beta * rk[i] + (1 - beta) * sum / p->cols;
			all += rk[i] / p->rows;
		}
		for (int j = 0; p->rows && j < p->cols; j++) {
			double sum = 0;

			for (int i = 0; i < p->rows; i++)
				sum += gk[i * p->cols + j] * gk[i * p->cols + j] + 1e-30;
			ck[j] = beta * ck[j] + (1 - beta) * sum / p->rows;
			for (int i = 0; i < p->rows; i++)
				u[(k * p->rows + i) * p->cols + j] = gk[i * p->cols + j] / sqrt(rk[i] * ck[j] / all);
		}
	}
	for (int i = 0; i < count; i++)
		rms += u[i] * u[i] / count;
	for (int i = 0; i < count; i++)
		x[i] -= 0.05 * u[i] / fmax(1, sqrt(rms) / 0.7);
}

static void near_to(struct eval *e, const char *buffer, const double *want, int64_t n)
{
	struct tensor *t = eval_get(e, buffer);

	assert_non_null(t);
	assert_int_equal(t->count, n);
	for (int64_t i = 0; i < n; i++)
		if (!(fabs(t->x[i] - want[i]) <= 1e-12 * (1 + fabs(want[i]))))
			fail_msg("%s[%d] is %.15g, not %.15g", buffer, (int)i, t->x[i], want[i]);
}

static void formulas(void **state)
{
	(void)state;
	struct both x = { .mem = arena_new() };
	struct module *m = both_parse(x.mem, &x.d, "precision=f32 micro=1 batch=b probes", model);
	double r[6][16] = { { 0 } }, c[6][16] = { { 0 } };
	const char *why = NULL;

	both_pass(&x, m, "simplify,differentiate,optimizer,simplify2");
	struct eval *e = eval_new(x.mem, m, 9);
	eval_init(e);
	eval_set(e, "x", eval_get(e, "x"));
	assert_null(find_buffer(m, "v:row"));
	assert_null(find_buffer(m, "m:v"));
	assert_int_equal(find_buffer(m, "t:row")->nd, 2);
	assert_int_equal(find_buffer(m, "lm:col")->nd, 2);
	for (int t = 1; t <= 3; t++) {
		double beta = 1 - pow(t, -0.8), norm = 0;
		struct tensor *want[6];

		for (int i = 0; i < 6; i++) { /* gradients of our own, by the probes */
			struct tensor *g = eval_get(e, arena_printf(x.mem, "%s:given", params[i].name));

			for (int64_t k = 0; k < g->count; k++) {
				g->x[k] = k == 1 ? 0 : cos((double)(k * 3 + i + t)) * (k == 0 ? 5 : 1);
				norm += g->x[k] * g->x[k];
			}
			eval_set(e, arena_printf(x.mem, "%s:given", params[i].name), g);
		}
		for (int i = 0; i < 6; i++) {
			const struct param *p = &params[i];
			struct tensor *g = eval_get(e, arena_printf(x.mem, "%s:given", p->name));
			int64_t one = g->count / p->n;

			want[i] = eval_get(e, p->name);
			for (int64_t k = 0; k < g->count; k++)
				g->x[k] *= fmin(1, 0.3 / (sqrt(norm) + 1e-6));
			for (int k = 0; k < p->n; k++)
				by_formula(p, beta, g->x + k * one, r[i] + k * (p->rows ? p->k * p->rows : p->cols),
					   c[i] + k * p->k * p->cols, want[i]->x + k * one);
		}
		if (!eval_step(e, t - 1, true, NULL, &why))
			fail_msg("%s", why);
		for (int i = 0; i < 6; i++) {
			const struct param *p = &params[i];

			near_to(e, p->name, want[i]->x, want[i]->count);
			near_to(e, arena_printf(x.mem, "%s:%s", p->name, p->rows ? "row" : "v"), r[i],
				p->n * (p->rows ? p->k * p->rows : p->cols));
			if (p->rows)
				near_to(e, arena_printf(x.mem, "%s:col", p->name), c[i], p->n * p->k * p->cols);
		}
	}
	arena_free(x.mem);
}

static void on_meshes(void **state)
{
	(void)state;
	struct arena *mem = arena_new();

	both_run("precision=f32 micro=1 batch=b", model, 2e-4);
	both_run("precision=f32 micro=2 batch=b", both_on_mesh(mem, "mesh dp=2\nmesh tp=2\n",
		 "arrow b -> dp\narrow d -> tp\narrow optimizer -> dp\n", model), 2e-4);
	both_run("precision=f32 micro=1 batch=b", both_on_mesh(mem, "mesh dp=2\nmesh tp=3\n",
		 "arrow b -> dp\narrow a, d -> tp\narrow params -> dp\n", model), 2e-4);
	arena_free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(formulas), cmocka_unit_test(on_meshes) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
