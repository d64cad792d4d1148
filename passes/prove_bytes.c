/* passes/prove_bytes.c - which bytes of an arena hold what: pieces, sorted and disjoint. */
#include "passes/prove.h"

/* The first piece that ends behind `lo`. */
static uint32_t first_behind(const struct memory *m, int64_t lo)
{
	uint32_t a = 0, b = m->pieces.n;

	while (a < b) {
		uint32_t mid = a + (b - a) / 2;

		if (m->pieces.at[mid].at.hi > lo)
			b = mid;
		else
			a = mid + 1;
	}
	return a;
}

static void insert(struct memory *m, uint32_t i, struct piece x)
{
	PUSH(m->mem, &m->pieces, x);
	memmove(m->pieces.at + i + 1, m->pieces.at + i, (m->pieces.n - 1 - i) * sizeof x);
	m->pieces.at[i] = x;
}

static void delete(struct memory *m, uint32_t from, uint32_t to)
{
	if (from == to)
		return;
	memmove(m->pieces.at + from, m->pieces.at + to, (m->pieces.n - to) * sizeof *m->pieces.at);
	m->pieces.n -= to - from;
}

static bool same_content(struct content a, struct content b)
{
	return a.tag == b.tag && a.start == b.start;
}

void memory_put(struct memory *m, struct bytes at, struct content is)
{
	uint32_t i, end;

	if (at.lo >= at.hi)
		return;
	i = first_behind(m, at.lo);
	if (i < m->pieces.n && m->pieces.at[i].at.lo < at.lo) {
		struct piece rest = m->pieces.at[i];

		m->pieces.at[i++].at.hi = at.lo;
		rest.at.lo = at.lo;
		insert(m, i, rest);
	}
	end = i;
	while (end < m->pieces.n && m->pieces.at[end].at.hi <= at.hi)
		end++;
	if (end < m->pieces.n && m->pieces.at[end].at.lo < at.hi)
		m->pieces.at[end].at.lo = at.hi;
	delete(m, i, end);
	if (i && m->pieces.at[i - 1].at.hi == at.lo && same_content(m->pieces.at[i - 1].is, is))
		m->pieces.at[i - 1].at.hi = at.hi;
	else
		insert(m, i, (struct piece){ at, is });
}

const struct piece *memory_find(struct memory *m, struct bytes at, struct content is, struct piece *hole)
{
	int64_t lo = at.lo;

	for (uint32_t i = first_behind(m, lo); lo < at.hi; i++) {
		const struct piece *x = i < m->pieces.n ? &m->pieces.at[i] : NULL;

		if (!x || x->at.lo > lo) {
			*hole = (struct piece){ { lo, x && x->at.lo < at.hi ? x->at.lo : at.hi }, { 0, 0 } };
			return hole;
		}
		if (!same_content(x->is, is))
			return x;
		lo = x->at.hi;
	}
	return NULL;
}

bool memory_holds_only(const struct memory *m, struct bytes at, const struct value *const *made, const struct value *v)
{
	for (uint32_t i = first_behind(m, at.lo); i < m->pieces.n && m->pieces.at[i].at.lo < at.hi; i++)
		if (made[m->pieces.at[i].is.tag] != v)
			return false;
	return true;
}
