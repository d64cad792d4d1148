/* kernels.c - kernels run: memory, shared memory, barriers, shuffles, votes, atomics, tensor cores, asynchronous copies. */
#include "tests/softgpu/programs/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char source[] =
	"struct how { int pad[3]; float by; const float *plus; };\n"
	"extern \"C\" __global__ void axpy(float *y, const float *x, int64_t n, how h)\n"
	"{\n"
	"	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;\n"
	"	if (i < n)\n"
	"		y[i] = h.by * x[i] + h.plus[i];\n"
	"}\n"
	"extern \"C\" __global__ void rowsum(float *y, const float *x, int cols)\n"
	"{\n"
	"	PTC_DYN_SHARED(float, part);\n"
	"	float s = 0;\n"
	"	for (int c = threadIdx.x; c < cols; c += blockDim.x)\n"
	"		s += x[blockIdx.x * cols + c];\n"
	"	for (int m = 16; m; m >>= 1)\n"
	"		s += __shfl_xor_sync(0xffffffff, s, m);\n"
	"	if (threadIdx.x % 32 == 0)\n"
	"		part[threadIdx.x / 32] = s;\n"
	"	__syncthreads();\n"
	"	if (threadIdx.x == 0) {\n"
	"		s = 0;\n"
	"		for (int w = 0; w < blockDim.x / 32; w++)\n"
	"			s += part[w];\n"
	"		y[blockIdx.x] = s;\n"
	"	}\n"
	"}\n"
	"extern \"C\" __global__ void votes(unsigned *y)\n"
	"{\n"
	"	int i = threadIdx.x;\n"
	"	unsigned b = __ballot_sync(0xffffffff, i % 3 == 0), n = __syncthreads_count(i < 40);\n"
	"	int all = __syncthreads_and(i < 64), any = __syncthreads_or(i == 63);\n"
	"	int up = __shfl_up_sync(0xffffffff, i, 1), down = __shfl_down_sync(0xffffffff, i, 1), first = __shfl_sync(0xffffffff, i, 0, 8);\n"
	"	y[6 * i] = b; y[6 * i + 1] = n; y[6 * i + 2] = all * 2 + any;\n"
	"	y[6 * i + 3] = up; y[6 * i + 4] = down; y[6 * i + 5] = first;\n"
	"	atomicAdd(y + 384, 1u);\n"
	"	atomicMax(y + 385, (unsigned)i);\n"
	"	atomicAdd((float *)y + 386, 0.5f);\n"
	"}\n"
	/* C (16 x 8) += A (16 x 32) B^T (8 x 32), all in rows */
	"extern \"C\" __global__ void mma(float *c, const uint16_t *a, const uint16_t *b)\n"
	"{\n"
	"	PTC_DYN_SHARED(uint16_t, s);\n"
	"	int lane = threadIdx.x, g = lane / 4, t = lane % 4;\n"
	"	uint16_t *sa = s, *sb = s + 16 * 32;\n"
	"	for (int i = lane; i < 64; i += 32)\n"
	"		ptc_cp_async16(sa + 8 * i, a + 8 * i);\n"
	"	ptc_cp_async16(sb + 8 * lane, b + 8 * lane);\n"
	"	ptc_cp_commit();\n"
	"	ptc_cp_wait<0>();\n"
	"	__syncwarp();\n"
	"	float d[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};\n"
	"	for (int k = 0; k < 32; k += 16) {\n"
	"		uint32_t fa[4], fb[2];\n"
	"		ptc_ldmatrix_x4(fa, sa + (lane % 16) * 32 + k + 8 * (lane / 16));\n"
	"		ptc_ldmatrix_x2(fb, sb + (lane % 8) * 32 + k + 8 * (lane / 8 % 2));\n"
	"		ptc_mma_bf16_16816(d, fa, fb);\n"
	"	}\n"
	"	c[g * 8 + 2 * t] = d[0]; c[g * 8 + 2 * t + 1] = d[1];\n"
	"	c[(g + 8) * 8 + 2 * t] = d[2]; c[(g + 8) * 8 + 2 * t + 1] = d[3];\n"
	"}\n"
	/* through the transposing load: B is 32 x 8, in rows */
	"extern \"C\" __global__ void transposed(unsigned *r, const uint16_t *b)\n"
	"{\n"
	"	PTC_DYN_SHARED(uint16_t, s);\n"
	"	int lane = threadIdx.x;\n"
	"	*(uint4 *)(s + 8 * lane) = *(const uint4 *)(b + 8 * lane);\n"
	"	__syncwarp();\n"
	"	ptc_ldmatrix_x4_trans(r + 4 * lane, s + 8 * lane);\n"
	"}\n";

struct how {
	int pad[3];
	float by;
	CUdeviceptr plus;
};

static float index_of(int i)
{
	return (float)i;
}

static float wave(int i)
{
	return (float)(i * 37 % 101) / 50 - 1;
}

static void test_axpy(CUmodule m)
{
	int64_t n = 1000;
	CUdeviceptr x = floats(1000, index_of), z = floats(1000, wave), y = alloc(4000);
	struct how h = {.by = 2, .plus = z};
	float got[1000];
	LAUNCH(function(m, "axpy"), 8, 128, 0, NULL, &y, &x, &n, &h);
	CU(cuMemcpyDtoH(got, y, sizeof got));
	for (int i = 0; i < 1000; i++)
		CHECK(fabsf(got[i] - (2 * (float)i + wave(i))) <= 1e-6f * (float)(i + 1));
}

static void test_rowsum(CUmodule m)
{
	int cols = 300;
	CUdeviceptr x = floats(5 * cols, wave), y = alloc(20);
	float got[5];
	LAUNCH(function(m, "rowsum"), 5, 128, 16, NULL, &y, &x, &cols);
	CU(cuMemcpyDtoH(got, y, sizeof got));
	for (int r = 0; r < 5; r++) {
		double s = 0;
		for (int c = 0; c < cols; c++)
			s += wave(r * cols + c);
		CHECK(fabs(got[r] - s) <= 1e-4);
	}
}

static void test_votes(CUmodule m)
{
	CUdeviceptr y = alloc(387 * 4);
	unsigned got[387];
	CU(cuMemsetD32Async(y, 0, 387, NULL));
	LAUNCH(function(m, "votes"), 1, 64, 0, NULL, &y);
	CU(cuMemcpyDtoH(got, y, sizeof got));
	for (unsigned i = 0; i < 64; i++) {
		const unsigned *r = got + 6 * i;
		CHECK(r[0] == (i < 32 ? 0x49249249u : 0x92492492u));
		CHECK(r[1] == 40 && r[2] == 3);
		CHECK(r[3] == (i % 32 ? i - 1 : i) && r[4] == (i % 32 == 31 ? i : i + 1) && r[5] == i / 8 * 8);
	}
	float half;
	memcpy(&half, got + 386, 4);
	CHECK(got[384] == 64 && got[385] == 63 && half == 32);
}

static uint16_t bf16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return (uint16_t)(u >> 16);
}

/* Small integers: exact in bf16. */
static float small(int i)
{
	return (float)(i * 29 % 17 - 8);
}

static CUdeviceptr upload_bf16(int n)
{
	uint16_t x[1024];
	for (int i = 0; i < n; i++)
		x[i] = bf16(small(i));
	CUdeviceptr p = alloc((size_t)n * 2);
	CU(cuMemcpyHtoD(p, x, (size_t)n * 2));
	return p;
}

static void test_mma(CUmodule m)
{
	CUdeviceptr a = upload_bf16(16 * 32), b = upload_bf16(8 * 32), c = floats(128, index_of);
	float got[128];
	LAUNCH(function(m, "mma"), 1, 32, (16 + 8) * 32 * 2, NULL, &c, &a, &b);
	CU(cuMemcpyDtoH(got, c, sizeof got));
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 8; j++) {
			float want = (float)(i * 8 + j);
			for (int k = 0; k < 32; k++)
				want += small(i * 32 + k) * small(j * 32 + k);
			CHECK(got[i * 8 + j] == want);
		}
}

static void test_transposed(CUmodule m)
{
	CUdeviceptr b = upload_bf16(256), r = alloc(512);
	unsigned got[128];
	LAUNCH(function(m, "transposed"), 1, 32, 512, NULL, &r, &b);
	CU(cuMemcpyDtoH(got, r, sizeof got));
	for (int lane = 0; lane < 32; lane++)
		for (int q = 0; q < 4; q++) {
			int row = 8 * q + 2 * (lane % 4), col = lane / 4;
			CHECK(got[4 * lane + q] == (bf16(small(row * 8 + col)) | (unsigned)bf16(small(row * 8 + 8 + col)) << 16));
		}
}

int main(void)
{
	open_api();
	CUmodule m = compile(source);
	test_axpy(m);
	test_rowsum(m);
	test_votes(m);
	test_mma(m);
	test_transposed(m);
	CU(cuModuleUnload(m));
	return 0;
}
