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

#include "passes/kinds.h"


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
	return s->n || diag_error(s->d, s->m->mesh.at[s->m->pipe.user].at,
				  "the pipeline has nothing to cut: no repeat of its arrow is used");
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

static bool placeless(const struct value *v)
{
	return v->kind == K_CONST || v->kind == K_INPUT || v->kind == K_PARAM;
}

/* A repeat may make both what has a place and what has none. */
static bool makes_placeless(const struct op *op)
{
	for (uint32_t i = 0; i < op->nout; i++)
		if (!placeless(op->out[i]))
			return false;
	return op->nout > 0;
}

static void put(struct stages *s, struct op *op, int place)
{
	SET(op, where, 1ll << place);
	for (uint32_t i = 0; i < op->nout; i++)
		spot_of(s, op->out[i])->place = place;
}

static int place_of(const struct op *op)
{
	return __builtin_ctzll((uint64_t)op->at.where);
}

static void place_forward(struct stages *s)
{
	int k = 0;

	for (struct op *op = s->m->top.first; op; op = op->next) {
		int loop = op->phase == FORWARD ? stage_loop(s, op) : -1;

		if (op->phase != FORWARD)
			continue;
		if (loop >= 0) {
			put(s, op, 2 * loop + 1);
			k = loop + 1;
		} else if (!makes_placeless(op) || op->code == OP_ACCUMULATE) {
			put(s, op, 2 * k);
		}
	}
}

/* -- backward: what may stay in parts -- */

static bool linear_alone(const struct op *op, uint32_t i)
{
	uint64_t lin = i < 64 ? op_linear(op, i) : 0;

	if (op->nout != 1 || !(lin >> (i & 63) & 1))
		return false;
	for (uint32_t k = 0; k < op->nin; k++)
		if (!(lin >> k & 1) && !placeless(op->in[k]))
			return false;
	return true;
}

static void find_deferred(struct stages *s)
{
	for (struct op *op = s->m->top.last; op; op = op->prev)
		for (uint32_t i = 0; op->phase == BACKWARD && i < op->nout; i++)
			spot_of(s, op->out[i])->deferred = true;
	for (struct op *op = s->m->top.last; op; op = op->prev) {
		if (op->phase == EPILOGUE)
			continue;
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->code != OP_ACCUMULATE &&
			    !(linear_alone(op, i) && spot_of(s, op->out[0])->deferred))
				spot_of(s, op->in[i])->deferred = false;
	}
}

static void back_loop(struct stages *s, struct op *op, int loop)
{
	int64_t local = 0;

	put(s, op, 2 * loop + 1);
	for (uint32_t i = 0; i < op->nout; i++) {
		struct spot *x = spot_of(s, op->out[i]);

		/* Each stage may grow its own, unless the sum is to be made in one order. */
		if (i < (uint64_t)op->at.ncarry && i < 63 && x->deferred && from_zero(op, i) && only_grows(op, i) && !s->m->deterministic)
			local |= 1ll << i;
		else if (i < (uint64_t)op->at.ncarry)
			x->deferred = false;
		bool parts = i >= (uint64_t)op->at.ncarry || (local >> (i & 63) & 1);
		struct part_at p = { 2 * loop + parts, local >> (i & 63) & 1, op->out[i] }; /* what is carried on ends before the loop */
		PUSH(s->m->mem, &x->parts, p);
	}
	if (local)
		SET(op, local, local);
}

/* -- backward: places -- */

/* A forward loop's result is there behind the loop, a backward one's before it. */
static int reach(struct stages *s, const struct value *v)
{
	int place = spot_of(s, v)->place;

	if (place < 0 || place % 2 == 0)
		return place;
	return v->def->phase == FORWARD ? place + 1 : place - 1;
}

/* It follows from forward alone, and is made where its first reader in backward is: see raise_backward. */
static bool is_free(struct stages *s, const struct op *op)
{
	for (uint32_t i = 0; i < op->nin; i++) {
		const struct op *def = op->in[i]->def;
		const struct spot *x = spot_of(s, op->in[i]);

		if (def && def->phase == BACKWARD && x->place >= 0 && !x->free)
			return false;
	}
	return true;
}

static int back_place(struct stages *s, const struct op *op)
{
	int lo = 0, hi = 2 * s->n, at;

	for (uint32_t i = 0; i < op->nin; i++) {
		const struct value *v = op->in[i];
		const struct spot *x = spot_of(s, v);

		if (!v->def || x->place < 0)
			continue;
		if (v->def->phase == FORWARD && reach(s, v) > lo)
			lo = reach(s, v);
		if (v->def->phase == BACKWARD && x->parts.n == 1 && x->parts.at[0].partial)
			return x->place;
		if (v->def->phase == BACKWARD && !x->free && reach(s, v) < hi)
			hi = reach(s, v);
	}
	bool sum = op->code == OP_ACCUM && !is_free(s, op); /* of cotangents: the earlier it is added up, the less is sent */
	at = !sum && op->of && HAS(op->of, where) && op->of->phase == FORWARD ? place_of(op->of) : hi;
	at = at % 2 ? at - 1 : at;
	return at < lo ? lo : at > hi ? hi : at;
}

static bool has_parts(struct stages *s, const struct op *op, uint32_t i)
{
	const struct value *v = op->in[i];

	return v->def && v->def->phase == BACKWARD && linear_alone(op, i) && spot_of(s, v)->parts.n &&
	       (opinfo[op->code].linear == L_ALL || !placeless(v));
}

/* Do the operands come in parts of several places that this op need not bring together? A sum with what is
 * made anywhere, and must count once, is one too where each stage has its part of the rest. */
static bool in_parts(struct stages *s, const struct op *op)
{
	bool partial = false, still = false;
	int place = -1;

	if (op->nout != 1 || !spot_of(s, op->out[0])->deferred)
		return false;
	for (uint32_t i = 0; i < op->nin; i++) {
		const struct spot *x = spot_of(s, op->in[i]);

		if (!has_parts(s, op, i)) {
			still |= opinfo[op->code].linear == L_ALL;
			continue;
		}
		for (uint32_t k = 0; k < x->parts.n; k++) {
			partial |= x->parts.at[k].partial;
			if (place >= 0 && place != x->parts.at[k].place)
				return true;
			place = x->parts.at[k].place;
		}
	}
	return partial && still;
}

/* Where a sum adds what has no place: where one chunk has a part, else before the loop that has. */
static int home_of(struct stages *s, const struct op *op)
{
	int home = 0;

	for (uint32_t i = 0; i < op->nin; i++) {
		const struct spot *x = spot_of(s, op->in[i]);

		for (uint32_t k = 0; has_parts(s, op, i) && k < x->parts.n; k++) {
			if (x->parts.at[k].place % 2 == 0)
				return x->parts.at[k].place;
			home = x->parts.at[k].place - 1;
		}
	}
	return home;
}

static const struct part_at *part_of(const struct spot *x, int place)
{
	for (uint32_t i = 0; i < x->parts.n; i++)
		if (x->parts.at[i].place == place)
			return &x->parts.at[i];
	return NULL;
}

static bool lacks_dims(const struct op *op, uint32_t n, struct value *const *in)
{
	dimid d[MAX_DIMS];
	int nd = 0;

	for (uint32_t i = 0; i < n; i++)
		nd = union_dims(nd, d, in[i]);
	return nd < op->out[0]->nd;
}

/* op on what its operands have at one place. NULL: they have nothing there. */
static struct op *op_at(struct stages *s, struct op *op, int place, int home, bool *partial)
{
	struct value **in = NEWN(s->m->mem, struct value *, op->nin + 1);
	bool sum = opinfo[op->code].linear == L_ALL, any = false, second = false;
	uint32_t n = 0;

	*partial = false;
	for (uint32_t i = 0; i < op->nin; i++) {
		bool moves = has_parts(s, op, i);
		const struct part_at *p = moves ? part_of(spot_of(s, op->in[i]), place) : NULL;

		if (!moves && !sum) {
			in[n++] = op->in[i];
		} else if (p) {
			second = i == 1;
			in[n++] = p->v;
			*partial |= p->partial;
			any = true;
		} else if (!moves && place == home) {
			second = i == 1;
			in[n++] = op->in[i];
			any = true;
		}
	}
	if (!any)
		return NULL;
	struct builder b = { s->m, op->home, op, op->phase, op->span, op->of, 0 };
	if (sum && lacks_dims(op, n, in)) { /* the operands that had them are elsewhere */
		struct value *zero = b_const(&b, op->out[0]->dt, 0);

		memcpy(zero->d, op->out[0]->d, sizeof zero->d);
		zero->nd = op->out[0]->nd;
		in[n] = second ? in[n - 1] : zero;
		in[n++ - second] = zero;
	}
	enum opcode code = n < op->nin && n == 1 ? (op->code == OP_SUB && second ? OP_NEG : OP_ACCUM) : op->code;
	struct op *new = op_new(&b, code, n, in, 1);
	if (!sum) {
		new->has = op->has;
		new->at = op->at;
	}
	struct value *v = op_type(&b, new, 0, op->out[0]->dt, op->out[0]->nd, op->out[0]->d);
	v->kind = op->out[0]->kind;
	v->span = op->out[0]->span;
	put(s, new, place);
	return new;
}

static void split_op(struct stages *s, struct op *op)
{
	struct spot *x = spot_of(s, op->out[0]);
	int home = home_of(s, op);

	for (int place = 0; place <= 2 * s->n; place++) {
		bool partial;
		struct op *new = op_at(s, op, place, home, &partial);
		struct part_at p = { place, partial, new ? new->out[0] : NULL };

		if (new)
			PUSH(s->m->mem, &x->parts, p);
	}
	x->place = x->parts.at[0].place;
}

static void place_back_op(struct stages *s, struct op *op)
{
	int place = back_place(s, op);
	bool free = is_free(s, op);

	put(s, op, place);
	for (uint32_t i = 0; i < op->nout; i++) {
		spot_of(s, op->out[i])->free = free;
		struct part_at p = { place, false, op->out[i] };

		for (uint32_t k = 0; k < op->nin; k++) {
			const struct spot *x = spot_of(s, op->in[k]);

			p.partial |= x->parts.n == 1 && x->parts.at[0].partial;
		}
		PUSH(s->m->mem, &spot_of(s, op->out[i])->parts, p);
	}
}

/* Each place accumulates its part; the epilogue reads the sum over the stages, at the places that hold
 * the param. */
static void split_accumulate(struct stages *s, struct op *op)
{
	const struct spot *x = spot_of(s, op->in[0]);

	for (uint32_t i = 0; i < x->parts.n; i++) {
		struct builder b = { s->m, op->home, op, op->phase, op->span, op->of, 0 };
		struct op *new = op_new(&b, OP_ACCUMULATE, 1, &(struct value *){ x->parts.at[i].v }, 1);
		struct value *v = op_type(&b, new, 0, op->out[0]->dt, op->out[0]->nd, op->out[0]->d);

		v->kind = op->out[0]->kind;
		v->span = op->out[0]->span;
		put(s, new, x->parts.at[i].place);
		struct part_at p = { x->parts.at[i].place, x->parts.at[i].partial, v };
		PUSH(s->m->mem, &spot_of(s, op->out[0])->parts, p);
	}
}

static void place_backward(struct stages *s)
{
	for (struct op *op = s->m->top.first, *next; op; op = next) {
		next = op->next;
		if (op->phase != BACKWARD)
			continue;
		if (stage_loop(s, op) >= 0) {
			back_loop(s, op, stage_loop(s, op));
		} else if (op->code == OP_ACCUMULATE) {
			const struct spot *x = spot_of(s, op->in[0]);

			if (x->parts.n > 1 || (x->parts.n && x->parts.at[0].partial))
				split_accumulate(s, op);
			else
				put(s, op, x->place < 0 ? 0 : x->place % 2 ? x->place - 1 : x->place);
		} else if (in_parts(s, op)) {
			split_op(s, op);
		} else if (makes_placeless(op) && !spot_of(s, op->out[0])->deferred) {
			continue;
		} else if (op->code != OP_READ && opinfo[op->code].class != C_LEAF) {
			place_back_op(s, op);
		}
	}
}

/* Where op reads in its phase: a loop what is there before it, as backward runs. */
static int read_place(const struct stages *s, const struct op *op)
{
	int place = place_of(op);

	return stage_loop(s, op) < 0 ? place : place + 1;
}

/* What follows from forward alone has the place of its forward op, and may have readers that backward comes to
 * before: then it is made where the first of them is. */
static void raise_backward(struct stages *s)
{
	for (struct op *op = s->m->top.last; op; op = op->prev) {
		if (op->phase != BACKWARD || !HAS(op, where))
			continue;
		for (uint32_t i = 0; i < op->nin; i++) {
			struct op *def = op->in[i]->def;
			const struct spot *x = spot_of(s, op->in[i]);

			if (!def || def->phase != BACKWARD || !HAS(def, where) || stage_loop(s, def) >= 0 ||
			    (x->parts.n && x->parts.at[0].partial) || place_of(def) >= read_place(s, op))
				continue;
			put(s, def, read_place(s, op));
			for (uint32_t k = 0; k < def->nout; k++)
				if (spot_of(s, def->out[k])->parts.n == 1)
					spot_of(s, def->out[k])->parts.at[0].place = read_place(s, op);
		}
	}
}

/* -- who needs what -- */

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
	find_deferred(&s);
	place_backward(&s);
	raise_backward(&s);
	find_need(&s);
	if (!settle_buffers(&s))
		return false;
	place_late(&s);
	return true;
}
