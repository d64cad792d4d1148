/* ir/software.h - the software that a plan is priced for: switches, each with a few words, and presets that
 * bundle them. They change estimates only, never the plan. */
#ifndef PTC_SOFTWARE_H
#define PTC_SOFTWARE_H
#include <stdint.h>

/* In each, word 0 is what our own runtime does: as the plan's ops say. */
enum switch_no {
	SW_ATTENTION,   /* which kernels make scores */
	SW_ELEMENTWISE, /* how well ops on each element are fused, and what a launch costs the host */
	SW_LOSS,        /* the same of what stands outside of all layers */
	SW_GRAPHS,      /* are launches recorded, issued ahead, or each waited for? */
	SW_GEMM,        /* width of the products with weights in layers */
	SW_TP,          /* do collectives on activations overlap the products beside them? */
	SW_PREFETCH,    /* are params gathered ahead of their use, and gradients reduced behind it? */
	SW_DP,          /* do reductions at the end of a step overlap backward? */
	SW_EP,          /* do exchanges of tokens overlap compute? */
	SW_DISPATCH,    /* does a token cross to a node once, or once for each expert there? */
	SW_EXPERTS,     /* is what stands between the products of experts a part of them? */
	SW_P2P,         /* do stages go on while they send? if not, do they send and get at once? */
	SW_SCATTER,     /* do ranks of a stage that hold the same send a part each, to be gathered there? */
	SW_GRADS,       /* width in which gradients are reduced and kept */
	SW_RECOMPUTE,   /* what a layer without stash does again */
	NSWITCH
};

enum { ATTN_BEST, ATTN_UNFUSED, ATTN_FA1, ATTN_FA2, ATTN_FA3, ATTN_FP8 };
enum { ELEM_PLAN, ELEM_FUSED, ELEM_XLA, ELEM_COMPILED, ELEM_EAGER };
enum { LOSS_PLAN, LOSS_FUSED, LOSS_EAGER, LOSS_FP32 };
enum { GRAPHS_ON, GRAPHS_OFF, GRAPHS_BLOCKING, GRAPHS_DENSE };
enum { GEMM_PLAN, GEMM_FP8, GEMM_FP4 };
enum { OVERLAP_PLAN, OVERLAP_ON, OVERLAP_OFF };
enum { DISPATCH_ONCE, DISPATCH_EACH, DISPATCH_EVEN };
enum { EXPERTS_PLAN, EXPERTS_FUSED };
enum { P2P_ASYNC, P2P_BLOCKING, P2P_SINGLE };
enum { SCATTER_OFF, SCATTER_ON };
enum { GRADS_PLAN, GRADS_BF16 };
enum { RECOMPUTE_PLAN, RECOMPUTE_WHOLE };

struct software {
	const char *name; /* of the preset; NULL: our own runtime */
	uint8_t at[NSWITCH];
};

enum { MOST_WORDS = 7 };
struct switch_info {
	const char *name, *word[MOST_WORDS]; /* ends with NULL */
};
extern const struct switch_info switches[NSWITCH];
extern const struct software presets[]; /* ends with a NULL name */

const struct software *find_preset(const char *name); /* NULL: none */
int find_switch(const char *name);                    /* -1: none */
int find_word(int sw, const char *word);              /* -1: none */
#endif
