/* codegen/cuda.c - the CUDA source of a plan: the prelude, then each different kernel region once. */
#include <inttypes.h>

#include "codegen/cuda_impl.h"
#include "codegen/source.h"
#include "cuda_attn_inc.h"
#include "cuda_inc.h"
#include "cuda_moves_inc.h"
#include "cuda_rows_inc.h"
#include "math_inc.h"

const char *const cuda_flags = "--std=c++17 --fmad=false --disable-warnings";

struct job {
	struct arena *mem;
	const struct module *m;
	struct diag *d;
	VEC(struct cuda_region) all;
	struct codes codes;
	struct text out;
	struct text attention;
};

/* -- a kernel function -- */

void put_arguments(const struct gen *g, struct text *t, const char *before, const char *scratch, bool types)
{
	const struct block *body = g->op->body;

	for (uint32_t i = 0; i < body->args.n; i++)
		text_put(t, "%s%s%s%sp%u, ", types ? "const " : "", types ? ctype[body->args.at[i]->dt] : "", types ? " *" : "", before, i);
	for (uint32_t i = 0; i < body->yields.n; i++)
		text_put(t, "%s%s%so%u, ", types ? ctype[body->yields.at[i]->dt] : "", types ? " *" : "", before, i);
	text_put(t, "%s", scratch);
	for (int i = 0; i < g->sig->next; i++)
		text_put(t, "%s%sstart%d, %s%svalid%d, ", types ? "int64_t " : "", before, i, types ? "int64_t " : "", before, i);
}

/* Once a step there are many small ones: they may go with others. */
bool cuda_has_body(const struct gen *g)
{
	return g->op->phase == EPILOGUE && !g->op->home->owner;
}

static void put_head(const struct gen *g, struct text *t, int no, int block, int shared)
{
	text_put(t, "extern \"C\" __global__ void __launch_bounds__(%d) @_%d(", block, no);
	put_arguments(g, t, "", "char *scratch, ", true);
	text_put(t, "const struct ptc_step *step_, struct ptc_iter iter_)\n{\n");
	if (shared)
		text_put(t, "PTC_DYN_SHARED(unsigned char, shared);\n");
}

static void put_extents(const struct gen *g, struct text *t)
{
	for (int k = 0; k < g->nk; k++) {
		if (g->start_used >> k & 1)
			text_put(t, "const int64_t s%d = start%d * %" PRId64 ";\n", k, g->kd[k].ext, g->kd[k].inner);
		if (g->valid_used >> k & 1)
			text_put(t, "const int64_t n%d = valid%d * %" PRId64 ";\n", k, g->kd[k].ext, g->kd[k].inner);
	}
}

static void put_stages(const struct gen *g, struct text *t, struct stage *const *s, int n)
{
	int64_t first = 0;

	text_put(t, "const struct p_env env_ = p_env_of(step_, &iter_), *const env = &env_;\n(void)env, (void)scratch;\n");
	put_extents(g, t);
	for (int i = 0; i < n; i++) {
		if (n > 1 && i < n - 1)
			text_put(t, "%sif (block_ < %" PRId64 ") ", i ? "else " : "", first + s[i]->blocks);
		else if (n > 1)
			text_put(t, "else ");
		text_put(t, "{\nconst uint32_t block = block_ - %" PRId64 ";\n%s}\n", first, s[i]->text);
		first += s[i]->blocks;
	}
	text_put(t, "}\n");
}

/* A launch: stages of one level and size of block, each with a range of blocks. */
static void put_function(const struct gen *g, struct text *t, int no, int block, int shared, struct stage *const *s, int n)
{
	if (!cuda_has_body(g)) {
		put_head(g, t, no, block, shared);
		text_put(t, "const uint32_t block_ = blockIdx.x;\n");
		put_stages(g, t, s, n);
		return;
	}
	text_put(t, "BODY @_%d_at(const uint32_t block_, unsigned char *shared, ", no);
	put_arguments(g, t, "", "char *scratch, ", true);
	text_put(t, "const struct ptc_step *step_, struct ptc_iter iter_)\n{\n(void)shared;\n");
	put_stages(g, t, s, n);
	put_head(g, t, no, block, shared);
	text_put(t, "@_%d_at(blockIdx.x, %s, ", no, shared ? "shared" : "(unsigned char *)0");
	put_arguments(g, t, "", "scratch, ", false);
	text_put(t, "step_, iter_);\n}\n");
}

static void push_launch(struct job *j, struct cuda_sig *sig, int64_t blocks, int block, int shared)
{
	struct cuda_launch *l = NEWN(j->mem, struct cuda_launch, sig->nlaunch + 1);

	for (int i = 0; i < sig->nlaunch; i++)
		l[i] = sig->launch[i];
	l[sig->nlaunch++] = (struct cuda_launch){ NULL, (uint32_t)blocks, (uint32_t)block, (uint32_t)shared };
	sig->launch = l;
}

/* -- a region -- */

/* Indices fit into 32 bits. */
static bool is_small(const struct gen *g)
{
	for (int i = 0; i < g->nval; i++)
		if (local_count(g->m, g->val[i].v) > INT32_MAX / 2 || span_count(g, g->val[i].mask) > INT32_MAX / 2)
			return false;
	for (int i = 0; i < g->nroot; i++)
		if (span_count(g, g->root[i].it) > INT32_MAX / 2)
			return false;
	return true;
}

static void all_launches(struct job *j, struct cuda *c, struct cuda_sig *sig, struct text *t)
{
	struct gen *g = c->g;
	bool *done = NEWN(j->mem, bool, c->stages.n + 1);
	struct stage **s = NEWN(j->mem, struct stage *, c->stages.n + 1);
	int level = 0;

	for (uint32_t left = c->stages.n; left; level++)
		for (uint32_t i = 0; i < c->stages.n; i++) {
			int64_t blocks = 0;
			int n = 0, shared = 0;

			if (done[i] || c->stages.at[i]->level != level)
				continue;
			for (uint32_t k = i; k < c->stages.n; k++) {
				struct stage *x = c->stages.at[k];

				if (done[k] || x->level != level || x->block != c->stages.at[i]->block)
					continue;
				done[k] = true;
				s[n++] = x;
				blocks += x->blocks;
				shared = x->shared > shared ? x->shared : shared;
			}
			put_function(g, t, sig->nlaunch, s[0]->block, shared, s, n);
			push_launch(j, sig, blocks, s[0]->block, shared);
			left -= (uint32_t)n;
		}
}

static bool region_text(struct job *j, struct gen *g, struct cuda_sig *sig, struct text *t)
{
	struct cuda c = { .g = g };

	if (!kernel_plan(g))
		return false;
	g->ix = is_small(g) ? "int32_t" : "int64_t";
	if (!cuda_stages(&c))
		return false;
	for (uint32_t i = 0; i < c.stages.n; i++)
		cuda_stage_text(&c, c.stages.at[i]);
	all_launches(j, &c, sig, t);
	sig->scratch = c.scratch;
	return !g->failed;
}

static bool pick_region(struct job *j, struct gen *g, const struct op *pick, struct cuda_sig *sig, struct text *t)
{
	struct stage s = { .kind = ST_POINT }, *at = &s;

	if (!(s.text = cuda_pick(g, pick, &s.blocks, &s.block)))
		return false;
	s.shared = pick->code == OP_ARGMAX ? 512 : 0;
	put_function(g, t, 0, s.block, s.shared, &at, 1);
	push_launch(j, sig, s.blocks, s.block, s.shared);
	return !g->failed;
}

/* -- the source -- */

static const char *name_of(struct job *j, const char *text)
{
	uint32_t before = j->codes.all.n;
	int no = code_no(&j->codes, text);
	const char *name = arena_printf(j->mem, "k%d", no);

	if (j->codes.all.n > before)
		put_named(&j->out, text, name);
	return name;
}

static bool one_kernel(struct job *j, const struct op *op)
{
	struct kernel_sig *ext = NEW(j->mem, struct kernel_sig);
	struct cuda_sig *sig = NEW(j->mem, struct cuda_sig);
	struct gen *g = NEW(j->mem, struct gen);
	const struct op *pick = kernel_pick(op);
	struct text t = { .mem = j->mem };

	*g = (struct gen){ .mem = j->mem, .m = j->m, .op = op, .d = j->d, .sig = ext, .split = -1, .device = true };
	if (!(pick ? pick_region(j, g, pick, sig, &t) : region_text(j, g, sig, &t)))
		return false;
	sig->op = op;
	sig->next = ext->next;
	for (int i = 0; i < ext->next; i++) {
		sig->ext[i].d = ext->ext[i].d;
		sig->ext[i].on = ext->ext[i].on;
	}
	const char *name = t.s ? name_of(j, t.s) : "";

	for (int i = 0; i < sig->nlaunch; i++)
		sig->launch[i].fn = arena_printf(j->mem, "%s_%d", name, i);
	PUSH(j->mem, &j->all, ((struct cuda_region){ g, sig, name }));
	return true;
}

static bool one_op(void *self, const struct op *op)
{
	struct job *j = self;

	return op->code == OP_KERNEL ? one_kernel(j, op) :
	       opinfo[op->code].class != C_ATTN || cuda_attention_text(&j->attention, j->m, op, j->d);
}

char *codegen_cuda(struct arena *mem, const struct module *m, struct cuda_sig **sigs, int *nsig, struct diag *d)
{
	struct job j = { .mem = mem, .m = m, .d = d, .codes = { .mem = mem }, .out = { .mem = mem }, .attention = { .mem = mem } };
	struct text *out = &j.out;

	text_bytes(out, cuda_inc, sizeof cuda_inc - 1);
	text_bytes(out, math_inc, sizeof math_inc - 1);
	text_bytes(out, cuda_rows_inc, sizeof cuda_rows_inc - 1);
	text_bytes(out, cuda_moves_inc, sizeof cuda_moves_inc - 1);
	if (!source_each(&m->top, one_op, &j))
		return NULL;
	if (j.attention.n) {
		text_bytes(out, cuda_attn_inc, sizeof cuda_attn_inc - 1);
		text_bytes(out, j.attention.s, j.attention.n);
	}
	cuda_runs(mem, out, j.all.at, (int)j.all.n);
	*nsig = (int)j.all.n;
	*sigs = NEWN(mem, struct cuda_sig, j.all.n + 1);
	for (uint32_t i = 0; i < j.all.n; i++)
		(*sigs)[i] = *j.all.at[i].sig;
	return out->s;
}
