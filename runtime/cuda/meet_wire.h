/* runtime/cuda/meet_wire.h - private to meet: what goes over TCP, frames of a header and bytes in both directions. */
#ifndef PTC_CUDA_MEET_WIRE_H
#define PTC_CUDA_MEET_WIRE_H
#include "runtime/cuda/meet.h"

enum { MEET_KEY = 120 };
enum message_kind { HELLO, PUT, GET, BEAT, BREAK, BYE, YES, NOT_YET, NO };
struct frame {
	uint32_t magic, kind, bytes, rank, world, pad;
	uint64_t plan;
	char key[MEET_KEY];
};

bool meet_say(char *why, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* MEET_TEXT bytes; false */
bool meet_send(const struct meet_place *p, int fd, enum message_kind kind, const char *key, const void *x, size_t n);
/* Within so many seconds. Its bytes are in *x, which the caller frees, and a 0. */
bool meet_receive(int fd, struct frame *f, void **x, double seconds);
/* That listens on all addresses, or is connected to rank 0. -1: why. */
int meet_socket(const struct meet_place *p, bool listens, char *why);

#endif
