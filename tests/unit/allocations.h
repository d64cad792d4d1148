/* tests/unit/allocations.h - counts what a program asks of the system: allocations of the C library, and pages.
 *
 * oneDNN's sgemm takes an aligned scratch and gives it back before it returns, and each call of a primitive (bf16 on AMX)
 * takes some small objects for as long: of aligned ones, and of what C++ takes, those count that are not given back in the end.
 * The calls of all libraries are caught but those of the C library to itself: how much of the address space is
 * data is read from the system. The sanitizers have allocators of their own: there nothing is counted. */
#ifndef PTC_TEST_ALLOCATIONS_H
#define PTC_TEST_ALLOCATIONS_H
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static int64_t count_allocations(bool begin)
{
	(void)begin;
	return 0;
}

static int64_t pages_of_data(void)
{
	return 0;
}
#else
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
static _Atomic bool counting;
static _Atomic int64_t allocations, lent; /* lent: aligned and C++'s, less what was freed */
static uintptr_t cxx_from, cxx_to;         /* where libstdc++ lies, whose operator new calls malloc */

static void note_allocation(void)
{
	if (atomic_load(&counting))
		atomic_fetch_add(&allocations, 1);
}

static int find_cxx(struct dl_phdr_info *lib, size_t size, void *arg)
{
	(void)size, (void)arg;
	for (int i = 0; strstr(lib->dlpi_name, "libstdc++") && i < lib->dlpi_phnum; i++) {
		uintptr_t from = lib->dlpi_addr + lib->dlpi_phdr[i].p_vaddr;

		if (lib->dlpi_phdr[i].p_type == PT_LOAD && lib->dlpi_phdr[i].p_flags & PF_X)
			cxx_from = from, cxx_to = from + lib->dlpi_phdr[i].p_memsz;
	}
	return 0;
}

void *malloc(size_t n)
{
	uintptr_t by = (uintptr_t)__builtin_return_address(0);

	if (by >= cxx_from && by < cxx_to) {
		if (atomic_load(&counting))
			atomic_fetch_add(&lent, 1);
	} else {
		note_allocation();
	}
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	note_allocation();
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	note_allocation();
	return __libc_realloc(p, n);
}

void free(void *p)
{
	if (p && atomic_load(&counting))
		atomic_fetch_sub(&lent, 1);
	__libc_free(p);
}

void *memalign(size_t align, size_t n)
{
	if (atomic_load(&counting))
		atomic_fetch_add(&lent, 1);
	return __libc_memalign(align, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	return memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
	*p = memalign(align, n);
	return *p ? 0 : ENOMEM;
}

void *valloc(size_t n)
{
	return memalign((size_t)sysconf(_SC_PAGESIZE), n);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
	note_allocation();
	return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, off);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t off)
{
	return mmap(at, n, prot, flags, fd, off);
}

void *mremap(void *at, size_t was, size_t n, int flags, ...)
{
	note_allocation();
	return (void *)syscall(SYS_mremap, at, was, n, flags & ~MREMAP_FIXED, NULL);
}

void *sbrk(intptr_t by)
{
	char *now = (char *)syscall(SYS_brk, NULL);

	if (!by)
		return now;
	note_allocation();
	return (char *)syscall(SYS_brk, now + by) == now + by ? now : (void *)-1;
}

static int64_t count_allocations(bool begin)
{
	if (!cxx_to)
		dl_iterate_phdr(find_cxx, NULL);
	atomic_store(&counting, begin);
	int64_t kept = atomic_exchange(&lent, 0);

	return atomic_exchange(&allocations, 0) + (kept < 0 ? -kept : kept);
}

/* The sixth number of /proc/self/statm. */
static int64_t pages_of_data(void)
{
	char text[256];
	int fd = open("/proc/self/statm", O_RDONLY), field = 0;
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	char *p = text;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	for (; *p && field < 5; p++)
		field += *p == ' ';
	return strtoll(p, NULL, 10);
}
#endif
#endif
