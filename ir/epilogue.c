/* ir/epilogue.c - kernel regions that are the epilogue of a matrix product: their expressions, compared. */
#include "ir/epilogue.h"

/* -- the forms, from the stored value up -- */

static bool take(struct epilogue_ops *x, const struct op *op)
{
	for (int i = 0; i < x->n; i++)
		if (x->at[i] == op)
			return true;
	if (x->n == EPI_OPS)
		return false;
	x->at[x->n++] = op;
	return true;
}

static bool is_cast(const struct value *v, enum dtype from, enum dtype to)
{
	return v->def && v->def->code == OP_CAST && v->def->in[0]->dt == from && v->dt == to;
}

/* An operand, or a bf16 one in float32. NULL: inside of a kernel, where that is an argument, it is not. */
static const struct value *operand(struct epilogue_ops *x, const struct value *v, bool inside)
{
	const struct value *w = is_cast(v, BF16, F32) ? v->def->in[0] : v;

	return (!w->def || !inside) && (w == v || take(x, v->def)) ? w : NULL;
}

static bool in_kernel(const struct value *v)
{
	return v->home && v->home->owner && v->home->owner->code == OP_KERNEL;
}

static bool is_tanh(const struct op *op)
{
	return HAS(op, form) && op->at.form == 1;
}

/* z, or z + bias; may_add: the latter too. */
static bool match_sum(struct epilogue_ops *x, const struct value *v, bool inside)
{
	const struct op *op = v->def;

	if (op && op->code == OP_ADD) {
		int wide = op->in[0]->nd == v->nd ? 0 : 1;

		return op->in[1 - wide]->nd < v->nd && take(x, op) && (x->z = operand(x, op->in[wide], inside)) &&
		       (x->bias = operand(x, op->in[1 - wide], inside));
	}
	return (x->z = operand(x, v, inside)) != NULL;
}

static bool match_gelu(struct epilogue_ops *x, const struct op *op, bool inside)
{
	const struct value *v = op->in[0];

	if (op->code == OP_GELU && !is_tanh(op))
		return false;
	x->act = op->code == OP_GELU ? EPI_GELU : EPI_RELU;
	if (!take(x, op))
		return false;
	x->kept = v;
	if (is_cast(v, BF16, F32) && is_cast(v->def->in[0], F32, BF16)) { /* rounded on the way */
		x->kept = v->def->in[0];
		if (!take(x, v->def) || !take(x, x->kept->def))
			return false;
		v = x->kept->def->in[0];
	}
	return match_sum(x, v, inside);
}

static bool match_dgelu(struct epilogue_ops *x, const struct op *op, bool inside)
{
	int k = op->in[1]->def && op->in[1]->def->code == OP_DGELU;
	const struct op *slope = op->in[k]->def;

	if (!slope || slope->code != OP_DGELU || !is_tanh(slope) || !take(x, op) || !take(x, slope))
		return false;
	x->act = EPI_DGELU;
	return (x->aux = operand(x, slope->in[0], inside)) && (x->z = operand(x, op->in[!k], inside));
}

bool epilogue_match(const struct value *out, struct epilogue_ops *x)
{
	bool inside = in_kernel(out), ok = false;
	const struct value *v = is_cast(out, F32, BF16) ? out->def->in[0] : out;

	*x = (struct epilogue_ops){ 0 };
	if (!v->def || (v != out && !take(x, out->def)))
		return false;
	if (v->def->code == OP_GELU || v->def->code == OP_RELU)
		ok = match_gelu(x, v->def, inside);
	else if (v->def->code == OP_MUL)
		ok = match_dgelu(x, v->def, inside);
	else if (v->def->code == OP_ADD)
		ok = match_sum(x, v, inside) && x->bias;
	return ok && (inside || (x->z->def && x->z->def->code == OP_EINSUM));
}

/* -- a kernel -- */

static bool alike(const struct value *a, const struct value *b)
{
	return a->dt == b->dt && a->nd == b->nd && !memcmp(a->d, b->d, (size_t)a->nd * sizeof *a->d) &&
	       sharding_equal(&a->sh, &b->sh, a->nd);
}

static int argument(const struct op *kernel, const struct value *v)
{
	for (uint32_t i = 0; v && i < kernel->body->args.n; i++)
		if (kernel->body->args.at[i] == v)
			return (int)i;
	return -1;
}

static int yield_of(const struct op *kernel, const struct value *v)
{
	for (uint32_t i = 0; v && i < kernel->body->yields.n; i++)
		if (kernel->body->yields.at[i] == v)
			return (int)i;
	return -1;
}

static bool all_taken(const struct op *kernel, const struct epilogue_ops *x)
{
	int n = 0;

	for (const struct op *op = kernel->body->first; op; op = op->next)
		n++;
	return n == x->n;
}

/* The result number of the sum over x of what is stored as out; float32 as it is. -1: none. */
static int find_grad(const struct op *kernel, const struct value *out, struct epilogue_ops *x)
{
	for (uint32_t i = 0; out->dt == F32 && i < kernel->body->yields.n; i++) {
		const struct value *y = kernel->body->yields.at[i];

		if (y->def && y->def->code == OP_SUM && y->def->in[0] == out && y->nd && y->dt == F32 && take(x, y->def))
			return (int)i;
	}
	return -1;
}

bool epilogue_along(const struct op *einsum, const struct value *v)
{
	const struct value *out = einsum->out[0];

	for (int side = 0; side < 2; side++) {
		const struct value *in = einsum->in[side], *other = einsum->in[!side];
		bool fits = out->nd > 0 && has_dim(v, out->d[out->nd - 1]);

		for (int i = 0; i < v->nd; i++)
			fits &= has_dim(in, v->d[i]) && !has_dim(other, v->d[i]);
		for (int i = 0; i < out->nd; i++)
			fits &= has_dim(v, out->d[i]) || !has_dim(in, out->d[i]) || has_dim(other, out->d[i]);
		if (fits)
			return true;
	}
	return false;
}

static bool is_stored(const struct op *einsum, const struct op *kernel, uint32_t yield, struct epilogue *e)
{
	const struct value *out = kernel->body->yields.at[yield];
	struct epilogue_ops x;

	if (!epilogue_match(out, &x))
		return false;
	*e = (struct epilogue){ .act = x.act, .z = argument(kernel, x.z), .bias = argument(kernel, x.bias),
				.aux = argument(kernel, x.aux),
				.out = (int)yield, .kept = yield_of(kernel, x.kept), .grad = -1, .side = -1 };
	if (x.act == EPI_RELU && e->kept >= 0) /* what it keeps is bits */
		return false;
	e->grad = x.act == EPI_DGELU ? find_grad(kernel, out, &x) : -1;
	uint32_t nin = 1 + (e->bias >= 0) + (e->aux >= 0), nout = 1 + (e->kept >= 0) + (e->grad >= 0);

	if (e->z < 0 || kernel->nin != nin || kernel->nout != nout || !all_taken(kernel, &x) ||
	    kernel->in[e->z] != einsum->out[0])
		return false;
	return alike(out, x.z) && (!x.bias || (x.bias->dt == out->dt && epilogue_along(einsum, x.bias))) &&
	       (e->grad < 0 || epilogue_along(einsum, kernel->body->yields.at[e->grad])) && (!x.aux || alike(x.aux, out)) &&
	       (e->kept < 0 || alike(kernel->body->yields.at[e->kept], out));
}

/* The kernel sums an operand over the dims that the einsum sums. */
static bool is_gradient(const struct op *einsum, const struct op *kernel, struct epilogue *e)
{
	const struct value *y = kernel->body->yields.n == 1 ? kernel->body->yields.at[0] : NULL;
	struct epilogue_ops x = { 0 };
	const struct value *a;

	if (!y || kernel->nin != 1 || !y->def || y->def->code != OP_SUM || y->dt != F32 || !y->nd || einsum->out[0]->dt != F32 ||
	    !take(&x, y->def) || !(a = operand(&x, y->def->in[0], true)) || argument(kernel, a) != 0 || !all_taken(kernel, &x))
		return false;
	int side = einsum->in[0] == kernel->in[0] ? 0 : 1;

	if (einsum->in[side] != kernel->in[0])
		return false;
	for (int i = 0; i < a->nd; i++) {
		bool kept = has_dim(y, a->d[i]);

		if (kept != has_dim(einsum->out[0], a->d[i]) || (!kept && !has_dim(einsum->in[!side], a->d[i])))
			return false;
	}
	*e = (struct epilogue){ .z = -1, .bias = -1, .aux = -1, .out = -1, .kept = -1, .grad = 0, .side = side };
	return true;
}

bool epilogue_of(const struct op *einsum, const struct op *kernel, struct epilogue *e)
{
	if (einsum->code != OP_EINSUM || kernel->code != OP_KERNEL || kernel->nin > 3 || kernel->nout > 3)
		return false;
	for (uint32_t i = 0; i < kernel->body->yields.n; i++)
		if (is_stored(einsum, kernel, i, e))
			return true;
	return is_gradient(einsum, kernel, e);
}

/* -- two ops, one after the other -- */

bool is_only_reader(const struct value *v, const struct op *reader)
{
	for (const struct op *op = v->home->first; op; op = op->next)
		for (uint32_t i = 0; op != reader && i < op->nin; i++)
			if (op->in[i] == v)
				return false;
	for (uint32_t i = 0; i < v->home->yields.n; i++)
		if (v->home->yields.at[i] == v)
			return false;
	return true;
}

const struct op *epilogue_pair(const struct op *kernel, struct epilogue *e)
{
	const struct op *einsum = kernel->code == OP_KERNEL ? kernel->prev : NULL;

	if (!einsum || einsum->code != OP_EINSUM || einsum->phase != kernel->phase || einsum->at.where != kernel->at.where ||
	    einsum->at.late != kernel->at.late || !epilogue_of(einsum, kernel, e))
		return NULL;
	return e->z < 0 || is_only_reader(einsum->out[0], kernel) ? einsum : NULL;
}
