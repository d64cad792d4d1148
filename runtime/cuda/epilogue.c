/* runtime/cuda/epilogue.c - an einsum and the kernel after it as one product of cuBLASLt, whose epilogue the kernel is.
 *
 * The product takes the sum in float32 to what is stored, rounded once; z, the einsum's result, is not stored at all.
 * Where the einsum is more than one product, the shapes are not those that the library takes, or something would be
 * written over what is still read, nothing is done, and the two are carried out one after the other. */
#include "runtime/cuda/gemm.h"

enum { ALIGN_AUX = 16, ROWS_AUX = 8 }; /* bytes; elements: cuBLASLt's, of auxiliary matrices */

struct joint {
	struct rank *r;
	const struct instr *i, *kernel;
	const struct epilogue *e;
	struct contraction x;
	struct choice choice;
	int kind; /* of loops that run along the rows of cuBLASLt's result: what lies together in memory */
};

static const struct value *value_at(const struct instr *i, int k)
{
	const struct op *op = i->op;

	return k < (int)op->nin ? op->in[k] : op->out[k - (int)op->nin];
}

static char *place_of(const struct joint *j, const struct instr *i, int k)
{
	return rank_at(j->r, &i->at[k]);
}

/* Of a result of the kernel; NULL: -1. */
static char *result(const struct joint *j, int k)
{
	return k < 0 ? NULL : place_of(j, j->kernel, (int)j->kernel->op->nin + k);
}

/* -- what is one product -- */

static bool is_one(struct joint *j)
{
	struct contraction *x = &j->x;
	struct rings by[NKINDS];

	for (int k = 0; k < x->nd; k++)
		if (x->n[k] <= 0)
			return false;
	if (x->dt[0] != x->dt[1] || !is_float(x->dt[0]) || (x->dt[0] == F32 && x->dt[2] != F32) || !classify(x, by) ||
	    !choose(by, &j->choice))
		return false;
	j->kind = j->choice.swap ? ROW : COL;
	return !by[BATCH].n && by[ROW].n < 2 && by[COL].n < 2 && by[SUM].n < 2;
}

static int kind_of(const struct contraction *x, int k)
{
	bool a = x->has[0][k], b = x->has[1][k];

	return !x->has[2][k] ? SUM : a && b ? BATCH : a ? ROW : COL;
}

/* The vector lies together, in the order of the loops of this kind, and has no others. along: they are the result's rows. */
static bool runs_along(const struct joint *j, int kind, bool along)
{
	const struct paired *p = j->i->with;

	for (int k = 0; k < j->x.nd; k++) {
		int64_t step = along ? 1 : j->choice.ldc;

		if (j->x.n[k] == 1)
			continue;
		if (p->has[k] != (kind_of(&j->x, k) == kind) || (p->has[k] && p->vector[k] * step != j->x.stride[2][k]))
			return false;
	}
	return true;
}

/* 0: cuBLASLt has none. */
static int epilogue_code(const struct joint *j)
{
	const struct epilogue *e = j->e;
	bool bias = e->bias >= 0;

	if (e->z < 0) {
		int kind = e->side ? COL : ROW;
		bool along = kind == j->kind;

		return !runs_along(j, kind, along) ? 0 : along ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
	}
	if (((bias || e->grad >= 0) && !runs_along(j, j->kind, true)) || (e->grad >= 0 && e->act != EPI_DGELU))
		return 0;
	switch (e->act) {
	case EPI_NONE:
		return bias ? CUBLASLT_EPILOGUE_BIAS : 0;
	case EPI_RELU:
		return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
	case EPI_GELU:
		if (e->kept < 0)
			return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
		return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : 0; /* what is kept is z: the plan has a place for that */
	case EPI_DGELU:
		return e->grad < 0 ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DGELU_BGRAD;
	}
	return 0;
}

/* -- nothing that is read is written, or written twice -- */

struct bytes {
	const char *at;
	int64_t n;
};

static struct bytes bytes_at(const struct joint *j, const struct instr *i, int k)
{
	return (struct bytes){ place_of(j, i, k), local_bytes(j->r->rt->m, value_at(i, k)) };
}

static bool meet(struct bytes a, struct bytes b)
{
	return a.at < b.at + b.n && b.at < a.at + a.n;
}

static bool lie_apart(const struct joint *j)
{
	const struct op *op = j->kernel->op;
	int nin = (int)op->nin, nout = (int)op->nout;

	for (int w = 0; w < nout; w++) {
		struct bytes out = bytes_at(j, j->kernel, nin + w);

		for (int k = 0; k < (j->e->z < 0 ? 3 : 2); k++)
			if (meet(out, bytes_at(j, j->i, k)))
				return false;
		for (int k = 0; k < nin + w; k++)
			if (k != j->e->z && meet(out, bytes_at(j, j->kernel, k)))
				return false;
	}
	return true;
}

static bool aux_fits(const struct joint *j, const void *aux)
{
	return !aux || (j->choice.ldc % ROWS_AUX == 0 && (uintptr_t)aux % ALIGN_AUX == 0);
}

bool cuda_epilogue(struct rank *r, const struct instr *i, const struct instr *kernel, const struct contraction *given,
		   bool *done)
{
	static const struct ring one = { 1, { 0, 0, 0 } };
	struct joint j = { .r = r, .i = i, .kernel = kernel, .e = &i->with->is, .x = *given };
	struct extras x;
	bool none = false;

	*done = false;
	gpu_share_sums(&j.x);
	if ((j.e->z >= 0 && given->add) || !is_one(&j) || !lie_apart(&j))
		return true;
	x.vector = j.e->bias >= 0 ? place_of(&j, kernel, j.e->bias) : result(&j, j.e->grad);
	x.aux = j.e->aux >= 0 ? place_of(&j, kernel, j.e->aux) : result(&j, j.e->kept);
	int code = epilogue_code(&j);
	const char *a = place_of(&j, i, 0), *b = place_of(&j, i, 1);
	char *c = j.e->z < 0 ? place_of(&j, i, 2) : result(&j, j.e->out);

	if (!code || !aux_fits(&j, x.aux))
		return true;
	struct shape s = gpu_shape(&j.choice, &one, &j.x, a, b, c, given->add);

	gpu_shape_extras(&s, code, &x);
	if (!gpu_multiply(gpu_of(r), &s, j.choice.swap ? a : b, j.choice.swap ? b : a, c, &x, &none))
		return false;
	*done = !none;
	return true;
}
