/* collectives.c - every NCCL call on 4 ranks, in fp32, bf16 and int32, in place and not, in groups,
 * and captured into a graph with work on a second stream. */
#include "tests/softgpu/programs/test.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4, LEN = 12 };
static ncclUniqueId id;

static ncclComm_t join(int rank)
{
	ncclComm_t c;
	DO(ncclCommInitRank(&c, N, id, rank));
	return c;
}

static CUdeviceptr ramp(int n, float from)
{
	float x[256];
	for (int i = 0; i < n; i++)
		x[i] = from + (float)i;
	CUdeviceptr p = alloc((size_t)n * 4);
	CU(cuMemcpyHtoD(p, x, (size_t)n * 4));
	return p;
}

static void expect(CUdeviceptr p, int n, const float *want, int line)
{
	float got[256];
	CU(cuMemcpyDtoH(got, p, (size_t)n * 4));
	for (int i = 0; i < n; i++)
		if (!(got[i] == want[i])) {
			fprintf(stderr, "element %d: %g, expected %g\n", i, (double)got[i], (double)want[i]);
			fail(__FILE__, line, "result", -1);
		}
}
#define EXPECT(p, n, value) \
	do { \
		float want_[256]; \
		for (int i = 0; i < (n); i++) \
			want_[i] = (float)(value); \
		expect(p, n, want_, __LINE__); \
	} while (0)

/* Rank r sends 100 r + i. */
static void all_kinds(ncclComm_t c, int rank, CUstream s)
{
	CUdeviceptr x = ramp(LEN, 100.0f * (float)rank), y = alloc(LEN * N * 4);
	DO(ncclAllReduce((void *)x, (void *)y, LEN, ncclFloat32, ncclSum, c, s));
	CU(cuStreamSynchronize(s));
	EXPECT(y, LEN, 600 + 4 * i);
	DO(ncclAllReduce((void *)x, (void *)y, LEN, ncclFloat32, ncclMax, c, s));
	CU(cuStreamSynchronize(s));
	EXPECT(y, LEN, 300 + i);
	DO(ncclAllReduce((void *)x, (void *)y, LEN, ncclFloat32, ncclAvg, c, s));
	CU(cuStreamSynchronize(s));
	EXPECT(y, LEN, 150 + i);
	DO(ncclAllGather((void *)x, (void *)y, LEN, ncclFloat32, c, s));
	CU(cuStreamSynchronize(s));
	EXPECT(y, LEN * N, 100 * (i / LEN) + i % LEN);
	DO(ncclReduceScatter((void *)x, (void *)y, LEN / N, ncclFloat32, ncclSum, c, s));
	CU(cuStreamSynchronize(s));
	EXPECT(y, LEN / N, 600 + 4 * (rank * (LEN / N) + i));
	DO(ncclBroadcast((void *)x, (void *)y, LEN, ncclFloat32, 2, c, s));
	CU(cuStreamSynchronize(s));
	EXPECT(y, LEN, 200 + i);
	DO(ncclReduce((void *)x, (void *)y, LEN, ncclFloat32, ncclSum, 1, c, s));
	CU(cuStreamSynchronize(s));
	if (rank == 1)
		EXPECT(y, LEN, 600 + 4 * i);
	DO(ncclAllReduce((void *)x, (void *)x, LEN, ncclFloat32, ncclMin, c, s));       /* in place */
	CU(cuStreamSynchronize(s));
	EXPECT(x, LEN, i);
}

static void in_place_gather(ncclComm_t c, int rank, CUstream s)
{
	CUdeviceptr y = ramp(LEN, -1), mine = y + (CUdeviceptr)rank * LEN / N * 4;
	CUdeviceptr x = ramp(LEN / N, 10.0f * (float)rank);
	CU(cuMemcpyDtoDAsync(mine, x, LEN / N * 4, s));
	DO(ncclAllGather((void *)mine, (void *)y, LEN / N, ncclFloat32, c, s));
	CU(cuStreamSynchronize(s));
	EXPECT(y, LEN, 10 * (i / (LEN / N)) + i % (LEN / N));
	DO(ncclReduceScatter((void *)y, (void *)mine, LEN / N, ncclFloat32, ncclSum, c, s));
	CU(cuStreamSynchronize(s));
	EXPECT(mine, LEN / N, 4 * (10 * rank + i));
}

/* bf16: 256 + 1 is a tie that rounds to even at each rank. */
static void narrow(ncclComm_t c, int rank, CUstream s)
{
	uint16_t x = rank ? 0x3f80 : 0x4380, got;      /* 1, 256 */
	CUdeviceptr p = alloc(2);
	CU(cuMemcpyHtoD(p, &x, 2));
	DO(ncclAllReduce((void *)p, (void *)p, 1, ncclBfloat16, ncclSum, c, s));
	CU(cuStreamSynchronize(s));
	CU(cuMemcpyDtoH(&got, p, 2));
	CHECK(got == 0x4380);
	int32_t i = 1 << rank;
	CUdeviceptr q = alloc(4);
	CU(cuMemcpyHtoD(q, &i, 4));
	DO(ncclAllReduce((void *)q, (void *)q, 1, ncclInt32, ncclSum, c, s));
	CU(cuStreamSynchronize(s));
	CU(cuMemcpyDtoH(&i, q, 4));
	CHECK(i == 15);
}

/* Each sends its rank's row to each: an all-to-all, as one group. */
static void exchange(ncclComm_t c, int rank, CUstream s)
{
	CUdeviceptr x = ramp(LEN, 100.0f * (float)rank), y = alloc(LEN * 4);
	size_t part = LEN / N * 4;
	DO(ncclGroupStart());
	for (int p = 0; p < N; p++) {
		DO(ncclSend((void *)(x + (CUdeviceptr)p * part), LEN / N, ncclFloat32, p, c, s));
		DO(ncclRecv((void *)(y + (CUdeviceptr)p * part), LEN / N, ncclFloat32, p, c, s));
	}
	DO(ncclGroupEnd());
	CU(cuStreamSynchronize(s));
	EXPECT(y, LEN, 100 * (i / 3) + rank * 3 + i % 3);
	/* a ring, without a group: even ranks send first */
	int to = (rank + 1) % N, from = (rank + N - 1) % N;
	for (int k = 0; k < 2; k++)
		if (k == rank % 2)
			DO(ncclSend((void *)x, 1, ncclFloat32, to, c, s));
		else
			DO(ncclRecv((void *)y, 1, ncclFloat32, from, c, s));
	CU(cuStreamSynchronize(s));
	EXPECT(y, 1, 100 * from);
}

/* y = x, reduced on another stream, back, twice launched: x = 4 y each time. */
static void captured(ncclComm_t c, CUstream s)
{
	CUstream t = stream();
	CUevent there = event(), back = event();
	CUdeviceptr x = ramp(LEN, 1), y = alloc(LEN * 4);
	CUgraph g;
	CUgraphExec e;
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CU(cuMemcpyDtoDAsync(y, x, LEN * 4, s));
	CU(cuEventRecord(there, s));
	CU(cuStreamWaitEvent(t, there, 0));
	DO(ncclAllReduce((void *)y, (void *)y, LEN, ncclFloat32, ncclSum, c, t));
	CU(cuEventRecord(back, t));
	CU(cuStreamWaitEvent(s, back, 0));
	CU(cuMemcpyDtoDAsync(x, y, LEN * 4, s));
	CU(cuStreamEndCapture(s, &g));
	size_t nodes = 0;
	CU(cuGraphGetNodes(g, NULL, &nodes));
	CHECK(nodes == 3);
	CU(cuGraphInstantiate(&e, g, 0));
	CU(cuGraphDestroy(g));
	CU(cuGraphLaunch(e, s));
	CU(cuGraphLaunch(e, s));
	CU(cuStreamSynchronize(s));
	EXPECT(x, LEN, 16 * (1 + i));
	CU(cuGraphExecDestroy(e));
	CU(cuStreamDestroy(t));
}

static void run(int rank)
{
	ncclComm_t c = join(rank);
	CUstream s = stream();
	all_kinds(c, rank, s);
	in_place_gather(c, rank, s);
	narrow(c, rank, s);
	exchange(c, rank, s);
	captured(c, s);
	ncclResult_t error;
	DO(ncclCommGetAsyncError(c, &error));
	CHECK(!error);
	int n, r;
	DO(ncclCommCount(c, &n));
	DO(ncclCommUserRank(c, &r));
	CHECK(n == N && r == rank);
	DO(ncclCommDestroy(c));
}

int main(void)
{
	open_api();
	DO(ncclGetUniqueId(&id));
	ranks(N, run);
	return 0;
}
