/* codegen/cuda_move.c - which kernel moves elements between two layouts, and how it is launched. */
#include "codegen/cuda.h"

/* Drops loops of one step and joins neighbours that lie together on both sides. */
static void simplify(struct ptc_nest *l)
{
	int n = 0;

	for (int i = 0; i < l->nd; i++) {
		if (l->n[i] == 1)
			continue;
		if (n && l->ds[n - 1] == l->ds[i] * l->n[i] && l->ss[n - 1] == l->ss[i] * l->n[i]) {
			l->n[n - 1] *= l->n[i];
		} else {
			l->n[n] = l->n[i];
			n++;
		}
		l->ds[n - 1] = l->ds[i];
		l->ss[n - 1] = l->ss[i];
	}
	l->nd = n;
}

/* The largest unit of up to 16 bytes in which both sides can be read. */
static int64_t unit_of(const struct ptc_nest *l, int64_t size, uint64_t align)
{
	int last = l->nd - 1;

	if (last < 0 || l->ds[last] != 1 || l->ss[last] != 1)
		return size;
	for (int64_t unit = 16; unit > size; unit /= 2) {
		int64_t k = unit / size;
		bool ok = l->n[last] % k == 0 && align % (uint64_t)unit == 0;

		for (int i = 0; i < last; i++)
			ok &= l->ds[i] % k == 0 && l->ss[i] % k == 0;
		if (ok)
			return unit;
	}
	return size;
}

static const char *by_units(struct ptc_nest *l, int64_t size, int64_t unit)
{
	int last = l->nd - 1;

	for (int i = 0; i < last; i++) {
		l->ds[i] /= unit / size;
		l->ss[i] /= unit / size;
	}
	if (last >= 0)
		l->n[last] /= unit / size;
	return unit == 16 ? "ptc_copy16" : unit == 8 ? "ptc_copy8" : unit == 4 ? "ptc_copy4" : unit == 2 ? "ptc_copy2" : "ptc_copy1";
}

struct cuda_move cuda_move_of(enum cuda_move_mode mode, enum dtype ddt, enum dtype sdt, int nd, const int64_t *n, const int64_t *ds,
			      const int64_t *ss, double x, uint64_t align)
{
	struct cuda_move m = { .fn = "ptc_move", .block = 256 };

	m.nest = (struct ptc_nest){ .count = 1, .x = x, .nd = nd, .mode = mode, .ddt = ddt, .sdt = sdt };
	for (int i = 0; i < nd; i++) {
		m.nest.n[i] = n[i];
		m.nest.ds[i] = ds[i];
		m.nest.ss[i] = ss ? ss[i] : ds[i];
		m.nest.count *= n[i];
	}
	if (m.nest.count <= 0) {
		m.nest.count = 0;
		return m;
	}
	simplify(&m.nest);
	if (mode == CUDA_COPY && ddt == sdt) {
		int64_t size = dtype_bytes(ddt), unit = unit_of(&m.nest, size, align);

		m.nest.count /= unit / size;
		m.fn = by_units(&m.nest, size, unit);
	}
	int64_t blocks = ceil_div(m.nest.count, m.block);

	m.grid = blocks > 8192 ? 8192 : (uint32_t)blocks;
	return m;
}
