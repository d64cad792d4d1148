/* ir/software.c - the table of switches, and presets by stack and era.
 *
 * What a preset says of a stack is read from its sources and recipes, as far as they are public: which kernels
 * there were when, what is fused, what overlaps. Where a recipe differs, a plan sets the switch. */
#include "ir/software.h"

#include <stddef.h>
#include <string.h>

const struct switch_info switches[NSWITCH] = {
	[SW_ATTENTION] = { "attention", { "best", "unfused", "fa1", "fa2", "fa3", "fp8" } },
	[SW_ELEMENTWISE] = { "elementwise", { "plan", "fused", "xla", "compiled", "eager" } },
	[SW_LOSS] = { "loss", { "plan", "fused", "eager", "fp32" } },
	[SW_GRAPHS] = { "graphs", { "on", "off", "blocking", "dense" } },
	[SW_GEMM] = { "gemm", { "plan", "fp8", "fp4" } },
	[SW_TP] = { "tp_overlap", { "plan", "on", "off" } },
	[SW_PREFETCH] = { "prefetch", { "plan", "on", "off" } },
	[SW_DP] = { "dp_overlap", { "plan", "on", "off" } },
	[SW_EP] = { "ep_overlap", { "plan", "on", "off" } },
	[SW_DISPATCH] = { "dispatch", { "once", "each", "even" } },
	[SW_EXPERTS] = { "experts", { "plan", "fused" } },
	[SW_P2P] = { "p2p", { "async", "blocking", "single" } },
	[SW_SCATTER] = { "p2p_scatter", { "off", "on" } },
	[SW_GRADS] = { "grads", { "plan", "bf16" } },
	[SW_RECOMPUTE] = { "recompute", { "plan", "whole" } },
};

#define STACK(NAME, ATTENTION, ELEMENTWISE, LOSS, GRAPHS, TP, PREFETCH, DP, P2P, SCATTER, GRADS, RECOMPUTE) \
	{ NAME, { [SW_ATTENTION] = ATTN_##ATTENTION, [SW_ELEMENTWISE] = ELEM_##ELEMENTWISE, [SW_LOSS] = LOSS_##LOSS, \
		  [SW_GRAPHS] = GRAPHS_##GRAPHS, [SW_TP] = OVERLAP_##TP, [SW_PREFETCH] = OVERLAP_##PREFETCH, \
		  [SW_DP] = OVERLAP_##DP, [SW_EP] = OVERLAP_OFF, [SW_P2P] = P2P_##P2P, [SW_SCATTER] = SCATTER_##SCATTER, [SW_GRADS] = GRADS_##GRADS, \
		  [SW_RECOMPUTE] = RECOMPUTE_##RECOMPUTE } }

const struct software presets[] = {
	/*                      attention elementwise loss graphs tp prefetch dp   p2p  scatter  grads recompute */
	/* Megatron-LM before flash attention: fused softmax and layer norm, loss in fp32, all collectives in line. */
	STACK("megatron_2019",  UNFUSED, FUSED,    FP32,  OFF, OFF, ON, OFF, BLOCKING, ON, BF16, WHOLE),
	STACK("megatron_2021",  UNFUSED, FUSED,    FP32,  OFF, OFF, ON, OFF, BLOCKING, ON, PLAN, WHOLE),
	/* DeepSpeed's pipeline beside it sends whole activations from each rank, and a message at a time
	 * (TrainSchedule in runtime/pipe/schedule.py: RecvActivation, SendGrad, each blocks both stages). */
	STACK("deepspeed_2021", UNFUSED, FUSED,    FP32,  OFF, OFF, ON, OFF, SINGLE,   OFF, PLAN, WHOLE),
	/* NeMo and Megatron-Core with Transformer Engine, user buffers for tensor parallelism. */
	STACK("nemo_2024",      FA3,     FUSED,    FUSED, OFF, ON,  ON, ON,  ASYNC,    ON, BF16, WHOLE),
	STACK("nvidia_2025",    FA3,     FUSED,    FUSED, OFF, ON,  ON, ON,  ASYNC,    ON, BF16, WHOLE),
	STACK("nvidia_2026",    FA3,     FUSED,    FUSED, ON,  ON,  ON, ON,  ASYNC,    ON, BF16, WHOLE),
	/* PyTorch: FSDP with flash attention 2; llm-foundry; torchtitan is torch_compiled. */
	STACK("llm_foundry",    FA1,     EAGER,    EAGER, OFF, OFF, ON, ON,  ASYNC,    ON, PLAN, WHOLE),
	STACK("torch_eager",    FA2,     EAGER,    EAGER, OFF, OFF, ON, ON,  ASYNC,    ON, PLAN, WHOLE),
	STACK("torch_compiled", FA2,     COMPILED, EAGER, OFF, OFF, ON, ON,  ASYNC,    ON, PLAN, WHOLE),
	STACK("nanotron",       FA2,     EAGER,    EAGER, OFF, OFF, ON, OFF, BLOCKING, ON, PLAN, WHOLE),
	/* XLA: MaxText, PAX. */
	STACK("jax",            FA3,     XLA,      FUSED, OFF, ON,  ON, ON,  ASYNC,    ON, PLAN, PLAN),
	STACK("llmc",           FA3,     XLA,      PLAN,  ON,  OFF, ON, ON,  ASYNC,    ON, BF16, PLAN),
	{ 0 },
};

const struct software *find_preset(const char *name)
{
	for (const struct software *s = presets; s->name; s++)
		if (strcmp(s->name, name) == 0)
			return s;
	return NULL;
}

int find_switch(const char *name)
{
	for (int i = 0; i < NSWITCH; i++)
		if (strcmp(switches[i].name, name) == 0)
			return i;
	return -1;
}

int find_word(int sw, const char *word)
{
	for (int i = 0; switches[sw].word[i]; i++)
		if (strcmp(switches[sw].word[i], word) == 0)
			return i;
	return -1;
}
