/* passes/price.c - what each op of a plan takes, by its shapes, the hardware and the software.
 *
 * Everything follows from the plan's own ops. Software differs from our runtime in what it launches as one
 * (products that share an operand), in how often bytes are moved, and in what is done again. */
#include "ir/epilogue.h"
#include "passes/pricing.h"

#include <math.h>

#include "ir/region.h"
#include "passes/constants.h"

const char *const time_name[NTIME] = {
	[T_PRODUCTS] = "products", [T_ATTENTION] = "attention", [T_MEMORY] = "memory", [T_HOST] = "host",
	[T_ACTIVATIONS] = "activations", [T_EXCHANGE] = "exchange", [T_RING] = "ring", [T_PARAMS] = "params", [T_GRADS] = "grads",
	[T_COPIES] = "copies",
};

bool op_in_loop(const struct op *op)
{
	return op->home->owner != NULL;
}

/* Does op work on tokens as they lie by expert, or bring them there or back? */
static bool of_experts(const struct pricing *p, const struct op *op)
{
	for (uint32_t i = 0; p->slot != NODIM && i < op->nin + op->nout; i++)
		if (has_dim(i < op->nin ? op->in[i] : op->out[i - op->nin], p->slot))
			return true;
	return false;
}

/* Work on elements between the products of experts, that these do on their way where software makes one kernel of all of it. */
static bool in_experts(const struct pricing *p, const struct op *op)
{
	if (software(p->m, SW_EXPERTS) != EXPERTS_FUSED || op->code != OP_KERNEL || !of_experts(p, op))
		return false;
	for (const struct op *o = op->body->first; o; o = o->next)
		if (o->code == OP_SCATTER || o->code == OP_LOOKUP)
			return false;
	return true;
}

/* -- products -- */

/* As seen from operand a (0 or 1): m is what only it has, n what only the other has. */
static struct gemm seen_from(struct gemm g, int a)
{
	if (a == 1) {
		double m = g.m;

		g.m = g.n;
		g.n = m;
		g.turned = !g.turned;
	}
	return g;
}

/* The products x and y read one operand, in one way: they run as one with n of both. */
static bool share_operand(const struct module *m, const struct op *x, const struct op *y, struct gemm *both)
{
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 2; k++) {
			struct gemm g = seen_from(*both, i), h = seen_from(product_of(m, y), k);

			if (root_of(x->in[i]) != root_of(y->in[k]) || g.batch != h.batch || g.m != h.m || g.k != h.k)
				continue;
			g.n += h.n;
			g.bytes += h.bytes - (double)local_bytes(m, y->in[k]);
			*both = seen_from(g, i);
			return true;
		}
	return false;
}

/* The reduction of what op makes, if that is all that is done with it. */
static const struct op *reduction_of(const struct op *op)
{
	const struct op *r = only_reader(op->out[0]);

	return r && (r->code == OP_REDUCE_SCATTER || r->code == OP_ALL_REDUCE) && r->nin == 1 ? r : NULL;
}

/* Who adds up what op makes, once it is reduced. */
static const struct op *adder_of(const struct op *op)
{
	const struct op *r = reduction_of(op), *reader = only_reader((r ? r : op)->out[0]);

	while (reader && ((reader->code == OP_WAIT && reader->nin == 1) || reader->code == OP_RENAME))
		reader = only_reader(reader->out[0]);
	return reader;
}

/* Their results are added at once: they run as one with k of both, and are reduced once. */
static bool share_result(const struct module *m, const struct op *x, const struct op *y, struct gemm *both)
{
	struct gemm h = product_of(m, y);
	const struct op *r = reduction_of(x), *s = reduction_of(y);

	if (!adder_of(x) || adder_of(x) != adder_of(y) || adder_of(x)->code != OP_KERNEL ||
	    both->batch != h.batch || both->m != h.m || both->n != h.n)
		return false;
	if (r || s) {
		if (!r || !s || r->code != s->code || comm_axes(r) != comm_axes(s))
			return false;
	}
	both->k += h.k;
	both->bytes += h.bytes - (double)local_bytes(m, y->out[0]);
	return true;
}

static double product(const struct gemm *g)
{
	return g->m * g->n * g->k * g->batch;
}

enum { MOST_MERGED = 8 };

/* Looks for products like first, behind it in its block, and gives all of them the note of one. */
static void merge_from(struct pricing *p, const struct op *first)
{
	const struct op *member[MOST_MERGED] = { first };
	struct gemm all = product_of(p->m, first);
	int n = 1;

	for (const struct op *op = first->next; op && n < MOST_MERGED; op = op->next) {
		if (op->code != OP_EINSUM || op->phase != first->phase || p->note[op->mark].share > 0)
			continue;
		if (!share_operand(p->m, first, op, &all)) {
			if (!share_result(p->m, first, op, &all))
				continue;
			if (reduction_of(op))
				p->note[reduction_of(op)->mark].merged = true;
		}
		member[n++] = op;
	}
	for (int i = 0; i < n; i++) {
		struct gemm own = product_of(p->m, member[i]);

		p->note[member[i]->mark].gemm = all;
		p->note[member[i]->mark].share = product(&all) > 0 ? product(&own) / product(&all) : 0;
	}
}

static void mark_readers(const struct block *b)
{
	for (const struct op *op = b->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
	for (struct op *op = b->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i]->def && op->in[i]->home == b)
				op->in[i]->aux = op->in[i]->mark++ ? NULL : op;
}

static void unmark(const struct block *b)
{
	for (const struct op *op = b->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = 0;
}

/* Products with weights in layers may run in fewer bits. Those of the router are in fp32, the head's in bf16. */
int op_width(const struct module *m, const struct op *op)
{
	return op_in_loop(op) && op->in[0]->dt == BF16 && op->in[1]->dt == BF16 ? software(m, SW_GEMM) : GEMM_PLAN;
}

/* Casts to fp8 and back, each value once: bytes of an operand forward, of a gradient backward, of a weight once a
 * step. From the passes over memory of Transformer Engine's fp8 modules. */
static double cast_bytes(const struct pricing *p, const struct op *op)
{
	bool again = HAS(op, again), forward = op->phase == FORWARD || again;
	double bytes = 0;
	int weight = op->in[0]->kind == K_PARAM ? 0 : op->in[1]->kind == K_PARAM ? 1 : -1;

	if (weight < 0)
		return 0;
	const struct value *x = op->in[1 - weight];
	if (root_of(x)->def && in_experts(p, root_of(x)->def)) /* comes out of the one before as it has to be */
		return 0;
	if (forward)
		bytes = 0.6 * 4 * (double)local_count(p->m, x) * p->note[op->mark].share + 2 * (double)local_count(p->m, op->in[weight]) / (double)p->m->micro;
	else
		bytes = 3.2 * (double)local_count(p->m, x);
	return bytes;
}

double memory_seconds(const struct module *m, double bytes)
{
	if (m->hw.measured.kernel.bandwidth > 0)
		return bytes / m->hw.measured.kernel.bandwidth;
	return m->hw.bandwidth > 0 ? bytes / (m->hw.bandwidth * MEMORY_SHARE) : 0;
}

static struct op_price price_einsum(const struct pricing *p, const struct op *op)
{
	const struct note *note = &p->note[op->mark];
	struct op_price x = { .kind = T_PRODUCTS, .launches = 1 };
	int width = op_width(p->m, op);

	if (note->gemm.m == 1 || note->gemm.n == 1 || note->gemm.k == 1) {
		x.kind = T_MEMORY;
		x.seconds = memory_seconds(p->m, op_local_bytes(p->m, op));
		return x;
	}
	x.seconds = gemm_price(p->m, &note->gemm, op->in[0]->dt, width) * note->share;
	x.launches = note->share;
	if (note->gemm.batch > 1) {
		double each = GROUPED_LAUNCH * (width == GEMM_PLAN ? 1 : 1 + GROUPED_CASTS);
		bool one = software(p->m, SW_ELEMENTWISE) == ELEM_PLAN || software(p->m, SW_EXPERTS) == EXPERTS_FUSED;

		x.seconds /= GROUPED_SHARE;
		x.launches += one ? 0 : note->share * note->gemm.batch * each;
	}
	if (width != GEMM_PLAN)
		x.extra = memory_seconds(p->m, cast_bytes(p, op));
	return x;
}

/* -- work on elements -- */

/* Other software keeps what passes between kernels in the width of the plan's precision, where ours saves casts. */
double passed_bytes(const struct module *m, const struct value *v)
{
	bool wide = v->dt == F32 && v->kind == K_INNER && m->precision == BF16 && software(m, SW_ELEMENTWISE) != ELEM_PLAN;

	return (double)local_bytes(m, v) / (wide ? 2 : 1);
}

/* A table that is only looked up in is not read whole. */
static double lookup_bytes(const struct module *m, const struct block *body, const struct value *table)
{
	double bytes = 0;

	for (const struct op *op = body->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i] == table) {
				if (op->code != OP_LOOKUP || i)
					return passed_bytes(m, table);
				bytes += (double)local_count(m, op->out[0]) * dtype_bytes(table->dt);
			}
	return fmin(bytes, (double)local_bytes(m, table));
}

static double moved_bytes(const struct module *m, const struct op *op)
{
	double bytes = 0;

	if (op->code == OP_LOOKUP)
		return op_local_bytes(m, op) - (double)local_bytes(m, op->in[0]) +
		       fmin((double)local_bytes(m, op->in[0]), (double)local_bytes(m, op->out[0]));
	if (op->code != OP_KERNEL)
		return op_local_bytes(m, op);
	for (uint32_t i = 0; i < op->nin; i++)
		bytes += lookup_bytes(m, op->body, op->body->args.at[i]);
	for (uint32_t i = 0; i < op->nout; i++)
		bytes += passed_bytes(m, op->out[i]);
	return bytes;
}

static bool of_loss(const struct pricing *p, const struct op *op)
{
	double most = 0;

	for (uint32_t i = 0; i < op->nin + op->nout; i++)
		most = fmax(most, (double)local_count(p->m, i < op->nin ? op->in[i] : op->out[i - op->nin]));
	return !op_in_loop(op) && (op->phase == FORWARD || op->phase == BACKWARD) && p->logits > 0 && most >= p->logits;
}

/* How often software moves the bytes that our kernels move once. */
static double traffic(const struct pricing *p, const struct op *op)
{
	static const double element[] = { [ELEM_PLAN] = 1, [ELEM_FUSED] = 0.95, [ELEM_XLA] = 0.85, [ELEM_COMPILED] = 0.80, [ELEM_EAGER] = 1 };
	/* bytes a logit, of ours 8: Transformer Engine's loss 20, PyTorch's 30, Megatron's in fp32 36 */
	static const double loss[] = { [LOSS_PLAN] = 1, [LOSS_FUSED] = 20. / 8, [LOSS_EAGER] = 30. / 8, [LOSS_FP32] = 36. / 8 };

	if (of_loss(p, op))
		return loss[software(p->m, SW_LOSS)];
	return op->phase == EPILOGUE ? 1 : element[software(p->m, SW_ELEMENTWISE)];
}

/* Is op what a product makes of its result, on a GPU that runs our plan? Then the product stores the kernel's result in place of its own,
 * or reads what the kernel would; what is left is the matrix beside. */
static bool in_product(const struct pricing *p, const struct op *op, double *bytes)
{
	struct epilogue e;

	if (p->m->hw.units <= 0 || software(p->m, SW_ELEMENTWISE) != ELEM_PLAN || !epilogue_pair(op, &e))
		return false;
	*bytes = 0;
	if (e.aux >= 0)
		*bytes += passed_bytes(p->m, op->in[e.aux]);
	if (e.kept >= 0)
		*bytes += passed_bytes(p->m, op->out[e.kept]);
	return true;
}

/* Does software launch a kernel for each op in op? The optimizer's and the loss's are known as a whole. */
static bool by_op(const struct pricing *p, const struct op *op)
{
	return op->code == OP_KERNEL && software(p->m, SW_ELEMENTWISE) == ELEM_EAGER && op->phase != EPILOGUE && !of_loss(p, op);
}

static struct op_price price_elements(const struct pricing *p, const struct op *op)
{
	double bytes;
	bool within = in_product(p, op, &bytes);

	if (in_experts(p, op))
		return (struct op_price){ .kind = T_MEMORY };
	if (!within)
		bytes = moved_bytes(p->m, op) * traffic(p, op);
	if (by_op(p, op))
		bytes = fmax(bytes, eager_bytes(p->m, op));
	if (p->m->hw.measured.kernel.bandwidth > 0 && !within)
		return (struct op_price){ .kind = T_MEMORY, .seconds = measured_kernel(p->m, op, bytes), .launches = 1 };
	return (struct op_price){ .kind = T_MEMORY, .seconds = bytes > 0 ? memory_seconds(p->m, bytes) : 0, .launches = !within };
}

/* Lies in another's storage, or in a place of its own from the start. */
bool op_is_free(const struct module *m, const struct op *op)
{
	return opinfo[op->code].class == C_LEAF || op->code == OP_WRITE || op->code == OP_REPORT || op->code == OP_WAIT || is_alias(m, op) ||
	       opinfo[op->code].class == C_HOST || (opinfo[op->code].class == C_COMM && !comm_sends(op->code));
}

struct op_price op_price(const struct pricing *p, const struct op *op)
{
	struct op_price x = { .kind = comm_sends(op->code) ? comm_kind(op) : T_MEMORY };

	if (write_copies(p->m, op) && software(p->m, SW_ELEMENTWISE) == ELEM_PLAN)
		x.seconds = memory_seconds(p->m, 2 * (double)local_bytes(p->m, op->in[0]));
	if (op_is_free(p->m, op) || p->note[op->mark].merged)
		return x;
	x = comm_sends(op->code) ? price_sent(p, op) : op->code == OP_EINSUM ? price_einsum(p, op) :
	    opinfo[op->code].class == C_ATTN ? price_attention(p->m, op) : price_elements(p, op);
	x.extra += memory_seconds(p->m, p->note[op->mark].bytes);
	if (software(p->m, SW_GRAPHS) == GRAPHS_DENSE && !of_experts(p, op))
		x.launches *= RECORDED;
	return x;
}

double launch_seconds(const struct module *m)
{
	/* Our own runtime issues what a table says; XLA records most; torch.compile launches less by itself. */
	static const double element[] = { [ELEM_PLAN] = 0.05, [ELEM_FUSED] = 1, [ELEM_XLA] = 0.1, [ELEM_COMPILED] = 0.6, [ELEM_EAGER] = 1 };
	double share = element[software(m, SW_ELEMENTWISE)];

	if (m->hw.cores > 0) /* who issues an op carries it out: it is in what a call takes */
		return 0;
	return HOST_LAUNCH * (software(m, SW_GRAPHS) == GRAPHS_ON ? fmin(share, RECORDED) : share);
}

/* -- what ops say of each other -- */

int64_t number_ops(const struct block *block, int64_t n)
{
	for (struct op *op = block->first; op; op = op->next) {
		op->mark = n++;
		if (op->code == OP_REPEAT)
			n = number_ops(op->body, n);
	}
	return n;
}

/* A sum over the microbatches is read and written once more by each. */
static void note_sums(struct pricing *p, const struct op *loop)
{
	uint32_t first = (uint32_t)loop->at.ncarry;
	double width = software(p->m, SW_GRADS) == GRADS_BF16 ? 6 : 8;

	for (uint32_t i = first; HAS(loop, acc) && p->m->micro > 1 && i < loop->body->yields.n; i++) {
		const struct value *v = loop->body->yields.at[i];

		if (repeat_adds(loop, i) && v->def && v->home == loop->body)
			p->note[v->def->mark].bytes += width * (double)local_count(p->m, v);
	}
}

static void find_notes(struct pricing *p, const struct block *b)
{
	for (const struct op *op = b->first; op; op = op->next) {
		if (op->code == OP_EINSUM && op->phase == FORWARD && !op_in_loop(op))
			p->logits = fmax(p->logits, (double)local_count(p->m, op->out[0]));
		if (op->code == OP_SCATTER && op->phase == FORWARD) {
			double all = (double)value_count(p->m, op->out[0]), once = (double)value_count(p->m, op->in[0]);

			p->copies = fmax(p->copies, once > 0 ? all / once : 0);
			if (op->at.dims.n == 2)
				p->slot = op->at.dims.d[1];
		}
		if (op->code == OP_REPEAT)
			note_sums(p, op);
		if (op->body)
			find_notes(p, op->body);
	}
}

static void merge_products(struct pricing *p, const struct block *b)
{
	unmark(b);
	mark_readers(b);
	for (const struct op *op = b->first; op; op = op->next) {
		if (op->code == OP_REPEAT) {
			merge_products(p, op->body);
		} else if (comm_sends(op->code) && software(p->m, SW_ELEMENTWISE) != ELEM_PLAN) {
			find_chain(p, op);
		} else if (op->code == OP_EINSUM && !p->note[op->mark].share) {
			if (software(p->m, SW_ELEMENTWISE) == ELEM_PLAN) {
				p->note[op->mark] = (struct note){ .gemm = product_of(p->m, op), .share = 1 };
				continue;
			}
			merge_from(p, op);
		}
	}
	unmark(b);
}

struct pricing *pricing_of(struct arena *mem, const struct module *m)
{
	struct pricing *p = NEW(mem, struct pricing);

	*p = (struct pricing){ .m = m, .copies = 1, .slot = NODIM };
	p->note = NEWN(mem, struct note, number_ops(&m->top, 0) + 1);
	find_notes(p, &m->top);
	merge_products(p, &m->top);
	return p;
}
