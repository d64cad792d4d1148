/* ir/ops.h - every operation of the IR, once.
 *
 * OP(CODE, "text", least operands, most operands, results, class, linear, "formula")
 *
 * class    what shape rule and what loops the op has (enum opclass in ir.h)
 * linear   which operands may be a pending sum together, the rest being resolved:
 *          NO none; ALL all of them; ONE any one; FIRST operand 0; REST all but operand 0.
 *          An operand that is whole where a pending one is asked for is made pending for free.
 *
 * Every op computes in float32 (double in the reference evaluator) and rounds once to the
 * type of its result. Operands and results are matched by the names of their dims; a MAP
 * broadcasts. Order of dims is order in memory, nothing else.
 */
/* -- leaves: no tensor operands; made again wherever they are read, in any sharding -- */
OP(READ,      "read",      0, 0, 1, LEAF, NO,   "the buffer {buf}: input, param, state or optimizer state")
OP(CONST,     "const",     0, 0, 1, LEAF, NO,   "{value} everywhere")
OP(INDEX,     "index",     0, 0, 1, LEAF, NO,   "r[i] = i, along {dim}")
OP(ITER,      "iter",      0, 0, 1, LEAF, NO,   "which iteration of the enclosing repeat over {dim} this is")
OP(STEP,      "step",      0, 0, 1, LEAF, NO,   "the training step, from 0")
OP(TRAINING,  "training",  0, 0, 1, LEAF, NO,   "1 in a training step, 0 in evaluation")
OP(RNG,       "rng",       0, 4, 1, LEAF, NO,   "uniform [0,1) by (seed, step, {key}, iterations = operands, row-major global index over {dims}); see rng.h")
/* -- pointwise, one operand -- */
OP(NEG,       "neg",       1, 1, 1, MAP, FIRST, "-a")
OP(CAST,      "cast",      1, 1, 1, MAP, FIRST, "a in the type of the result; float to int truncates")
OP(DETACH,    "detach",    1, 1, 1, MAP, FIRST, "a, without a gradient")
OP(EXP,       "exp",       1, 1, 1, MAP, NO,    "e^a")
OP(LOG,       "log",       1, 1, 1, MAP, NO,    "ln a")
OP(SQRT,      "sqrt",      1, 1, 1, MAP, NO,    "a^(1/2)")
OP(RSQRT,     "rsqrt",     1, 1, 1, MAP, NO,    "a^(-1/2)")
OP(TANH,      "tanh",      1, 1, 1, MAP, NO,    "tanh a")
OP(SIGMOID,   "sigmoid",   1, 1, 1, MAP, NO,    "1 / (1 + e^-a)")
OP(SIN,       "sin",       1, 1, 1, MAP, NO,    "sin a")
OP(COS,       "cos",       1, 1, 1, MAP, NO,    "cos a")
OP(ABS,       "abs",       1, 1, 1, MAP, NO,    "|a|")
OP(SIGN,      "sign",      1, 1, 1, MAP, NO,    "-1, 0 or 1")
OP(NOT,       "not",       1, 1, 1, MAP, NO,    "a == 0")
OP(RELU,      "relu",      1, 1, 1, MAP, NO,    "a > 0 ? a : 0")
OP(DRELU,     "drelu",     1, 1, 1, MAP, NO,    "a > 0 ? 1 : 0: the derivative of relu at a, as a float")
OP(SILU,      "silu",      1, 1, 1, MAP, NO,    "a * sigmoid(a)")
OP(DSILU,     "dsilu",     1, 1, 1, MAP, NO,    "the derivative of silu at a")
OP(GELU,      "gelu",      1, 1, 1, MAP, NO,    "{form} 0 erf: a/2 (1 + erf(a/sqrt 2)); 1 tanh: a/2 (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))); 2 quick: a sigmoid(1.702 a)")
OP(DGELU,     "dgelu",     1, 1, 1, MAP, NO,    "the derivative of gelu {form} at a")
/* -- pointwise, more operands -- */
OP(ADD,       "add",       2, 2, 1, MAP, ALL,   "a + b")
OP(SUB,       "sub",       2, 2, 1, MAP, ALL,   "a - b")
OP(MUL,       "mul",       2, 2, 1, MAP, ONE,   "a * b")
OP(DIV,       "div",       2, 2, 1, MAP, FIRST, "a / b, always a float")
OP(FLOORDIV,  "floordiv",  2, 2, 1, MAP, NO,    "floor(a / b)")
OP(MOD,       "mod",       2, 2, 1, MAP, NO,    "a - b * floor(a / b)")
OP(POW,       "pow",       2, 2, 1, MAP, NO,    "a^b")
OP(MIN,       "min",       2, 2, 1, MAP, NO,    "a < b ? a : b; NaN if either is")
OP(MAX,       "max",       2, 2, 1, MAP, NO,    "a > b ? a : b; NaN if either is")
OP(EQ,        "eq",        2, 2, 1, MAP, NO,    "a == b, a bool")
OP(NE,        "ne",        2, 2, 1, MAP, NO,    "a != b")
OP(LT,        "lt",        2, 2, 1, MAP, NO,    "a < b")
OP(LE,        "le",        2, 2, 1, MAP, NO,    "a <= b")
OP(GT,        "gt",        2, 2, 1, MAP, NO,    "a > b")
OP(GE,        "ge",        2, 2, 1, MAP, NO,    "a >= b")
OP(AND,       "and",       2, 2, 1, MAP, NO,    "a != 0 && b != 0")
OP(OR,        "or",        2, 2, 1, MAP, NO,    "a != 0 || b != 0")
OP(WHERE,     "where",     3, 3, 1, MAP, REST,  "c ? a : b (operands c, a, b)")
OP(ACCUM,     "accum",     1, 64, 1, MAP, ALL,  "a + b + ...: the contributions to one cotangent, or a sum of many terms")
/* -- sums and contractions -- */
OP(SUM,       "sum",       1, 1, 1, REDUCE, FIRST, "the sum over the dims that the result lacks")
OP(RMAX,      "rmax",      1, 1, 1, REDUCE, NO,    "the largest over the dims that the result lacks; pending is max")
OP(EINSUM,    "einsum",    2, 2, 1, EINSUM, ONE,   "the product, summed over the dims that the result lacks")
/* -- indexed -- */
OP(LOOKUP,    "lookup",    2, 8, 1, LOOKUP, FIRST, "r[..] = a[{dims}[0] = i0, ...]; dims that a and i share are matched; an index out of range reads 0")
OP(SCATTER,   "scatter_add", 2, 8, 1, SCATTER, FIRST, "the transpose: r[{dims}[0] = i0, ...] += a; dims of a or i that r lacks are summed away; rows out of range are dropped")
/* -- positions of elements: ints, no gradient, nothing pending -- */
OP(ARGMAX,    "argmax",    1, 1, 1, PICK, NO, "the position along {dim} of the largest; of equals the first")
OP(TOPK,      "topk",      1, 1, 1, PICK, NO, "the positions along {dim} of the size({to}) largest, largest first; of equals the first. {dim} becomes {to}")
OP(RANK,      "rank",      1, 1, 1, PICK, NO, "how many earlier elements along {dims} (row-major in the order of the list) equal this one; a is an int")
/* -- views: the same numbers under other names -- */
OP(RENAME,    "rename",    1, 1, 1, VIEW, FIRST, "dim {dims}[k] is called {tos}[k]; same sizes")
OP(SPLIT,     "split",     1, 1, 1, VIEW, FIRST, "dim {dim} becomes {tos}, major first; sizes multiply")
OP(MERGE,     "merge",     1, 1, 1, VIEW, FIRST, "dims {dims}, major first, become {to}")
OP(SLICE,     "slice",     1, 1, 1, VIEW, FIRST, "r[{to} = i] = a[{dim} = {start} + {stride} i], 0 where that is out of range")
OP(PAD,       "pad",       1, 1, 1, VIEW, FIRST, "the transpose of slice: r[{to} = {start} + {stride} i] = a[{dim} = i], else 0")
OP(ROLL,      "roll",      1, 1, 1, VIEW, FIRST, "r[{dim} = i] = a[{dim} = (i + {shift}) mod size]")
/* -- attention: docs/LANGUAGE.md is its meaning; flash kernels are how it runs -- */
OP(ATTENTION, "attention", 3, 10, 2, ATTN, NO,
   "q, k, v, then by {extra} (bits, see attn_extra) a bias 1, a mask 2, a window 4, then iterations of the dropout key: u = q.k over {dim} * {scale}; {cap}: cap*tanh(u/cap); + bias; -inf where not mask, where {causal} is set and index({ctx}) > index({causal}), or index({causal}) - index({ctx}) >= window; softmax over {ctx}; dropout {p} by {key} over {dims}; times v. Results o and lse (f32, natural log of the sum of exp u; -inf for a row without keys, whose o is 0). {axes}: the axes that split k and v along {ctx}; the op sees the keys of all of them")
OP(ATTENTION_GRAD, "attention_grad", 6, 13, 3, ATTN, NO,
   "q, k, v[, bias][, mask][, window], o, lse, do[, iterations]: dq, dk, dv[, dbias: f32, where {extra} has 1]. {axes}: as above; over those of them that do not split q, dq is pending")
/* -- regions -- */
OP(REPEAT,    "repeat",    0, 4096, 0, REGION, NO,
   "a loop over {dim}, {reverse} from the last iteration. Operands: {ncarry} initial values, {nwith} invariants, the rest is sliced by iteration. Body args in that order. Yields: carried values, then one value a result that is stacked along {dim}. {acc} bit k: stacked result k is added up over the microbatches")
OP(KERNEL,    "kernel",    0, 4096, 0, REGION, NO, "a group of ops that becomes one generated kernel; body args are the operands")
/* -- the step -- */
OP(ACCUMULATE,"accumulate",1, 1, 1, STEP, FIRST, "the sum over the microbatches: += into a buffer of the step; its result is read by the epilogue only")
OP(WRITE,     "write",     1, 1, 0, STEP, NO,   "the buffer {buf} holds a from the next step on")
OP(REPORT,    "report",    1, 1, 0, STEP, NO,   "the scalar a is shown as {key}")
OP(MINIMIZE,  "minimize",  2, 8, 0, STEP, NO,   "train {buf} by {opt} in norm group {group}; operands: loss, then the options (see optimizer.c)")
OP(TRAIN,     "train",     2, 8, 0, STEP, NO,   "the same with the gradient in place of the loss")
/* -- collectives and their free twins, over {axes} -- */
OP(ALL_GATHER,"all_gather",1, MAX_BUCKET, 1, COMM, FIRST, "the last axis of {dim}'s list leaves it. A bucket has many operands and as many results, and no {dim}: see comm_dim. {async}: it only starts, and its one reader is a wait; so may any of these four, and the copies below. {ahead}, of slices in a loop: that of the next iteration may start as soon as this one is there, so there are two places for the result, used in turn")
OP(REDUCE_SCATTER,"reduce_scatter",1, MAX_BUCKET, 1, COMM, NO, "a pending sum over the axis becomes the last axis of {dim}; a bucket as in all_gather")
OP(ALL_REDUCE,"all_reduce",1, MAX_BUCKET, 1, COMM, NO,    "pending axes are resolved, all as one group; {max}: by maximum; a bucket as in all_gather")
OP(ALL_TO_ALL,"all_to_all",1, 1, 1, COMM, FIRST, "the last axis of {dim} becomes the last of {to}")
OP(WAIT,      "wait",      1, MAX_BUCKET, 1, COMM, FIRST, "the results of one op with {async}, all of them in their order; until then nobody reads them, and the operands stay as they are")
OP(SHARD,     "shard",     1, 1, 1, COMM, FIRST, "the axis becomes the last of {dim}: each rank keeps its part, nothing is sent")
OP(TO_PARTIAL,"to_partial",1, 1, 1, COMM, FIRST, "a whole value becomes a pending one: zero (-inf for {max}) where the coordinate on the axes is not 0")
/* -- copies between the memories of host and device -- */
OP(FROM_HOST, "from_host", 1, 1, 1, HOST, NO,   "a, a buffer in host memory or a row of one, on the device. {async} and {ahead} as in all_gather")
OP(TO_HOST,   "to_host",   1, 1, 1, HOST, NO,   "a, in the buffer in host memory that it is written to; {async}: the write comes behind the wait")
