/* passes/constants.h - the numbers of the cost model that are no figures of a machine, once.
 *
 * They are priors: set from the literature and from microbenchmarks before they met a published run. Moved after
 * that, for all sources at once, were HOST_LAUNCH (14e-6), EXCHANGE_SHARE (0.70), GEMM_FILL (a depth of 192 on all
 * parts), GROUPED_SHARE (0.85) and ATTENTION_BACK (0.85). Shares are of what a hardware block says. docs/COST.md says
 * how far predictions are off. */
#ifndef PTC_CONSTANTS_H
#define PTC_CONSTANTS_H

/* -- products -- */
#define GEMM_SHARE    0.92    /* of the best product measured, that good ones get within a step: clocks, cold caches */
#define GEMM_SHARE_FP4 0.80   /* and of that for fp4: its peak is hardly met by any shape */
#define GEMM_BEST     0.80    /* of the peak, where a machine's best is not known */
#define GEMM_BEST_FP8 0.71
#define GEMM_FILL     3.5e-6  /* seconds in which a tile's first operands come and its result goes, that no product hides */
#define GROUPED_SHARE 0.90    /* products of many experts in one launch, against one of their size and depth */
#define GROUPED_LAUNCH 0.18   /* launches that each of them is worth: some 4 us in a loop in C++ (Transformer Engine's GroupedLinear) */
#define GROUPED_CASTS 2.0     /* as many more of these for each, in fp8: an operand's extent, and the cast */
#define LAUNCH_TAIL   2e-6    /* seconds between two kernels of one stream */

/* -- memory -- */
#define MEMORY_SHARE  0.80    /* of the bandwidth, for work on each element (0.75 to 0.9 in calculon) */

/* -- attention: on top of the machine's share -- */
#define ATTENTION_SHARE 0.90
#define ATTENTION_BACK  0.80  /* the rate of backward, against forward's: 0.9 on A100, 0.75 to 0.85 on H100 (Dao 2023, Shah et al. 2024) */
#define ATTENTION_RAMP  95.0  /* keys met at which half of the rate is reached, where a unit gets 1 TFLOP/s; else by the root of that */
#define TILE_EDGE       64.0  /* keys too many at an edge of what a row meets: half a tile of 128 */
#define EXPONENTIALS  27e9    /* exponentials a second of one unit: 16 a clock, 1.4 to 1.9 GHz (Shah et al. 2024, section 3.2) */
#define ATTENTION_USUAL 0.60  /* of the peak, where a machine's kernels are not known */

/* -- the host -- */
#define HOST_LAUNCH   22e-6   /* seconds an op of a plan takes the host: 14 us a launch in PyTorch, which makes 16 to 22 of them
				 forward in a layer of a GPT, where a plan has 12 to 16 ops; was 14e-6 until runs of small models
				 on one node (vTrain) were predicted too fast */
#define RECORDED      0.05    /* of a launch, that it takes where it is a part of a CUDA graph */
#define HOST_COLLECTIVE 3.0   /* launches that issuing a collective is worth */
#define HOST_EXCHANGE 15.0    /* and an exchange of tokens: counts, sorting and permuting on both sides of it (Megatron-Core makes
				 some 30 launches in a layer of experts forward beside its products) */
#define HOST_LIBRARY  19.0    /* and a library's, by token_dispatcher.py of Megatron-Core: a router's 25 launches, 14 of counts, 11 of
				 sorting and 4 collectives forward, 35 backward, less what the plan has of these */

/* -- links -- */
#define LINK_SHARE    0.80    /* of a link within a node, as nccl-tests' bus bandwidth */
#define NET_SHARE     0.80    /* of a network card's line rate */
#define NET_CURVE     0.3     /* messages across nodes get at least this share of that */
#define EXCHANGE_SHARE 0.80   /* of a link's rate, for a library's all-to-all; 0.70 before published runs */
#define EXCHANGE_LINK 0.75    /* and of NVLink's before that */
#define DISPATCH_LINK 0.77    /* of NVLink's rate, for kernels made for tokens: 153 of 200 GB/s on H800 (DeepEP, README) */
#define DISPATCH_NET  0.90    /* of a network card's: 43 to 51 of 50 GB/s (the same), a token once to each node */
#define TP_EXPOSED    0.35    /* of collectives on activations, where software overlaps them with products */
#define EP_EXPOSED    0.10    /* of exchanges of tokens, likewise; the rest slows what hides it (CONTENTION) */
#define CONTENTION    0.19    /* seconds that compute is slowed by each second of a collective under it: 18.9 % on average
				 over A100, H100, MI210 and MI250 (Lee et al. 2025, arXiv:2507.03114) */
#define HIDE_MOST     0.90    /* of the last backward, that may hide reductions; of the first forward, gathers */
#define SHOW_LEAST    0.03    /* of such a collective, that is seen in any case */
#define RING_SHOWN    0.20    /* of a ring's sends, likewise, and the share of attention that hides the rest */
#define RING_HIDES    0.80

/* -- memory -- */
#define LIVE_LAYER    1.4     /* what is there while a layer is done again, over what its backward reads */

#define NARROW_KEPT   0.8     /* of what is kept, where products are in fp8: some of it in one byte */

/* -- all ranks -- */
#define JITTER        0.004   /* the slowest of n ranks: step *= 1 + JITTER log2(n / 8) */
#endif
