/* ir/bits.c - see bits.h. */
#include "ir/bits.h"

#include <ctype.h>
#include <inttypes.h>

bool bits_has(struct bits b, int64_t i)
{
	return i >= 0 && i / 64 < b.n && (b.w[i / 64] >> i % 64 & 1);
}

bool bits_equal(struct bits a, struct bits b)
{
	return a.n == b.n && (!a.n || !memcmp(a.w, b.w, a.n * sizeof *a.w));
}

struct bits bits_with(struct arena *mem, struct bits b, int64_t i)
{
	uint32_t n = i / 64 < b.n ? b.n : (uint32_t)(i / 64) + 1;
	uint64_t *w = NEWN(mem, uint64_t, n);

	if (b.n)
		memcpy(w, b.w, b.n * sizeof *w);
	w[i / 64] |= 1ull << i % 64;
	return (struct bits){ n, w };
}

int64_t bits_end(struct bits b)
{
	return b.n ? 64 * (int64_t)b.n - __builtin_clzll(b.w[b.n - 1]) : 0;
}

const char *bits_text(struct arena *mem, struct bits b)
{
	const char *s = "";

	if (bits_end(b) < 64)
		return arena_printf(mem, "%" PRIu64, b.n ? b.w[0] : 0);
	for (uint32_t k = 0; k + 1 < b.n; k++)
		s = arena_printf(mem, "%016" PRIx64 "%s", b.w[k], s);
	return arena_printf(mem, "\"%" PRIx64 "%s\"", b.w[b.n - 1], s);
}

struct bits bits_of_word(struct arena *mem, uint64_t w)
{
	uint64_t *all = NEW(mem, uint64_t);

	*all = w;
	return (struct bits){ w != 0, all };
}

struct bits bits_of_digits(struct arena *mem, const char *digits, bool *ok)
{
	size_t len = strlen(digits);
	uint64_t *w = NEWN(mem, uint64_t, len / 16 + 1);
	struct bits b = { (uint32_t)((len + 15) / 16), w };

	*ok = len && *digits != '0';
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)digits[len - 1 - i];

		*ok = *ok && (isdigit(c) || (c >= 'a' && c <= 'f'));
		w[i / 16] |= (uint64_t)(isdigit(c) ? c - '0' : (c - 'a' + 10) & 15) << i % 16 * 4;
	}
	*ok = *ok && bits_end(b) >= 64;
	return b;
}
