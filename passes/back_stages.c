/* passes/back_stages.c - where along the pipeline the ops of backward run: see stages.c. */
#include "passes/kinds.h"
#include "passes/stages.h"

static int place_of(const struct op *op)
{
	return __builtin_ctzll((uint64_t)op->at.where);
}

/* -- what may stay in parts -- */

static bool linear_alone(const struct op *op, uint32_t i)
{
	uint64_t lin = i < 64 ? op_linear(op, i) : 0;

	if (op->nout != 1 || !(lin >> (i & 63) & 1))
		return false;
	for (uint32_t k = 0; k < op->nin; k++)
		if (!(lin >> k & 1) && !stage_placeless(op->in[k]))
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
	struct bits local = { 0 };

	stage_put(s, op, 2 * loop + 1);
	for (uint32_t i = 0; i < op->nout; i++) {
		struct spot *x = spot_of(s, op->out[i]);

		/* Each stage may grow its own, unless the sum is to be made in one order. */
		if (i < (uint64_t)op->at.ncarry && x->deferred && from_zero(op, i) && only_grows(op, i) && !s->m->deterministic)
			local = bits_with(s->m->mem, local, i);
		else if (i < (uint64_t)op->at.ncarry)
			x->deferred = false;
		bool parts = i >= (uint64_t)op->at.ncarry || bits_has(local, i);
		struct part_at p = { 2 * loop + parts, bits_has(local, i), op->out[i] }; /* what is carried on ends before the loop */
		PUSH(s->m->mem, &x->parts, p);
	}
	if (local.n)
		SET(op, local, local);
}

/* -- places -- */

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
	       (opinfo[op->code].linear == L_ALL || !stage_placeless(v));
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
	stage_put(s, new, place);
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

	stage_put(s, op, place);
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
		stage_put(s, new, x->parts.at[i].place);
		struct part_at p = { x->parts.at[i].place, x->parts.at[i].partial, v };
		PUSH(s->m->mem, &spot_of(s, op->out[0])->parts, p);
	}
}

static void place_ops(struct stages *s)
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
				stage_put(s, op, x->place < 0 ? 0 : x->place % 2 ? x->place - 1 : x->place);
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
			stage_put(s, def, read_place(s, op));
			for (uint32_t k = 0; k < def->nout; k++)
				if (spot_of(s, def->out[k])->parts.n == 1)
					spot_of(s, def->out[k])->parts.at[0].place = read_place(s, op);
		}
	}
}

void place_backward(struct stages *s)
{
	find_deferred(s);
	place_ops(s);
	raise_backward(s);
}
