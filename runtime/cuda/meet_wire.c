/* runtime/cuda/meet_wire.c - frames and sockets of meet.c. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ir/file.h"
#include "runtime/cuda/meet_wire.h"

enum { MAX_BYTES = 1 << 20 };
static const uint32_t magic = 0x70746331; /* "ptc1" */

bool meet_say(char *why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, MEET_TEXT, fmt, ap);
	va_end(ap);
	return false;
}

/* -- frames -- */

static bool send_all(int fd, const void *x, size_t n)
{
	const char *p = x;

	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

/* Within so many seconds. */
static bool receive_all(int fd, void *x, size_t n, double seconds)
{
	double end = seconds_now() + seconds;
	char *p = x;

	while (n) {
		struct pollfd f = { fd, POLLIN, 0 };
		double left = end - seconds_now();
		int ready = left > 0 ? poll(&f, 1, (int)(left * 1e3) + 1) : 0;

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return false;
		ssize_t k = recv(fd, p, n, 0);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

bool meet_send(const struct meet_place *p, int fd, enum message_kind kind, const char *key, const void *x, size_t n)
{
	struct frame f = { magic, kind, (uint32_t)n, (uint32_t)p->rank, (uint32_t)p->world, 0, p->plan, "" };

	snprintf(f.key, sizeof f.key, "%s", key);
	return send_all(fd, &f, sizeof f) && send_all(fd, x, n);
}

bool meet_receive(int fd, struct frame *f, void **x, double seconds)
{
	*x = NULL;
	if (!receive_all(fd, f, sizeof *f, seconds) || f->magic != magic || f->bytes > MAX_BYTES || f->kind > NO)
		return false;
	f->key[MEET_KEY - 1] = 0;
	*x = malloc(f->bytes + 1);
	if (*x && receive_all(fd, *x, f->bytes, seconds)) {
		((char *)*x)[f->bytes] = 0;
		return true;
	}
	free(*x);
	*x = NULL;
	return false;
}

/* -- sockets -- */

static int try_address(const struct addrinfo *a, bool listens)
{
	int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), on = 1;

	if (fd < 0)
		return -1;
	if (listens)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (listens ? bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0 : connect(fd, a->ai_addr, a->ai_addrlen) == 0)
		return fd;
	int why = errno;

	close(fd);
	errno = why;
	return -1;
}

int meet_socket(const struct meet_place *p, bool listens, char *why)
{
	struct addrinfo hint = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = listens ? AI_PASSIVE : 0 }, *all = NULL;
	char port[16];
	int fd = -1;

	snprintf(port, sizeof port, "%d", p->port);
	int e = getaddrinfo(listens ? NULL : p->host, port, &hint, &all);

	if (e != 0) {
		meet_say(why, "the address of rank 0, '%s', is unknown: %s", p->host, gai_strerror(e));
		return -1;
	}
	for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
		fd = try_address(a, listens);
	if (fd < 0)
		meet_say(why, listens ? "port %d can't be listened on: %s" : "rank 0 can't be reached at port %d: %s", p->port, strerror(errno));
	freeaddrinfo(all);
	return fd;
}
