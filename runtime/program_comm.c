/* runtime/program_comm.c - what may go on beside compute: collectives, and copies between the memories of host and device. */
#include <math.h>

#include "runtime/backend.h"
#include "runtime/lowering.h"

/* Is what starts begun, or carried out, where the plan starts it? */
static bool begins(const struct lowering *l, const struct op *op)
{
	return l->eager || (!l->late && (l->rt->backend->starts >> op_stream(op->code) & 1));
}

/* A group over the pipeline's axis is of the stages that run the op. */
static int64_t group_where(struct lowering *l, const struct op *op)
{
	int axis = pipe_axis(l->m);

	return axis >= 0 && (axes_bits(&op->at.axes) >> axis & 1) && HAS(op, where) ? op->at.where : 0;
}

static void note_start(struct lowering *l, struct instr *i)
{
	i->async = !l->eager && is_async(i->op) && begins(l, i->op);
	i->ahead = HAS(i->op, ahead) && begins(l, i->op);
	i->start = (int)l->rt->starts.n;
	PUSH(l->rt->mem, &l->rt->starts, i->op);
}

/* A copy between the memories of host and device. What only starts is shown in a trace when it is waited for. */
static bool emit_host(struct lowering *l, const struct op *op)
{
	struct loc from, to;
	int host = l->rt->regions->host;

	if (!find_loc(l, op->in[0], &from) || !find_loc(l, op->out[0], &to) || !covers(op->in[0], op->out[0]))
		return odd(l, op, "operand and result differ");
	if (host < 0 || (op->code == OP_FROM_HOST ? from.region : to.region) != host ||
	    (op->code == OP_FROM_HOST ? to.region : from.region) == host)
		return odd(l, op, "it is not between host and device");
	struct move *mv = emit_move(l, op);
	struct instr *i = &l->to->code.at[l->to->code.n - 1];

	mover_init(l->m, &mv->m, op->out[0], NODIM, op->out[0], op->in[0]);
	mv->to = to;
	mv->from = from;
	i->code = I_HOST;
	i->stream = (int8_t)trace_stream(l->m, op);
	note_start(l, i);
	i->aside = !l->eager && (i->async || i->ahead);
	if (i->async)
		i->stream = -1;
	return true;
}

bool lower_host(struct lowering *l, const struct op *op)
{
	return (is_async(op) && !begins(l, op)) || emit_host(l, op);
}

/* The free twins: nothing is sent. */
static bool lower_cut(struct lowering *l, const struct op *op, const struct loc *at)
{
	const struct value *in = op->in[0], *out = op->out[0];
	struct move *mv = emit_move(l, op);

	mover_init(l->m, &mv->m, out, NODIM, out, in);
	mv->from = at[0];
	mv->to = at[1];
	if (op->code == OP_TO_PARTIAL) {
		mv->m.mode = MODE_FILL;
		mv->m.axes = axes_bits(&op->at.axes);
		mv->m.fill = HAS(op, max) && op->at.max ? -INFINITY : 0;
		mv->m.from = HAS(op, from) ? op->at.from : 0;
		mv->m.from_all = HAS(op, form) && op->at.form;
		return true;
	}
	int i = dim_pos(out, op->at.dim);

	if (i < 0 || op->at.axes.n != 1)
		return odd(l, op, "no dim, or several axes");
	mv->m.part_axis = op->at.axes.a[0];
	mv->m.part = cap_of(l->m, op->at.dim, &out->sh.on[i]) * stride_in(l->m, in, op->at.dim);
	return true;
}

static bool emit_comm(struct lowering *l, const struct op *op, struct loc *at)
{
	struct instr *i = emit(l, I_COMM, op);

	i->at = at;
	i->group = group_kind(l->rt, axes_bits(&op->at.axes), group_where(l, op));
	i->no = (int)l->rt->senders.n;
	note_start(l, i);
	PUSH(l->rt->mem, &l->rt->senders, ((struct sender){ .op = op }));
	return true;
}

bool lower_comm(struct lowering *l, const struct op *op)
{
	struct loc *at = locs(l, op);

	if (!at)
		return false;
	for (uint32_t k = 0; k < op->nin; k++)
		if (!covers(op->in[k], op->out[k]) || op->in[k]->dt != op->out[k]->dt)
			return odd(l, op, "operand and result differ");
	if (!op->at.axes.n)
		return odd(l, op, "it has no axes");
	if (op->code == OP_SHARD || op->code == OP_TO_PARTIAL)
		return lower_cut(l, op, at);
	return (is_async(op) && !begins(l, op)) || emit_comm(l, op, at);
}

static bool emit_wait(struct lowering *l, const struct op *start)
{
	int no = 0;

	while (no < (int)l->rt->starts.n && l->rt->starts.at[no] != start)
		no++;
	struct instr *i = emit(l, I_WAIT, start);

	i->start = no;
	i->aside = opinfo[start->code].class == C_HOST;
	return no < (int)l->rt->starts.n || odd(l, start, "it is waited for before it is started");
}

/* Where the backend does not begin it, what was started is carried out here: of collectives a rank never blocks at the
 * start, and all wait in one order. */
bool lower_wait(struct lowering *l, const struct op *op)
{
	const struct op *start = op->in[0]->def;
	struct loc *at;

	if (!start || !may_fly(start->code) || start->nout != op->nin)
		return odd(l, op, "nothing was started");
	for (uint32_t k = 0; k < op->nin; k++)
		if (op->in[k] != start->out[k] || !covers(op->in[k], op->out[k]))
			return odd(l, op, "it does not fit what was started");
	if (begins(l, start))
		return l->eager || emit_wait(l, start);
	if (opinfo[start->code].class == C_HOST)
		return emit_host(l, start);
	at = locs(l, start);
	return at && emit_comm(l, start, at);
}
