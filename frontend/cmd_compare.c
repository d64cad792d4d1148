/* frontend/cmd_compare.c - the bound of `ptc check`, and how a difference is traced. */
#include <math.h>

#include "frontend/cmd_compare.h"

double check_size(enum quantity q, double size, double largest)
{
	return q == Q_GRADIENT ? fmax(size, 1e-3 * largest) : size;
}

/* bf16 keeps 8 bits: a stored value is off by half a unit of 2^-8, and two layouts round at
 * different places. Three units on scalars, and ten on tensors, whose errors add up over layers. */
double check_bound(enum quantity q, enum dtype precision, double size, double largest)
{
	double unit = precision == BF16 ? (q == Q_SCALAR ? 3 : 10) / 256.0 : 1e-5;

	switch (q) {
	case Q_INITIAL:
		return 0;
	case Q_SCALAR:
	case Q_VALUE:
	case Q_GRADIENT:
		return unit * check_size(q, size, largest);
	case Q_UPDATED:
		/* given the same gradients: fp32 whatever the precision, down to where it has no bits left */
		return fmax(1e-5 * size, 0x1p-126);
	case Q_STORED:
		return size / 256; /* a bf16 copy of such a one */
	}
	return 0;
}

/* Each side is off by as much, so they may lie apart by twice that; and the worst of few draws of a tensor of few elements may
 * be half of what it could be. However much it is, what is lost, doubled or turned
 * differs by all its size, and is found; but for a gradient that is zero, as that of a bias of keys before a softmax is: of it there
 * is nothing but rounding. */
double rounding_bound(enum quantity q, struct off off, double size, double largest)
{
	if (!isfinite(off.most))
		return 0;
	if (q == Q_GRADIENT && off.size < off.most / 4)
		return 8 * off.most;
	return fmin(4 * off.most, MOST_ROUNDING * check_size(q, size, largest));
}

#define MEASURED "; where the runtime is further off, four times what rounding each value at random makes of it on the evaluator, at most 3/4, but for what is zero, and for few that it turns"

const char *check_bound_text(enum dtype precision)
{
	return precision == BF16 ?
		"initial params the same bits; loss and norm 3/256 relative; a gradient max|a-b| <= 10/256 "
		"max(max|b|, 1e-3 of the largest gradient); updated params and states, from the same gradients, 1e-05 max|b|; "
		"on the evaluator, which rounds nothing, 1e-05 for all" MEASURED :
		"initial params the same bits; loss and norm 1e-05 relative; a gradient max|a-b| <= 1e-05 "
		"max(max|b|, 1e-3 of the largest gradient); updated params and states, from the same gradients, 1e-05 max|b|" MEASURED;
}

double tensor_size(const struct tensor *t)
{
	double size = 0;

	for (int64_t i = 0; i < t->count; i++)
		if (!(fabs(t->x[i]) <= size))
			size = fabs(t->x[i]);
	return size;
}

/* Written with !(e <= bound) throughout, so that NaN is a difference, and the first one. Values
 * that are equal, infinities too, or are both NaN, do not differ. */
struct difference compare(enum quantity q, enum dtype precision, const struct tensor *a,
			  const struct tensor *b, double largest)
{
	struct difference d = { .at = -1 };

	if (a->count != b->count) {
		d.bad = true;
		d.error = INFINITY;
		return d;
	}
	double size = 0;
	for (int64_t i = 0; i < b->count; i++)
		if (isfinite(b->x[i]) && fabs(b->x[i]) > size)
			size = fabs(b->x[i]);
	d.bound = check_bound(q, precision, size, largest);
	for (int64_t i = 0; i < b->count; i++) {
		bool same = (q == Q_INITIAL ? (float)a->x[i] == (float)b->x[i] : a->x[i] == b->x[i]) ||
			    (isnan(a->x[i]) && isnan(b->x[i]));
		double e = same ? 0 : fabs(a->x[i] - b->x[i]);

		if (d.at >= 0 && e <= d.error)
			continue;
		d.error = e;
		d.a = a->x[i];
		d.b = b->x[i];
		d.at = i;
		if (isnan(e))
			break;
	}
	d.bad = !(d.error <= d.bound);
	return d;
}

double ulps(double a, double b)
{
	double size = fmax(fabs(b), 0x1p-126);

	if (!isfinite(a) || !isfinite(b))
		return NAN;
	return rint(fabs(a - b) / ldexp(1, ilogb(size) - 23));
}

static const struct value *owner_operand(const struct value *arg)
{
	const struct op *owner = arg->home->owner;

	return owner && arg->no < owner->nin ? owner->in[arg->no] : NULL;
}

/* Breadth first over what v is made from, through the operands of the regions around it. */
const struct op *made_by(const struct value *v)
{
	enum { MOST = 256 };
	const struct value *queue[MOST];
	int n = 0;

	queue[n++] = v;
	for (int i = 0; i < n; i++) {
		const struct op *op = queue[i]->def;
		const struct value *next[MAX_DIMS * 2];
		int count = 0;

		if (op && op->why)
			return op;
		if (!op) {
			next[count++] = owner_operand(queue[i]);
		} else if (op->body) {
			if (queue[i]->no < op->body->yields.n)
				next[count++] = op->body->yields.at[queue[i]->no];
		} else {
			for (uint32_t k = 0; k < op->nin && count < (int)LEN(next); k++)
				next[count++] = op->in[k];
		}
		for (int k = 0; k < count; k++) {
			bool seen = !next[k];

			for (int j = 0; j < n && !seen; j++)
				seen = queue[j] == next[k];
			if (!seen && n < MOST)
				queue[n++] = next[k];
		}
	}
	return NULL;
}
