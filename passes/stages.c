/* passes/stages.c - where along the pipeline things happen, before anything is placed.
 *
 * Requires sections (microbatch). Finds the repeats whose dim goes to the pipeline's axis and gives every
 * op of forward and backward at the top its place {where}:
 *
 *   forward    glue where it stands in the file, between the repeats; a repeat has its own place. What is
 *              made of constants, inputs or params alone has none: it is made again where it is read
 *   backward   the place of its forward op, but not before what it reads of forward was made, nor
 *              later than a cotangent it reads
 *
 * A cotangent whose readers are linear down to `accumulate` need not be added up over places: each place
 * goes on with its own part (a param that is read in several places: tied; or in each iteration of a loop,
 * {local}), and the parts are added up over the stages in the epilogue, once a step.
 *
 * Params and states are held where they are read. The epilogue works on what it updates where that is
 * (late_stages.c). The cut is even for now: pipeline.c balances it by cost. */
#include "passes/stages.h"

struct spot *spot_of(struct stages *s, const struct value *v)
{
	struct value *w = (struct value *)v;

	if (!w->aux) {
		struct spot *x = NEW(s->m->mem, struct spot);

		x->place = -1;
		w->aux = x;
	}
	return w->aux;
}

int stage_loop(const struct stages *s, const struct op *op)
{
	for (int i = 0; op->code == OP_REPEAT && i < s->n; i++)
		if (s->m->pipe.loops.at[i] == op->at.dim)
			return i;
	return -1;
}

/* -- the chain -- */

static bool add_loop(struct stages *s, const struct op *op)
{
	if (stage_loop(s, op) >= 0) {
		diag_error(s->d, op->span, "two repeats over '%s' in one pipeline", s->m->dims.at[op->at.dim].name);
		diag_note(s->d, op->span, "give one of them a dim of its own: dim other = %lld",
			  (long long)dim_size(s->m, op->at.dim));
		return false;
	}
	if (s->n == 31)
		return diag_error(s->d, op->span, "more than 31 repeats in one pipeline");
	PUSH(s->m->mem, &s->m->pipe.loops, op->at.dim);
	s->n++;
	return true;
}

static bool no_inner_loops(struct stages *s, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next)
		if (op->body && ((op->code == OP_REPEAT && pipe_takes(s->m, op->at.dim)) || !no_inner_loops(s, op->body)))
			return diag_error(s->d, op->span, "a repeat inside a repeat can't be cut into stages");
	return true;
}

/* An empty one is like glue: some chunk has to pass on what it carries. */
static bool is_link(const struct module *m, const struct op *op)
{
	return op->code == OP_REPEAT && pipe_takes(m, op->at.dim) && dim_size(m, op->at.dim);
}

static bool find_loops_of_chain(struct stages *s)
{
	for (const struct op *op = s->m->top.first; op; op = op->next) {
		if (op->phase == FORWARD && is_link(s->m, op) && !add_loop(s, op))
			return false;
		if (op->body && op->phase == FORWARD && !no_inner_loops(s, op->body))
			return false;
	}
	bool none = !s->n; /* then those that run once a step */

	for (const struct op *op = s->m->top.first; op; op = op->next)
		if (none && is_link(s->m, op) && stage_loop(s, op) < 0 && !add_loop(s, op))
			return false;
	if (s->n)
		return true;
	diag_error(s->d, s->m->mesh.at[s->m->pipe.user].at, "the pipeline has nothing to cut: no repeat of its arrow is used");
	diag_note(s->d, (struct span){ 0 }, "what is not minimized, reported by a metric or kept in a state is not computed");
	return false;
}

static bool find_chain(struct stages *s)
{
	struct module *m = s->m;
	int64_t whole = 0;

	m->pipe.loops.n = 0;
	if (!find_loops_of_chain(s))
		return false;
	for (int i = 0; i < s->n; i++)
		whole += dim_size(m, m->pipe.loops.at[i]);
	if (!m->pipe.end.n) {
		int g = pipe_chunks(m);

		for (int i = 1; i <= g; i++)
			PUSH(m->mem, &m->pipe.end, whole * i / g);
	} else if (m->pipe.end.at[m->pipe.end.n - 1] != whole) {
		return diag_error(s->d, m->mesh.at[m->pipe.user].at, "the stages have %lld iterations, the repeats %lld",
				  (long long)m->pipe.end.at[m->pipe.end.n - 1], (long long)whole);
	}
	return true;
}

/* -- forward -- */

bool stage_placeless(const struct value *v)
{
	return v->kind == K_CONST || v->kind == K_INPUT || v->kind == K_PARAM;
}

bool makes_placeless(const struct op *op)
{
	for (uint32_t i = 0; i < op->nout; i++)
		if (!stage_placeless(op->out[i]))
			return false;
	return op->nout > 0;
}

void stage_put(struct stages *s, struct op *op, int place)
{
	SET(op, where, 1ll << place);
	for (uint32_t i = 0; i < op->nout; i++)
		spot_of(s, op->out[i])->place = place;
}

static void place_forward(struct stages *s)
{
	int k = 0;

	for (struct op *op = s->m->top.first; op; op = op->next) {
		int loop = op->phase == FORWARD ? stage_loop(s, op) : -1;

		if (op->phase != FORWARD)
			continue;
		if (loop >= 0) {
			stage_put(s, op, 2 * loop + 1);
			k = loop + 1;
		} else if (!makes_placeless(op) || op->code == OP_ACCUMULATE) {
			stage_put(s, op, 2 * k);
		}
	}
}

/* -- who needs what -- */

int64_t stage_rows(const struct module *m, const struct value *v)
{
	int64_t at = 0;

	for (int k = 0; k < v->nd; k++)
		for (uint32_t i = 0; i < m->pipe.loops.n; i++)
			at |= m->pipe.loops.at[i] == v->d[k] ? 2ll << 2 * i : 0;
	return at;
}

static void buffer_need(struct module *m, const char *name, int64_t places)
{
	struct buffer *b = find_buffer(m, name);

	if (b && b->role != B_INPUT)
		b->where |= places;
}

static void body_need(struct stages *s, const struct block *block, int64_t places)
{
	for (const struct op *op = block->first; op; op = op->next) {
		if (op->code == OP_READ)
			buffer_need(s->m, op->at.buf, places);
		if (op->body)
			body_need(s, op->body, places);
	}
}

static int64_t all_places(const struct stages *s)
{
	return (2ll << 2 * s->n) - 1;
}

static void find_need(struct stages *s)
{
	for (struct op *op = s->m->top.last; op; op = op->prev) {
		int64_t need = HAS(op, where) ? op->at.where : 0;

		if (op->phase == EPILOGUE)
			continue;
		for (uint32_t i = 0; !HAS(op, where) && i < op->nout; i++)
			need |= spot_of(s, op->out[i])->need;
		for (uint32_t i = 0; op->phase == PROLOGUE && i < op->nout; i++)
			need |= stage_rows(s->m, op->out[i]);
		if (op->phase == PROLOGUE && HAS(op, local))
			need = all_places(s);
		if (op->code == OP_READ)
			buffer_need(s->m, op->at.buf, need);
		if (op->body)
			body_need(s, op->body, need);
		for (uint32_t i = 0; i < op->nin; i++)
			if (spot_of(s, op->in[i])->place < 0)
				spot_of(s, op->in[i])->need |= stage_loop(s, op) >= 0 && i >= op->at.ncarry + op->at.nwith ?
								       2ll << 2 * stage_loop(s, op) : need; /* rows */
	}
}

static bool staged_buffer(const struct stages *s, const struct buffer *b)
{
	for (int i = 0; i < b->nd; i++)
		if (is_staged(s->m, b->d[i]))
			return true;
	return false;
}

/* A stacked param that forward or backward reads as a whole is on no stage. */
static bool check_stacked(struct stages *s, const struct buffer *b)
{
	int64_t loops = 0;

	for (int i = 0; i < s->n; i++)
		loops |= 2ll << 2 * i;
	if (!staged_buffer(s, b) || !(b->where & ~loops))
		return true;
	diag_error(s->d, b->at, "'%s' is cut into stages, and read as a whole outside its repeat", b->name);
	diag_note(s->d, b->at, "read it inside the repeat, iteration by iteration");
	return false;
}

/* -- the prologue -- */

static bool has_stage_dim(const struct stages *s, const struct op *op)
{
	for (uint32_t i = 0; i < op->nout; i++)
		for (int k = 0; k < op->out[i]->nd; k++)
			if (is_staged(s->m, op->out[i]->d[k]))
				return true;
	return false;
}

/* It, and what it is made of, is made on all stages. */
static void make_everywhere(struct stages *s, struct op *op)
{
	struct buffer *b = op->code == OP_READ ? find_buffer(s->m, op->at.buf) : NULL;

	if (b)
		b->where = 0;
	op->has &= ~(1u << A_where);
	op->at.where = 0;
	for (uint32_t i = 0; i < op->nin; i++)
		make_everywhere(s, op->in[i]->def);
}

/* What forward or backward read is made where they do; what the epilogue alone reads, where all is that it is made
 * of. */
static void place_early_op(struct stages *s, struct op *op)
{
	const struct buffer *b = op->code == OP_READ ? find_buffer(s->m, op->at.buf) : NULL;
	int64_t need = 0, have = b && b->where ? b->where : EVERYWHERE;

	for (uint32_t i = 0; i < op->nout; i++)
		need |= spot_of(s, op->out[i])->need;
	for (uint32_t i = 0; i < op->nin; i++)
		if (HAS(op->in[i]->def, where))
			have &= op->in[i]->def->at.where;
	if (!have)
		make_everywhere(s, op);
	else if (!has_stage_dim(s, op) && (need || have != EVERYWHERE))
		SET(op, where, need ? need : have);
}

static void place_early(struct stages *s)
{
	for (struct op *op = s->m->top.first; op && op->phase == PROLOGUE; op = op->next)
		if (!HAS(op, local))
			place_early_op(s, op);
}

static bool settle_buffers(struct stages *s)
{
	struct module *m = s->m;

	for (uint32_t i = 0; i < m->bufs.n; i++) {
		struct buffer *b = m->bufs.at[i];

		if (!check_stacked(s, b))
			return false;
		if (staged_buffer(s, b) || b->where == all_places(s))
			b->where = 0;
	}
	place_early(s);
	for (uint32_t i = 0; i < m->bufs.n; i++) {
		const struct buffer *owner = m->bufs.at[i]->owner ? find_buffer(m, m->bufs.at[i]->owner) : NULL;

		if (owner)
			m->bufs.at[i]->where = owner->where;
	}
	return true;
}

static void clear(struct block *block)
{
	for (struct op *op = block->first; op; op = op->next)
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->aux = NULL;
}

bool pass_stages(struct module *m, struct diag *d)
{
	struct stages s = { .m = m, .d = d };

	if (pipe_axis(m) < 0)
		return true;
	clear(&m->top);
	if (!find_chain(&s) || !carry_once(&s))
		return false;
	place_forward(&s);
	place_backward(&s);
	find_need(&s);
	if (!settle_buffers(&s))
		return false;
	place_late(&s);
	return true;
}
