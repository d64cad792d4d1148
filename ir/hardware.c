/* ir/hardware.c - the figures of a machine, by the names that IR text gives them, in the order in which it lists them. */
#include <stddef.h>

#include "ir/ir.h"

#define AT(field) offsetof(struct hardware, field)

const struct hardware_figure hardware_figure[] = {
	{ "fp32", AT(fp32) }, { "bf16", AT(bf16) }, { "fp8", AT(fp8) }, { "fp4", AT(fp4) }, { "best16", AT(best16) },
	{ "best8", AT(best8) }, { "fa1", AT(fa1) }, { "fa2", AT(fa2) }, { "fa3", AT(fa3) }, { "attn8", AT(attn8) }, { "units", AT(units) },
	{ "watts", AT(watts) }, { "memory", AT(memory) }, { "bandwidth", AT(bandwidth) }, { "price", AT(price) },
	{ "host", AT(host) }, { "copy", AT(host_latency) }, { "cores", AT(cores) },
	{ "gemm32", AT(measured.gemm[0].rate) }, { "gemm32_rows", AT(measured.gemm[0].rows) },
	{ "gemm32_columns", AT(measured.gemm[0].columns) }, { "gemm32_depth", AT(measured.gemm[0].depth) }, { "gemm32_call", AT(measured.gemm[0].call) },
	{ "gemm16", AT(measured.gemm[1].rate) }, { "gemm16_rows", AT(measured.gemm[1].rows) },
	{ "gemm16_columns", AT(measured.gemm[1].columns) }, { "gemm16_depth", AT(measured.gemm[1].depth) }, { "gemm16_call", AT(measured.gemm[1].call) },
	{ "kernel", AT(measured.kernel.bandwidth) }, { "kernel_call", AT(measured.kernel.call) },
	{ "kernel_simple", AT(measured.kernel.simple) }, { "kernel_hard", AT(measured.kernel.hard) },
	{ "kernel_sum", AT(measured.kernel.sum) },
	{ "attention", AT(measured.attention.rate) }, { "attention_call", AT(measured.attention.call) },
	{ "attention_score", AT(measured.attention.score) }, { "attention_back", AT(measured.attention.back) },
	{ NULL, 0 },
};
