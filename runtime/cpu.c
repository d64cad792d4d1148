/* runtime/cpu.c - the processor as a backend: an instruction is done when its leaf returns. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/exec.h"
#include "runtime/ring.h"

/* A kernel is shared out if it has this many elements; results that are joined may take so many bytes. */
enum { PARTS_WORTH = 16384, JOINED_MOST = 1 << 20 };
static const struct span nowhere;

/* -- kernels -- */

struct cpu_kernel {
	const struct kernel_sig *sig;
	ptc_kernel *fn;
	int64_t *size, joined; /* bytes of each result, of all that are joined */
};

/* Results that parts of a kernel make each. */
static void join_sizes(struct runtime *rt, const struct op *op, struct cpu_kernel *k)
{
	k->size = NEWN(rt->mem, int64_t, op->nout + 1);
	for (uint32_t i = 0; i < op->nout; i++) {
		k->size[i] = (local_bytes(rt->m, op->out[i]) + 63) / 64 * 64;
		if (i < 64 && (k->sig->maxes >> i & 1))
			k->joined += k->size[i];
	}
}

static bool cpu_prepare(struct runtime *rt, struct instr *i, struct diag *d)
{
	struct cpu_kernel *k = NEW(rt->mem, struct cpu_kernel);

	(void)d;
	k->sig = &rt->kernels.sig[i->no];
	k->fn = rt->kernels.fn[i->no];
	join_sizes(rt, i->op, k);
	i->own = k;
	return true;
}

/* A kernel's call. With maxima, each part makes results of its own, which are joined. */
struct kernel_job {
	const struct op *op;
	const struct cpu_kernel *k;
	const struct ptc_env *env;
	void **in, **out;
	const int64_t *start, *n;
	uint32_t parts;
	char *room;       /* of the parts' own results */
	int64_t bytes;    /* of one part's */
};

static bool is_joined(const struct kernel_sig *s, uint32_t k)
{
	return k < 64 && (s->maxes >> k & 1);
}

static void run_parts(void *arg, int me, int n)
{
	const struct kernel_job *j = arg;
	const struct op *op = j->op;
	struct ptc_env env = *j->env;
	void *out[MAX_OPERANDS];

	env.parts = j->parts;
	for (env.part = (uint32_t)me; env.part < j->parts; env.part += (uint32_t)n) {
		char *room = j->room ? j->room + env.part * j->bytes : NULL;

		for (uint32_t k = 0; k < op->nout; k++) {
			out[k] = j->out[k];
			if (room && is_joined(j->k->sig, k)) {
				out[k] = room;
				room += j->k->size[k];
			}
		}
		j->k->fn(j->in, out, j->start, j->n, &env);
	}
}

static void join_parts(const struct rank *r, const struct kernel_job *j)
{
	const struct op *op = j->op;
	const void *src[KERNEL_PARTS];
	int64_t off = 0;

	for (uint32_t k = 0; k < op->nout; k++) {
		if (!is_joined(j->k->sig, k))
			continue;
		for (uint32_t p = 0; p < j->parts; p++)
			src[p] = j->room + p * j->bytes + off;
		struct nest l = { 1, { local_count(r->rt->m, op->out[k]) }, { 1 }, { 1 } };

		nest_join(&l, op->out[k]->dt, j->out[k], (int)j->parts, src, true);
		off += j->k->size[k];
	}
}

/* How many parts; with maxima, room for them. */
static bool share_out(struct rank *r, struct kernel_job *j)
{
	const struct kernel_sig *s = j->k->sig;
	int threads = team_size(r->team);

	j->parts = 1;
	if (s->split < 2 || s->work < PARTS_WORTH)
		return true;
	if (!s->maxes) {
		j->parts = (uint32_t)(threads < s->split ? threads : s->split);
		return true;
	}
	j->bytes = j->k->joined;
	if (!j->bytes || j->bytes > JOINED_MOST)
		return true;
	j->parts = (uint32_t)(KERNEL_PARTS < s->split ? KERNEL_PARTS : s->split);
	j->room = gemm_scratch(r->gemm, SCRATCH_PARTS, j->parts * j->bytes);
	return j->room || rank_broken(r, j->op, gemm_error(r->gemm));
}

static bool cpu_kernel(struct rank *r, const struct instr *i)
{
	void *in[MAX_OPERANDS], *out[MAX_OPERANDS];
	int64_t start[64], n[64];
	const struct op *op = i->op;
	const struct cpu_kernel *own = i->own;
	struct kernel_job j = { .op = op, .k = own, .env = &r->env, .in = in, .out = out, .start = start, .n = n };

	for (uint32_t k = 0; k < op->nin; k++)
		in[k] = rank_at(r, &i->at[k]);
	for (uint32_t k = 0; k < op->nout; k++)
		out[k] = rank_at(r, &i->at[op->nin + k]);
	for (int k = 0; k < own->sig->next; k++) {
		struct extent e = rank_extent(r->rt->m, own->sig->ext[k].d, &own->sig->ext[k].on, r->coord);

		start[k] = e.start;
		n[k] = e.valid;
	}
	if (!share_out(r, &j))
		return false;
	if (j.parts == 1)
		own->fn(in, out, start, n, &r->env);
	else if (team_size(r->team) > 1)
		team_run(r->team, run_parts, &j);
	else
		run_parts(&j, 0, 1);
	if (j.room)
		join_parts(r, &j);
	return true;
}

/* -- the other leaves -- */

static bool cpu_load(struct runtime *rt, struct diag *d)
{
	if (rt->nrank > MOST_THREADS) {
		diag_error(d, nowhere, "a plan for %lld ranks: each is a thread here, and this process has at most %d", (long long)rt->nrank, MOST_THREADS);
		diag_note(d, nowhere, "`ptc verify` proves it and `ptc explain` tells what it costs for any number; to run the model, give a smaller --mesh");
		return false;
	}
	return kernels_load(rt->mem, rt->m, &rt->kernels, d);
}

static void cpu_unload(struct runtime *rt)
{
	kernels_close(&rt->kernels);
}

static bool cpu_einsum(struct rank *r, const struct instr *i, const struct contraction *x, const void *a, const void *b, void *c)
{
	return contract(r->gemm, x, a, b, c) || rank_broken(r, i->op, gemm_error(r->gemm));
}

static bool cpu_attention(struct rank *r, const struct instr *i, const struct attention *x, void *const *at)
{
	bool ok = i->attend->backward ? attention_backward(r->gemm, x, at) : attention_forward(r->gemm, x, at);

	return ok || rank_broken(r, i->op, gemm_error(r->gemm));
}

/* Collectives are never under way. */
static bool cpu_wait(struct rank *r, const struct instr *i)
{
	if (i->aside)
		aside_wait(r->aside, 2 * i->start + rank_turn(r, i->op), &r->began, &r->ended);
	return true;
}

static bool cpu_aside(struct rank *r, const struct instr *i, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	aside_put(r->aside, 2 * i->start + rank_turn(r, i->op), l, ddt, dst, sdt, src);
	return true;
}

static void cpu_copy(struct rank *r, const struct nest *l, enum dtype ddt, void *dst, enum dtype sdt, const void *src)
{
	nest_copy_by(r->team, l, ddt, dst, sdt, src);
}

static void cpu_add(struct rank *r, const struct nest *l, enum dtype dt, void *dst, const void *src)
{
	nest_add_by(r->team, l, dt, dst, src);
}

static void cpu_fill(struct rank *r, const struct nest *l, enum dtype dt, void *dst, double x)
{
	(void)r;
	nest_fill(l, dt, dst, x);
}

static void *cpu_scratch(struct rank *r, const struct op *op, int slot, int64_t bytes)
{
	void *p = gemm_scratch(r->gemm, slot, bytes);

	if (!p)
		rank_broken(r, op, gemm_error(r->gemm));
	return p;
}

static bool cpu_input(struct rank *r, const struct instr *i, char *to)
{
	rank_input(r, i, to);
	return true;
}

static bool cpu_report(struct rank *r, const struct instr *i, const char *from)
{
	rank_report(r, i, from);
	return true;
}

static bool cpu_count(struct rank *r, const struct instr *i, char *to, int32_t x)
{
	(void)r;
	(void)i;
	memcpy(to, &x, sizeof x);
	return true;
}

static void cpu_leave(struct rank *r)
{
	(void)r;
}

static void cpu_step(struct rank *r, bool (*run)(struct rank *))
{
	run(r);
	if (r->aside)
		aside_drain(r->aside); /* a step that fails waits for nothing */
}

static struct channel *cpu_channel(struct runtime *rt, const struct channel_ends *e)
{
	return channel_open(rt->comm, e);
}

static void cpu_move(struct rank *r, void *dst, const void *src, int64_t bytes)
{
	(void)r;
	memcpy(dst, src, (size_t)bytes);
}

static void *cpu_peek(struct rank *r, void *at, int64_t bytes)
{
	(void)r;
	(void)bytes;
	return at;
}

static void cpu_poke(struct rank *r, void *at, void *seen, int64_t bytes, bool changed)
{
	(void)r;
	(void)at;
	(void)seen;
	(void)bytes;
	(void)changed;
}

static bool cpu_machine(struct machine *m, struct diag *d)
{
	(void)d;
	m->memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
	m->cores = processor_count();
	return true;
}

/* -- ranks -- */

static bool cpu_open(struct rank *r, size_t bytes, struct diag *d)
{
	const struct runtime *rt = r->rt;

	r->arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->arena == MAP_FAILED) {
		r->arena = NULL;
		return diag_error(d, nowhere, "no memory for rank %lld: %zu bytes: %s", (long long)r->no, bytes, strerror(errno));
	}
	if (bytes >= 4 << 20)
		madvise(r->arena, bytes, MADV_HUGEPAGE);
	if (rt->m->host) {
		r->host = mmap(NULL, (size_t)rt->m->host, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (r->host == MAP_FAILED) {
			r->host = NULL;
			return diag_error(d, nowhere, "no memory for what rank %lld has on the host: %lld bytes: %s",
					  (long long)r->no, (long long)rt->m->host, strerror(errno));
		}
	}
	if (rt->m->host && rt->starts.n && !(r->aside = aside_open(2 * (int)rt->starts.n)))
		return diag_error(d, nowhere, "the thread that copies for rank %lld can't be made", (long long)r->no);
	if (rt->threads > 1 && !(r->team = team_open(rt->threads)))
		return diag_error(d, nowhere, "the threads of rank %lld can't be made", (long long)r->no);
	r->gemm = gemm_team(rt->m->workspace > 0 ? rt->m->workspace : USUAL_WORKSPACE, r->team);
	return r->gemm || diag_error(d, nowhere, "oneDNN can't be used");
}

static void cpu_close(struct rank *r, size_t bytes)
{
	aside_close(r->aside);
	gemm_close(r->gemm);
	team_close(r->team);
	if (r->arena)
		munmap(r->arena, bytes);
	if (r->host)
		munmap(r->host, (size_t)r->rt->m->host);
}

static void cpu_versions(struct text *t)
{
	gemm_version(t);
	text_put(t, ", kernels by '%s'", kernel_compiler());
}

const struct backend cpu_backend = {
	.name = "cpu",
	.versions = cpu_versions,
	.machine = cpu_machine,
	.starts = 1u << S_IN | 1u << S_OUT,
	.load = cpu_load,
	.unload = cpu_unload,
	.prepare = cpu_prepare,
	.rank_open = cpu_open,
	.rank_close = cpu_close,
	.enter = rehearse,
	.leave = cpu_leave,
	.step = cpu_step,
	.kernel = cpu_kernel,
	.einsum = cpu_einsum,
	.attention = cpu_attention,
	.ring_begin = ring_begin,
	.pull = ring_pull,
	.arrive = ring_arrive,
	.ring_turn = ring_turn,
	.ring_end = ring_end,
	.combine = ring_combine,
	.comm = run_comm,
	.aside = cpu_aside,
	.wait = cpu_wait,
	.copy = cpu_copy,
	.add = cpu_add,
	.fill = cpu_fill,
	.scratch = cpu_scratch,
	.input = cpu_input,
	.report = cpu_report,
	.count = cpu_count,
	.channel_open = cpu_channel,
	.channel_close = channel_close,
	.channel_await = channel_await,
	.channel_room = channel_room,
	.channel_send = channel_send,
	.channel_flush = channel_flush,
	.channel_take = channel_take,
	.channel_done = channel_done,
	.move = cpu_move,
	.peek = cpu_peek,
	.poke = cpu_poke,
};
