/* ir/rng.h - random numbers by position: Philox4x32-10 (Salmon et al., SC 2011).
 *
 * A stream is named by (seed, path); its numbers by (step, iteration, global index), so that no
 * layout, microbatch or recomputation changes one. key = (seed ^ fnv1a(path)) as two words, low
 * first. counter = (low and high word of block, step, iteration).
 *   uniform i: block = i / 4, word i % 4; u = word / 2^32, in [0, 1)
 *   normal  i: block = i / 2, words 2(i % 2) and 2(i % 2) + 1 = a, b:
 *              sqrt(-2 ln((a + 1) / 2^32)) cos(2 pi b / 2^32)       (in double)
 * Initial values use step 0, iteration 0 and the path of the param; the global index is
 * row-major in the declared order. Iterations of nested repeats are combined row-major.
 */
#ifndef PTC_RNG_H
#define PTC_RNG_H
#include <math.h>
#include <stdint.h>

static inline void philox(uint64_t key, uint64_t block, uint32_t step, uint32_t iter, uint32_t out[4])
{
	uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
	uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = step, c3 = iter;

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
		uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;

		c1 = (uint32_t)p1;
		c3 = (uint32_t)p0;
		c0 = n0;
		c2 = n2;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

static inline double rng_uniform(uint64_t key, uint64_t i, uint32_t step, uint32_t iter)
{
	uint32_t w[4];

	philox(key, i / 4, step, iter, w);
	return w[i % 4] / 4294967296.0;
}

static inline double rng_normal(uint64_t key, uint64_t i, uint32_t step, uint32_t iter)
{
	uint32_t w[4];

	philox(key, i / 2, step, iter, w);
	double a = (w[2 * (i % 2)] + 1.0) / 4294967296.0, b = w[2 * (i % 2) + 1] / 4294967296.0;
	return sqrt(-2 * log(a)) * cos(6.283185307179586477 * b);
}

/* Finaliser of splitmix64, for the order of the data. */
static inline uint64_t mix64(uint64_t z)
{
	z += 0x9E3779B97F4A7C15ull;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return z ^ (z >> 31);
}

/* Place of the pos-th example (0 <= pos < n) of an epoch in the data: a permutation of 0..n-1,
 * a Feistel network of 4 rounds on the least even number of bits that holds n - 1 (at least 2),
 * walked until it falls below n. */
static inline uint64_t data_order(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t pos)
{
	uint64_t key = mix64(seed + 0x9E3779B97F4A7C15ull * (epoch + 1));
	int half = 1;

	while (half < 32 && (n - 1) >> (2 * half))
		half++;
	uint64_t mask = (1ull << half) - 1;
	do {
		uint64_t l = pos >> half, r = pos & mask;

		for (uint64_t round = 0; round < 4; round++) {
			uint64_t next = l ^ (mix64(key ^ round << 56 ^ r) & mask);

			l = r;
			r = next;
		}
		pos = l << half | r;
	} while (pos >= n);
	return pos;
}

#endif
