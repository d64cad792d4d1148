/* runtime/cuda/step.c - a step of a rank: what changes goes in, the rest is put in order or replayed, reports come out.
 *
 * The first step of a kind (training, or not) is read twice: for the room that it needs and the inputs that it reads, then
 * to be carried out. The second is captured in a graph while it is read, and from then on the graph is replayed. */
#include <stdio.h>
#include <time.h>

#include "ir/file.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/meet.h"

/* -- inputs: packed on the host into pinned memory, whose copies to the device are part of the graph -- */

static struct upload *find_upload(struct gpu *g, const struct instr *i)
{
	for (uint32_t k = 0; k < g->uploads.n; k++)
		if (g->uploads.at[k].i == i && g->uploads.at[k].mb == g->r->mb)
			return &g->uploads.at[k];
	return NULL;
}

static struct upload *new_upload(struct gpu *g, const struct instr *i)
{
	struct upload u = { .i = i, .mb = g->r->mb, .bytes = i->move->m.bytes };
	void *p = NULL;

	if (!CU(g, cuMemAllocHost, &p, u.bytes ? (size_t)u.bytes : 1))
		return NULL;
	u.at = p;
	memset(u.at, 0, (size_t)u.bytes); /* what pads it */
	memcpy(u.coord, g->r->coord, sizeof u.coord);
	PUSH(g->mem, &g->uploads, u);
	return &g->uploads.at[g->uploads.n - 1];
}

bool cuda_input(struct rank *r, const struct instr *i, char *to)
{
	struct gpu *g = gpu_of(r);
	struct upload *u = find_upload(g, i);

	if (!u && !(u = new_upload(g, i)))
		return false;
	if (g->dry)
		return true;
	rank_input(r, i, u->at);
	return !u->bytes || CU(g, cuMemcpyHtoDAsync, dev(to), u->at, (size_t)u->bytes, g->compute);
}

/* Before a replay. */
static void pack_inputs(struct gpu *g)
{
	struct rank *r = g->r;
	int coord[MAX_AXES];

	memcpy(coord, r->coord, sizeof coord);
	for (uint32_t k = 0; k < g->uploads.n; k++) {
		memcpy(r->coord, g->uploads.at[k].coord, sizeof coord);
		rank_input(r, g->uploads.at[k].i, g->uploads.at[k].at);
	}
	memcpy(r->coord, coord, sizeof coord);
}

/* -- reports -- */

static struct meet *meet_of(const struct gpu *g)
{
	return ((struct cuda *)g->r->rt->own)->meet;
}

bool cuda_report(struct rank *r, const struct instr *i, const char *from)
{
	struct gpu *g = gpu_of(r);

	if (g->dry)
		return true;
	PUSH(g->mem, &g->now->reports, i);
	return CU(g, cuMemcpyDtoHAsync, g->report + 8 * i->no, dev(from), (size_t)dtype_bytes(i->op->in[0]->dt), g->compute);
}

/* Of several processes, that of rank 0 says what is reported, and others bring it what they have. */
static bool bring(struct gpu *g, int no)
{
	struct runtime *rt = g->r->rt;
	struct report *p = &rt->reports.at[no];
	char key[64], why[MEET_TEXT];

	snprintf(key, sizeof key, "report %d of step %lld", no, (long long)rt->step);
	if (rt->here ? meet_put(meet_of(g), key, &p->x, sizeof p->x, why) : meet_take(meet_of(g), key, &p->x, sizeof p->x, why))
		return true;
	comm_fail(rt->comm, g->r->no, p->at, "what is reported does not reach rank 0: %s", why);
	return false;
}

static void give_reports(struct gpu *g)
{
	struct runtime *rt = g->r->rt;

	memset(g->mine, 0, rt->reports.n * sizeof *g->mine);
	for (uint32_t k = 0; k < g->now->reports.n; k++) {
		const struct instr *i = g->now->reports.at[k];

		rank_report(g->r, i, g->report + 8 * i->no);
		g->mine[i->no] = true;
	}
	for (uint32_t k = 0; rt->here >= 0 && rt->training && k < rt->reports.n; k++)
		if (g->mine[k] == (rt->here > 0) && !bring(g, (int)k))
			return;
		else
			rt->reports.at[k].set |= rt->here == 0;
}

/* -- waiting -- */

static bool transport_ok(struct gpu *g)
{
	for (uint32_t i = 0; g->group && i < g->r->rt->groups.n; i++) {
		ncclResult_t e = ncclSuccess;

		if (g->group[i] && (lib.ncclCommGetAsyncError(g->group[i], &e) != ncclSuccess || (e != ncclSuccess && e != ncclInProgress)))
			return nccl_ok(g, g->group[i], e, "a collective");
	}
	return true;
}

bool gpu_others_ok(struct gpu *g)
{
	char why[MEET_TEXT];

	if (g->r->rt->here < 0 || meet_ok(meet_of(g), why))
		return true;
	comm_fail(g->r->rt->comm, g->r->no, (struct span){ 0 }, "the run ends: %s", why);
	return false;
}

/* Until the device has done all, or the run is broken, be it by another rank. */
static bool wait_for_device(struct gpu *g)
{
	struct comm *c = g->r->rt->comm;
	struct watch w = { 0 };
	double start = seconds_now(), looked = start;

	comm_watch_begin(c, g->r->no, &w);
	comm_device(c, g->r->no, g->mark, &g->now->marks);
	for (;;) {
		CUresult e = lib.cuStreamQuery(g->compute);
		double t = seconds_now();

		if (e != CUDA_ERROR_NOT_READY) {
			comm_watch_end(c, g->r->no);
			return cu_ok(g, e, "the step");
		}
		if (t - looked > .05) {
			looked = t;
			if (!transport_ok(g) || !gpu_others_ok(g) || !comm_watch(c, g->r->no, &w))
				break;
		}
		if (t - start > 200e-6)
			nanosleep(&(struct timespec){ 0, t - start > 5e-3 ? 200000 : 20000 }, NULL);
	}
	comm_watch_end(c, g->r->no);
	return false;
}

/* -- a step -- */

/* The other streams end in `compute`; those of channels have done so with their last message. */
static bool join_streams(struct gpu *g)
{
	for (int s = S_COMPUTE + 1; s < NSTREAM; s++)
		if (g->stream[s] && (!CU(g, cuEventRecord, g->joined, g->stream[s]) ||
				     !CU(g, cuStreamWaitEvent, g->compute, g->joined, CU_EVENT_WAIT_DEFAULT)))
			return false;
	return true;
}

/* They begin after `compute`, so that they are part of what is captured. */
static bool fork_streams(struct gpu *g)
{
	if (!CU(g, cuEventRecord, g->fork, g->compute))
		return false;
	for (int s = S_COMPUTE + 1; s < NSTREAM; s++)
		if (g->stream[s] && !CU(g, cuStreamWaitEvent, g->stream[s], g->fork, CU_EVENT_WAIT_DEFAULT))
			return false;
	return true;
}

/* Reads a step without doing anything, for the room that it needs: while messages are under way none can be made. */
static bool foresee(struct gpu *g, bool (*run)(struct rank *))
{
	struct rank *r = g->r;
	uint32_t n = r->rt->senders.n;
	struct tally *sent = NEWN(g->mem, struct tally, n + 1);

	memcpy(sent, r->sent, n * sizeof *sent);
	g->dry = true;
	g->passed = 0;
	bool ok = run(r) && !comm_failed(r->rt->comm);

	g->dry = false;
	g->pace = g->passed / MOST_MARKS + 1;
	memcpy(r->sent, sent, n * sizeof *sent);
	memset(r->turns, 0, sizeof r->turns);
	g->places++; /* of all ranks, whether theirs have grown or not: NCCL wants all to capture a step, or none */
	return ok && gpu_rooms(g);
}

static bool put_in_order(struct gpu *g, bool (*run)(struct rank *))
{
	g->now->reports.n = 0;
	marks_begin(g);
	return fork_streams(g) && run(g->r) && !comm_failed(g->r->rt->comm) && marks_end(g) && join_streams(g);
}

static void forget(struct replay *x)
{
	if (x->exec)
		lib.cuGraphExecDestroy(x->exec);
	if (x->graph)
		lib.cuGraphDestroy(x->graph);
	x->exec = NULL;
	x->graph = NULL;
}

void replay_close(struct gpu *g)
{
	forget(&g->replay[0]);
	forget(&g->replay[1]);
}

/* What a step sends is counted while it is read; a replay sends the same. */
static void note_counts(struct gpu *g, double sign)
{
	uint32_t n = g->r->rt->senders.n;
	struct replay *x = g->now;

	if (!x->sent)
		x->sent = NEWN(g->mem, struct tally, n + 1);
	for (uint32_t i = 0; i < n; i++) {
		x->sent[i].count = (sign > 0 ? x->sent[i].count : 0) + sign * g->r->sent[i].count;
		x->sent[i].bytes = (sign > 0 ? x->sent[i].bytes : 0) + sign * g->r->sent[i].bytes;
	}
}

static void count_replay(struct gpu *g)
{
	for (uint32_t i = 0; i < g->r->rt->senders.n; i++) {
		g->r->sent[i].count += g->now->sent[i].count;
		g->r->sent[i].bytes += g->now->sent[i].bytes;
	}
}

static bool capture(struct gpu *g, bool (*run)(struct rank *))
{
	struct replay *x = g->now;

	forget(x);
	note_counts(g, -1);
	if (!CU(g, cuStreamBeginCapture, g->compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
		return false;
	bool ok = put_in_order(g, run);
	CUresult e = lib.cuStreamEndCapture(g->compute, &x->graph);

	note_counts(g, 1);
	x->places = g->places;
	return ok && cu_ok(g, e, "cuStreamEndCapture") && CU(g, cuGraphInstantiate, &x->exec, x->graph, 0);
}

/* Within so many seconds. */
static bool comes_to_rest(const struct gpu *g, double seconds)
{
	double end = seconds_now() + seconds;

	while (lib.cuStreamQuery(g->compute) == CUDA_ERROR_NOT_READY)
		if (seconds_now() > end)
			return false;
		else
			nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
	return true;
}

static void give_up(struct gpu *g)
{
	replay_close(g);
	comms_abort(g);
	if (g->r->rt->here >= 0) {
		struct span at;

		meet_break(meet_of(g), comm_error(g->r->rt->comm, &at));
	}
	g->hung |= !comes_to_rest(g, 1);
}

static bool begin_step(struct gpu *g)
{
	const struct runtime *rt = g->r->rt;

	*g->step_host = (struct ptc_step){ rt->seed, (uint32_t)rt->step, rt->training };
	__atomic_store_n(g->mark, 0, __ATOMIC_RELEASE); /* the device is idle */
	return gpu_enter(g) && CU(g, cuMemcpyHtoDAsync, g->step, g->step_host, sizeof *g->step_host, g->compute);
}

static bool issue(struct gpu *g, bool (*run)(struct rank *))
{
	struct replay *x = g->now;

	if (x->exec && x->places == g->places) {
		pack_inputs(g);
		count_replay(g);
		return CU(g, cuGraphLaunch, x->exec, g->compute);
	}
	if (!x->runs++ && !foresee(g, run))
		return false;
	if (x->runs == 1 || !((struct cuda *)g->r->rt->own)->graphs)
		return put_in_order(g, run);
	return capture(g, run) && CU(g, cuGraphLaunch, x->exec, g->compute);
}

void cuda_step(struct rank *r, bool (*run)(struct rank *))
{
	struct gpu *g = gpu_of(r);

	g->now = &g->replay[r->rt->training];
	memset(r->turns, 0, sizeof r->turns);
	r->op = NULL;
	if (begin_step(g) && issue(g, run) && wait_for_device(g))
		give_reports(g);
	else
		give_up(g);
}
