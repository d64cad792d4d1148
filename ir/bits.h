/* ir/bits.h - sets of small numbers, of any size: words of 64 bits, the lowest first. A set is not changed once it is made, so
 * copies may share it. */
#ifndef PTC_BITS_H
#define PTC_BITS_H
#include "ir/base.h"

struct bits {
	uint32_t n;
	const uint64_t *w; /* the last of them is not 0 */
};

bool bits_has(struct bits b, int64_t i);
bool bits_equal(struct bits a, struct bits b);
struct bits bits_with(struct arena *mem, struct bits b, int64_t i); /* and i */
int64_t bits_end(struct bits b);                                    /* one more than the largest, 0: none */
/* As text: a number if it is less than 2^63, else its hexadecimal digits in quotes. From those; *ok: they are some. */
const char *bits_text(struct arena *mem, struct bits b);
struct bits bits_of_digits(struct arena *mem, const char *digits, bool *ok);
struct bits bits_of_word(struct arena *mem, uint64_t w);

#endif
