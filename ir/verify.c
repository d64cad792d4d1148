/* ir/verify.c - the invariants of a module: its tables, its blocks, and by verify_ops.c and
 * verify_shard.c every op. What it finds is a bug of a pass, or a wrong IR text. */
#include <stdio.h>

#include "ir/text.h"
#include "ir/verify.h"

bool ver_fail(struct verifier *v, const struct op *op, const char *fmt, ...)
{
	struct text t = { .mem = v->d->mem };
	char what[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	if (!op)
		return diag_error(v->d, (struct span){ 0 }, "invalid IR: %s", what);
	text_put(&t, "%s", opinfo[op->code].name);
	if (op->nout && op->out[0])
		text_put(&t, " %%%u", op->out[0]->id);
	if (op->nout && op->out[0] && op->out[0]->name)
		text_put(&t, " '%s'", op->out[0]->name);
	return diag_error(v->d, op->span, "invalid IR: %s: %s", t.s, what);
}

/* -- tables -- */

static bool check_dims(struct verifier *v, const char *what, int nd, const dimid *d)
{
	int64_t count = 1;

	if (nd > MAX_DIMS)
		return ver_fail(v, NULL, "%s has %d dims", what, nd);
	for (int i = 0; i < nd; i++) {
		if (d[i] >= v->m->dims.n)
			return ver_fail(v, NULL, "%s has an unknown dim", what);
		for (int k = 0; k < i; k++)
			if (d[k] == d[i])
				return ver_fail(v, NULL, "%s has dim '%s' twice", what, v->m->dims.at[d[i]].name);
		if (!elements_fit(&count, dim_size(v->m, d[i]), MOST_ELEMENTS))
			return ver_fail(v, NULL, "%s has too many elements", what);
	}
	return true;
}

static bool check_dim_table(struct verifier *v)
{
	const struct module *m = v->m;

	for (uint32_t i = 0; i < m->dims.n; i++) {
		if (m->dims.at[i].size < 0)
			return ver_fail(v, NULL, "dim '%s' has size %lld", m->dims.at[i].name,
					(long long)m->dims.at[i].size);
		if (m->dims.at[i].zigzag && (m->dims.at[i].zigzag < 2 || m->dims.at[i].size < 1 ||
					     m->dims.at[i].size % (2LL * m->dims.at[i].zigzag)))
			return ver_fail(v, NULL, "dim '%s' has no order zigzag=%d", m->dims.at[i].name,
					m->dims.at[i].zigzag);
		if (find_dim(m, m->dims.at[i].name) != i)
			return ver_fail(v, NULL, "dim '%s' twice", m->dims.at[i].name);
	}
	if (m->batch != NODIM && m->batch >= m->dims.n)
		return ver_fail(v, NULL, "the batch is no dim");
	if (m->batch != NODIM && !dim_size(m, m->batch))
		return ver_fail(v, NULL, "the batch is empty");
	return true;
}

static bool check_axis_table(struct verifier *v)
{
	const struct module *m = v->m;
	int64_t part[MAX_MESH] = { 1, 1, 1, 1, 1, 1 };

	if (m->mesh.n > MAX_MESH || m->axes.n > MAX_AXES)
		return ver_fail(v, NULL, "too many axes");
	for (uint32_t i = 0; i < m->axes.n; i++) {
		const struct axis *a = &m->axes.at[i];

		if (find_axis(m, a->name) != (int)i)
			return ver_fail(v, NULL, "axis '%s' twice", a->name);
		if (a->time && (time_axis(m) != (int)i || a->size != m->micro))
			return ver_fail(v, NULL, "the time axis is not one of %lld microbatches", (long long)m->micro);
		if (a->time)
			continue;
		if (a->user < 0 || a->user >= (int)m->mesh.n || a->size < 1)
			return ver_fail(v, NULL, "axis '%s' is no part of an axis of the mesh", a->name);
		part[a->user] *= a->size;
	}
	for (uint32_t i = 0; i < m->mesh.n; i++)
		if (part[i] != m->mesh.at[i].size)
			return ver_fail(v, NULL, "the parts of axis '%s' make %lld, not %d", m->mesh.at[i].name,
					(long long)part[i], m->mesh.at[i].size);
	if (m->form >= PARTITIONED && m->micro > 1 && time_axis(m) < 0)
		return ver_fail(v, NULL, "%lld microbatches without a time axis", (long long)m->micro);
	return true;
}

/* Do these bits name places that the pipeline has? What only others run nobody runs. */
static bool are_places(const struct verifier *v, int64_t bits)
{
	uint32_t n = 2 * v->m->pipe.loops.n + 1;

	return v->m->form != PLANNED || pipe_axis(v->m) < 0 || !((uint64_t)bits >> n);
}

/* Elements of an input that follows another are those of its data, some further on. */
static bool follows(const struct buffer *b, const struct buffer *first)
{
	return b->role == B_INPUT && first->role == B_INPUT && !first->next_of && first->nd == b->nd &&
	       memcmp(first->d, b->d, b->nd * sizeof *b->d) == 0;
}

static bool check_buffer(struct verifier *v, const struct buffer *b)
{
	const struct module *m = v->m;
	const struct buffer *first = b->next_of ? find_buffer(m, b->next_of) : NULL;
	bool ok = check_dims(v, b->name, b->nd, b->d);

	if (find_buffer(m, b->name) != b)
		ok = ver_fail(v, NULL, "buffer '%s' twice", b->name);
	if (b->dt >= NDTYPE || b->role >= NROLE || b->init >= NINIT)
		ok = ver_fail(v, NULL, "buffer '%s' has no type, role or init", b->name);
	if (b->next_of && !first)
		ok = ver_fail(v, NULL, "buffer '%s' follows '%s', which there is not", b->name, b->next_of);
	if (first && !follows(b, first))
		ok = ver_fail(v, NULL, "buffer '%s' follows '%s', which is no input of its dims with data of its own", b->name, b->next_of);
	if (b->off > MAX_MEMORY)
		ok = ver_fail(v, NULL, "buffer '%s' lies behind the end of any memory", b->name);
	if (!are_places(v, b->where))
		ok = ver_fail(v, NULL, "buffer '%s' is at a place that the pipeline has not got", b->name);
	if (b->owner && !find_buffer(m, b->owner))
		ok = ver_fail(v, NULL, "buffer '%s' belongs to '%s', which there is not", b->name, b->owner);
	if (!ok || m->form < PLACED)
		return ok;
	if (b->store.sum || b->store.max || b->compute.sum || b->compute.max)
		return ver_fail(v, NULL, "buffer '%s' is pending", b->name);
	return ver_sharding(v, NULL, b->name, b->nd, &b->store) && ver_sharding(v, NULL, b->name, b->nd, &b->compute);
}

/* -- blocks -- */

static bool check_value(struct verifier *v, const struct value *x, const struct op *def, uint32_t no,
			const struct block *home)
{
	const char *what;

	if (!x)
		return ver_fail(v, def, "result %u has no type", no);
	if (x->def != def || x->no != no || x->home != home)
		return ver_fail(v, def, "%%%u does not know where it is defined", x->id);
	if (x->id >= v->m->next_id || v->seen[x->id])
		return ver_fail(v, def, "%%%u: the number of a value is not its own", x->id);
	v->seen[x->id] = (struct value *)x;
	if (x->dt >= NDTYPE || x->kind >= NKIND)
		return ver_fail(v, def, "%%%u has no type or kind", x->id);
	if (x->off > MAX_MEMORY)
		return ver_fail(v, def, "%%%u lies behind the end of any memory", x->id);
	what = arena_printf(v->d->mem, "%%%u", x->id);
	if (!check_dims(v, what, x->nd, x->d))
		return false;
	if (v->m->form >= PARTITIONED || (v->m->form == PLACED && x->placed))
		return ver_sharding(v, def, what, x->nd, &x->sh);
	return true;
}

/* The result of an op that only starts. */
static bool in_flight(const struct value *x)
{
	return x->def && is_async(x->def);
}

/* A wait reads all results of one op, which nothing else waits for. */
static bool check_wait(struct verifier *v, const struct op *op)
{
	const struct op *start = op->in[0]->def;

	for (uint32_t i = 0; i < op->nin; i++) {
		if (!in_flight(op->in[i]))
			return ver_fail(v, op, "%%%u is not in flight", op->in[i]->id);
		if (op->in[i]->def != start || op->in[i]->no != i || op->nin != start->nout)
			return ver_fail(v, op, "it waits for other than all results of one op");
		if (v->waited[op->in[i]->id])
			return ver_fail(v, op, "%%%u is waited for twice", op->in[i]->id);
		v->waited[op->in[i]->id] = true;
	}
	return true;
}

/* What is there before the loop, and is gone when the next but one iteration starts. */
static bool check_ahead(struct verifier *v, const struct op *op, const struct block *block)
{
	const struct op *loop = block->owner;

	if ((op->code != OP_ALL_GATHER && op->code != OP_FROM_HOST) || HAS(op, async) || !loop || loop->code != OP_REPEAT)
		return ver_fail(v, op, "only a gather, or a copy from the host, in a loop can be {ahead}");
	for (uint32_t i = 0; i < op->nin; i++)
		if (op->in[i]->def || op->in[i]->no < loop->at.ncarry + loop->at.nwith)
			return ver_fail(v, op, "%%%u is no slice, it can't be had ahead", op->in[i]->id);
	for (uint32_t k = 0; k < block->yields.n; k++)
		if (block->yields.at[k]->def == op)
			return ver_fail(v, op, "what is had ahead does not outlive its iteration");
	return true;
}

/* What is copied from the host lies there; what is copied to it is written to a buffer there, and nothing else reads it. */
static bool check_host(struct verifier *v, const struct op *op)
{
	const struct value *x = op->out[0];

	if (op->code == OP_FROM_HOST)
		return host_buffer(v->m, op->in[0]) || ver_fail(v, op, "%%%u does not lie in host memory", op->in[0]->id);
	if (op->home->owner)
		return ver_fail(v, op, "a loop writes no buffer");
	for (const struct op *o = op->next; o; o = o->next)
		for (uint32_t i = 0; i < o->nin; i++) {
			const struct buffer *b = o->code == OP_WRITE ? find_buffer(v->m, o->at.buf) : NULL;

			if (o->in[i] != x)
				continue;
			if (o->code == OP_WAIT)
				x = o->out[i];
			else if (!b || !b->host)
				return ver_fail(v, op, "it is read by other than the write of a buffer in host memory");
		}
	return true;
}

/* Nothing of I, and no other place, waits for W. */
static bool check_half(struct verifier *v, const struct op *op)
{
	struct schedule s = pipe_schedule(v->m);

	if (HAS(op, late) && (op->phase != BACKWARD || pipe_axis(v->m) < 0 || !schedule_splits(&s)))
		return ver_fail(v, op, "it is {late}, but no schedule puts it off");
	for (uint32_t i = 0; i < op->nin; i++) {
		const struct op *def = op->in[i]->def;

		if (def && HAS(def, late) && op->phase == BACKWARD && (!HAS(op, late) || op->at.where != def->at.where))
			return ver_fail(v, op, "%%%u is made by W, but read by I or at another place", op->in[i]->id);
	}
	return true;
}

static bool check_use(struct verifier *v, const struct op *op, const struct value *x, const struct block *home)
{
	if (!x)
		return ver_fail(v, op, "an operand is missing");
	if (x->id >= v->m->next_id || v->seen[x->id] != x)
		return ver_fail(v, op, "%%%u is read before it is defined", x->id);
	if (x->home != home)
		return ver_fail(v, op, "%%%u is not visible here", x->id);
	if (in_flight(x) && (!op || op->code != OP_WAIT || op->home != home))
		return ver_fail(v, op, "%%%u is in flight: only a wait may read it", x->id);
	return true;
}

static bool check_links(struct verifier *v, const struct op *op, const struct block *block, enum phase phase)
{
	const struct opinfo *info = &opinfo[op->code];

	if (op->home != block || (op->prev ? op->prev->next : block->first) != op ||
	    (op->next ? op->next->prev : block->last) != op)
		return ver_fail(v, op, "it is not linked into its block");
	if (op->phase >= NPHASE)
		return ver_fail(v, op, "it has no phase");
	if (block->owner && op->phase != block->owner->phase)
		return ver_fail(v, op, "it is of phase %s in a body of phase %s", phase_name[op->phase],
				phase_name[block->owner->phase]);
	if (!block->owner && op->phase < phase)
		return ver_fail(v, op, "%s after %s", phase_name[op->phase], phase_name[phase]);
	if ((int)op->nin < info->least || (int)op->nin > info->most)
		return ver_fail(v, op, "%u operands, not %d to %d", op->nin, info->least, info->most);
	if (info->class != C_REGION && !results_fit(op->code, op->nin, op->nout))
		return ver_fail(v, op, "%u results, not %u", op->nout,
				is_bucket(op->code) ? op->nin : (uint32_t)info->results);
	if (!op->body != (info->class != C_REGION) || (op->body && op->body->owner != op))
		return ver_fail(v, op, "a body where none is, or none where one is");
	if (op->of == op)
		return ver_fail(v, op, "it is its own forward operation");
	return true;
}

static bool check_place(struct verifier *v, const struct op *op, bool in_kernel)
{
	enum opclass c = opinfo[op->code].class;

	if (in_kernel && (c == C_REGION || c == C_STEP || c == C_COMM || c == C_HOST))
		return ver_fail(v, op, "it stands in a kernel");
	if (v->m->form == PLANNED && !in_kernel &&
	    (c == C_MAP || c == C_REDUCE || c == C_LOOKUP || c == C_SCATTER || c == C_PICK))
		return ver_fail(v, op, "it stands outside of a kernel in a plan");
	if (v->m->form >= PARTITIONED && (op->code == OP_MINIMIZE || op->code == OP_TRAIN))
		return ver_fail(v, op, "the optimizer has not run");
	if (v->m->form < PARTITIONED && (c == C_COMM || c == C_HOST) && op->code != OP_TO_PARTIAL)
		return ver_fail(v, op, "a collective before partition");
	return true;
}

static bool check_block(struct verifier *v, const struct block *block);

static bool check_op(struct verifier *v, const struct op *op, const struct block *block, enum phase phase)
{
	bool ok = check_links(v, op, block, phase);

	ok = ok && check_place(v, op, block->owner && block->owner->code == OP_KERNEL);
	for (uint32_t i = 0; i < op->nin; i++)
		ok = check_use(v, op, op->in[i], block) && ok;
	for (uint32_t i = 0; i < op->nout; i++)
		ok = check_value(v, op->out[i], op, i, block) && ok;
	if (op->body)
		ok = check_block(v, op->body) && ok;
	if ((HAS(op, where) && !are_places(v, op->at.where)) || (HAS(op, from) && !are_places(v, op->at.from)))
		ok = ver_fail(v, op, "it is at a place that the pipeline has not got");
	if (HAS(op, async) && !may_fly(op->code))
		ok = ver_fail(v, op, "it is no collective and no copy, it can't be {async}");
	ok = ok && (opinfo[op->code].class != C_HOST || check_host(v, op));
	ok = ok && (op->code != OP_WAIT || check_wait(v, op));
	ok = ok && (!HAS(op, ahead) || check_ahead(v, op, block));
	ok = ok && check_half(v, op) && ver_op_dims(v, op);
	if (v->m->form >= PARTITIONED)
		ok = ok && ver_op_shards(v, op);
	return ok;
}

static bool check_block(struct verifier *v, const struct block *block)
{
	enum phase phase = PROLOGUE;
	bool ok = true;

	for (uint32_t i = 0; i < block->args.n; i++)
		ok = check_value(v, block->args.at[i], NULL, i, block) && ok;
	for (const struct op *op = block->first; op; op = op->next) {
		if (op->code >= NOP)
			return ver_fail(v, NULL, "an unknown operation");
		ok = check_op(v, op, block, phase) && ok;
		phase = op->phase > phase ? op->phase : phase;
	}
	for (uint32_t i = 0; i < block->yields.n; i++)
		ok = check_use(v, block->owner, block->yields.at[i], block) && ok;
	for (const struct op *op = block->first; ok && op; op = op->next)
		if (op->nout && in_flight(op->out[0]) && !v->waited[op->out[0]->id])
			ok = ver_fail(v, op, "nothing waits for it");
	return ok;
}

/* A buffer is written once a step. */
static bool check_writes(struct verifier *v)
{
	for (const struct op *a = v->m->top.first; a; a = a->next) {
		if (a->code != OP_WRITE)
			continue;
		for (const struct op *b = a->prev; b; b = b->prev)
			if (b->code == OP_WRITE && streq(a->at.buf, b->at.buf))
				return ver_fail(v, a, "buffer '%s' is written twice", a->at.buf);
	}
	return true;
}

bool verify(const struct module *m, struct diag *d)
{
	struct verifier v = { .m = m, .d = d, .time = -1 };

	if (m->form >= NFORM || (m->precision != F32 && m->precision != BF16) || m->micro < 1)
		return ver_fail(&v, NULL, "the module has no form, precision or microbatches");
	if (m->arena > MAX_MEMORY || m->host > MAX_MEMORY || m->workspace > MAX_MEMORY)
		return ver_fail(&v, NULL, "it wants more than any memory has");
	if (!check_dim_table(&v) || !check_axis_table(&v))
		return false;
	v.time = time_axis(m);
	v.seen = NEWN(d->mem, struct value *, m->next_id + 1);
	v.waited = NEWN(d->mem, bool, m->next_id + 1);
	bool ok = true;
	for (uint32_t i = 0; i < m->bufs.n; i++)
		ok = check_buffer(&v, m->bufs.at[i]) && ok;
	if (!ok)
		return false;
	if (m->top.args.n || m->top.yields.n || m->top.owner)
		ok = ver_fail(&v, NULL, "the module's block has arguments, yields or an owner");
	return check_block(&v, &m->top) && check_writes(&v) && ok;
}
