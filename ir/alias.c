/* ir/alias.c - when a value lies in another's storage. */
#include "ir/region.h"

bool same_place(const struct value *a, const struct value *b)
{
	return same_layout(a, b->nd, b->d, b->sh.on, b->dt);
}

/* d, split over on, against the same elements as parts (major first): are all chunks the same? */
static bool splits_alike(const struct module *m, dimid d, const struct axes *on, int n, const dimid *part,
			 const struct axes *const *part_on)
{
	int64_t rest = 1, whole = dim_size(m, d), first = dim_size(m, part[0]);

	for (int i = 1; i < n; i++) {
		if (part_on[i]->n)
			return false;
		rest *= dim_size(m, part[i]);
	}
	if (!axes_equal(on, part_on[0]))
		return false;
	for (int i = 0; i < on->n; i++) {
		int size = m->axes.at[on->a[i]].size;

		whole = ceil_div(whole, size);
		first = ceil_div(first, size);
		if (whole != first * rest)
			return false;
	}
	return whole == first * rest;
}

/* wide has d where narrow has parts, in the same places. */
static bool view_alike(const struct module *m, const struct value *wide, const struct value *narrow, dimid d,
		       const struct dimlist *parts)
{
	const struct axes *on[MAX_DIMS];
	int k = 0;

	if (narrow->nd != wide->nd - 1 + parts->n || narrow->dt != wide->dt)
		return false;
	for (int i = 0; i < wide->nd; i++) {
		if (wide->d[i] != d) {
			if (narrow->d[k] != wide->d[i] || !axes_equal(&narrow->sh.on[k], &wide->sh.on[i]))
				return false;
			k++;
			continue;
		}
		for (int j = 0; j < parts->n; j++, k++) {
			if (narrow->d[k] != parts->d[j])
				return false;
			on[j] = &narrow->sh.on[k];
		}
		if (!splits_alike(m, d, &wide->sh.on[i], parts->n, parts->d, on))
			return false;
	}
	return true;
}

static bool rename_alike(const struct op *op)
{
	const struct value *in = op->in[0], *out = op->out[0];

	if (in->nd != out->nd || in->dt != out->dt)
		return false;
	for (int i = 0; i < in->nd; i++) {
		dimid d = in->d[i];

		for (int k = 0; k < op->at.dims.n; k++)
			if (op->at.dims.d[k] == in->d[i])
				d = op->at.tos.d[k];
		if (d != out->d[i] || !axes_equal(&in->sh.on[i], &out->sh.on[i]))
			return false;
	}
	return true;
}

bool is_alias(const struct module *m, const struct op *op)
{
	switch (op->code) {
	case OP_RENAME:
		return rename_alike(op);
	case OP_SPLIT:
		return view_alike(m, op->in[0], op->out[0], op->at.dim, &op->at.tos);
	case OP_MERGE:
		return view_alike(m, op->out[0], op->in[0], op->at.to, &op->at.dims);
	case OP_ACCUMULATE:
		return !sums_in_step(m) && same_place(op->in[0], op->out[0]);
	case OP_WAIT:
		return true;
	case OP_REPEAT:
		return is_first_part(m, op);
	default:
		return false;
	}
}

uint32_t alias_of(const struct op *op, uint32_t result)
{
	return op->code == OP_WAIT || op->code == OP_REPEAT ? result : 0;
}


bool reads_in_place(const struct module *m, const struct op *read)
{
	const struct buffer *b = find_buffer(m, read->at.buf);

	return b && b->role != B_INPUT && same_layout(read->out[0], b->nd, b->d, b->store.on, b->dt);
}

bool arg_in_row(const struct module *m, const struct op *repeat, uint32_t i)
{
	return is_row(m, repeat->body->args.at[i], repeat->in[i], repeat->at.dim);
}

bool write_copies(const struct module *m, const struct op *op)
{
	const struct buffer *b = op->code == OP_WRITE ? find_buffer(m, op->at.buf) : NULL;

	return b && pipe_axis(m) < 0 && op->in[0]->off >= 0 && b->off >= 0 && op->in[0]->off != b->off;
}
