/* ir/module.c - making and changing the graph. */
#include "ir/ir.h"

const struct opinfo opinfo[NOP] = {
#define OP(code, text, least, most, results, class, linear, formula) \
	[OP_##code] = { text, least, most, results, C_##class, L_##linear, formula },
#include "ir/ops.h"
#undef OP
};
const char *const dtype_name[NDTYPE] = { "f32", "bf16", "int", "bool" };
const char *const kind_name[NKIND] = { "const", "input", "param", "inner", "sum", "fn" };
const char *const phase_name[NPHASE] = { "prologue", "forward", "backward", "epilogue" };
const char *const role_name[NROLE] = { "input", "param", "state", "opt", "probe" };
const char *const init_name[NINIT] = { "zeros", "ones", "constant", "normal", "uniform" };
const char *const form_name[NFORM] = { "logical", "placed", "partitioned", "planned" };

int dtype_bytes(enum dtype dt)
{
	static const int bytes[NDTYPE] = { 4, 2, 4, 1 };

	return bytes[dt];
}

const char *const part_name[] = { "", "kept", "first" };
const char *const recompute_name[NRECOMPUTE] = { "none", "selective", "full", "auto" };

struct module *module_new(struct arena *mem, struct sources *src)
{
	struct module *m = NEW(mem, struct module);

	m->mem = mem;
	m->pipe.user = -1;
	m->src = src;
	m->micro = 1;
	m->batch = NODIM;
	return m;
}

dimid module_dim(struct module *m, const char *name, int64_t size, struct span at)
{
	struct dim d = { .name = name, .size = size, .at = at };

	if (m->dims.n >= NODIM)
		die("too many dims");
	PUSH(m->mem, &m->dims, d);
	return (dimid)(m->dims.n - 1);
}

dimid find_dim(const struct module *m, const char *name)
{
	for (uint32_t i = 0; i < m->dims.n; i++)
		if (streq(m->dims.at[i].name, name))
			return (dimid)i;
	return NODIM;
}

int find_axis(const struct module *m, const char *name)
{
	for (uint32_t i = 0; i < m->axes.n; i++)
		if (streq(m->axes.at[i].name, name))
			return (int)i;
	return -1;
}

struct buffer *find_buffer(const struct module *m, const char *name)
{
	for (uint32_t i = 0; i < m->bufs.n; i++)
		if (streq(m->bufs.at[i]->name, name))
			return m->bufs.at[i];
	return NULL;
}

struct buffer *module_buffer(struct module *m, enum role role, const char *name, enum dtype dt,
			     int nd, const dimid *d)
{
	struct buffer *b = NEW(m->mem, struct buffer);

	b->name = name;
	b->role = role;
	b->dt = dt;
	b->nd = (uint8_t)nd;
	if (nd)
		memcpy(b->d, d, (size_t)nd * sizeof *d);
	b->off = -1;
	PUSH(m->mem, &m->bufs, b);
	return b;
}

int time_axis(const struct module *m)
{
	for (uint32_t i = 0; i < m->axes.n; i++)
		if (m->axes.at[i].time)
			return (int)i;
	return -1;
}

int64_t module_ranks(const struct module *m)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < m->mesh.n; i++)
		n *= m->mesh.at[i].size;
	return n;
}

void rank_coords(const struct module *m, int64_t rank, int *coord)
{
	for (int i = (int)m->axes.n - 1; i >= 0; i--) {
		const struct axis *a = &m->axes.at[i];

		coord[i] = a->time ? 0 : (int)(rank % a->size);
		if (!a->time)
			rank /= a->size;
	}
}

/* -- ops -- */

static void link_op(struct block *block, struct op *op, struct op *before)
{
	op->home = block;
	op->next = before;
	op->prev = before ? before->prev : block->last;
	if (op->prev)
		op->prev->next = op;
	else
		block->first = op;
	if (before)
		before->prev = op;
	else
		block->last = op;
}

struct op *op_new(struct builder *b, enum opcode code, uint32_t nin, struct value *const *in,
		  uint32_t nout)
{
	struct op *op = NEW(b->m->mem, struct op);

	op->code = code;
	op->phase = b->phase;
	op->span = b->span;
	if (b->where)
		SET(op, where, b->where);
	op->of = b->of;
	op->nin = nin;
	op->in = NEWN(b->m->mem, struct value *, nin ? nin : 1);
	for (uint32_t i = 0; i < nin; i++) {
		if (!in[i])
			die("operand %u of %s is missing", i, opinfo[code].name);
		op->in[i] = in[i];
	}
	op->nout = nout;
	op->out = NEWN(b->m->mem, struct value *, nout ? nout : 1);
	link_op(b->block, op, b->before);
	return op;
}

static struct value *value_new(struct module *m, enum dtype dt, int nd, const dimid *d)
{
	struct value *v = NEW(m->mem, struct value);

	if (nd > MAX_DIMS)
		die("a value of %d dims", nd);
	v->id = m->next_id++;
	v->dt = dt;
	v->nd = (uint8_t)nd;
	if (nd)
		memcpy(v->d, d, (size_t)nd * sizeof *d);
	v->off = -1;
	return v;
}

struct value *op_type(struct builder *b, struct op *op, uint32_t no, enum dtype dt, int nd,
		      const dimid *d)
{
	struct value *v = value_new(b->m, dt, nd, d);

	v->def = op;
	v->no = no;
	v->home = op->home;
	v->span = op->span;
	op->out[no] = v;
	return v;
}

struct block *block_new(struct module *m, struct op *owner)
{
	struct block *block = NEW(m->mem, struct block);

	block->owner = owner;
	return block;
}

struct value *block_arg(struct builder *b, struct block *block, enum dtype dt, int nd, const dimid *d)
{
	struct value *v = value_new(b->m, dt, nd, d);

	v->home = block;
	v->no = block->args.n;
	v->span = b->span;
	PUSH(b->m->mem, &block->args, v);
	return v;
}

void op_half(struct op *op, const struct op *as)
{
	op->has &= ~(1u << A_late);
	op->at.late = 0;
	if (HAS(as, late))
		SET(op, late, 1);
}

void op_unlink(struct op *op)
{
	struct block *block = op->home;

	if (op->prev)
		op->prev->next = op->next;
	else
		block->first = op->next;
	if (op->next)
		op->next->prev = op->prev;
	else
		block->last = op->prev;
	op->prev = op->next = NULL;
}

void op_move_before(struct op *op, struct op *at)
{
	struct block *block = op->home;

	op_unlink(op);
	link_op(block, op, at);
}

void op_add_in(struct module *m, struct op *op, struct value *v)
{
	struct value **in = NEWN(m->mem, struct value *, op->nin + 1);

	memcpy(in, op->in, op->nin * sizeof *in);
	in[op->nin++] = v;
	op->in = in;
}

struct value *op_add_out(struct module *m, struct op *op, struct value *like)
{
	struct value **out = NEWN(m->mem, struct value *, op->nout + 1);
	struct value *v = value_new(m, like->dt, like->nd, like->d);

	memcpy(out, op->out, op->nout * sizeof *out);
	v->sh = like->sh;
	v->placed = like->placed;
	v->kind = like->kind;
	v->span = like->span;
	v->def = op;
	v->home = op->home;
	v->no = op->nout;
	out[op->nout++] = v;
	op->out = out;
	return v;
}

void replace_uses(struct block *in, struct value *old, struct value *new)
{
	for (struct op *op = in->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nin; i++)
			if (op->in[i] == old)
				op->in[i] = new;
		if (op->body)
			replace_uses(op->body, old, new);
	}
	for (uint32_t i = 0; i < in->yields.n; i++)
		if (in->yields.at[i] == old)
			in->yields.at[i] = new;
}

static struct value *mapped(struct value *v, bool use_aux)
{
	return use_aux && v->aux ? v->aux : v;
}

static void copy_facts(struct value *to, const struct value *from)
{
	to->sh = from->sh;
	to->placed = from->placed;
	to->kind = from->kind;
	to->name = from->name;
	to->span = from->span;
	to->off = from->off;
}

/* Everything inside a cloned region is mapped by aux, whatever use_aux says outside. */
static void clone_body(struct builder *b, struct op *op, const struct block *from)
{
	struct builder in = *b;

	op->body = block_new(b->m, op);
	in.block = op->body;
	in.before = NULL;
	for (uint32_t i = 0; i < from->args.n; i++) {
		struct value *a = from->args.at[i];
		struct value *v = block_arg(&in, op->body, a->dt, a->nd, a->d);

		copy_facts(v, a);
		a->aux = v;
	}
	for (struct op *o = from->first; o; o = o->next)
		for (uint32_t i = 0; i < o->nout; i++)
			o->out[i]->aux = NULL;
	for (struct op *o = from->first; o; o = o->next)
		op_clone(&in, o, true);
	for (uint32_t i = 0; i < from->yields.n; i++)
		PUSH(b->m->mem, &op->body->yields, mapped(from->yields.at[i], true));
}

struct op *op_clone(struct builder *b, const struct op *op, bool use_aux)
{
	struct op *new = op_new(b, op->code, op->nin, op->in, op->nout);

	for (uint32_t i = 0; i < op->nin; i++)
		new->in[i] = mapped(op->in[i], use_aux);
	new->has = op->has;
	new->at = op->at;
	new->why = op->why;
	new->span = op->span;
	new->of = op->of ? op->of : b->of;
	for (uint32_t i = 0; i < op->nout; i++) {
		struct value *v = op_type(b, new, i, op->out[i]->dt, op->out[i]->nd, op->out[i]->d);

		copy_facts(v, op->out[i]);
		op->out[i]->aux = v;
	}
	if (op->body)
		clone_body(b, new, op->body);
	return new;
}

/* -- short hands -- */

static enum dtype float_of(enum dtype a, enum dtype b)
{
	if (a == F32 || b == F32)
		return F32;
	return a == BF16 || b == BF16 ? BF16 : F32;
}

static bool is_test(enum opcode code)
{
	return (code >= OP_EQ && code <= OP_OR) || code == OP_NOT;
}

static enum dtype join_type(enum opcode code, enum dtype a, enum dtype b)
{
	if (is_test(code))
		return BOOL;
	if (is_float(a) || is_float(b) || code == OP_DIV)
		return float_of(is_float(a) ? a : b, is_float(b) ? b : a);
	return INT;
}

struct value *b_const(struct builder *b, enum dtype dt, double x)
{
	struct op *op = op_new(b, OP_CONST, 0, NULL, 1);

	SET(op, value, x);
	return op_type(b, op, 0, dt, 0, NULL);
}

struct value *b_index(struct builder *b, dimid d)
{
	struct op *op = op_new(b, OP_INDEX, 0, NULL, 1);

	SET(op, dim, d);
	return op_type(b, op, 0, INT, 1, &d);
}

struct value *b_map1(struct builder *b, enum opcode code, struct value *x)
{
	struct op *op = op_new(b, code, 1, &x, 1);
	enum dtype dt = code == OP_NOT ? BOOL : x->dt;

	if (code >= OP_EXP && code <= OP_COS && !is_float(dt))
		dt = F32;
	if (dt == BOOL && code != OP_NOT && code != OP_DETACH)
		dt = INT;
	return op_type(b, op, 0, dt, x->nd, x->d);
}

struct value *b_map2(struct builder *b, enum opcode code, struct value *x, struct value *y)
{
	struct value *in[2] = { x, y };
	struct op *op = op_new(b, code, 2, in, 1);
	dimid d[2 * MAX_DIMS];
	int n = union_dims(union_dims(0, d, x), d, y);

	return op_type(b, op, 0, join_type(code, x->dt, y->dt), n, d);
}

struct value *b_where(struct builder *b, struct value *c, struct value *x, struct value *y)
{
	struct value *in[3] = { c, x, y };
	struct op *op = op_new(b, OP_WHERE, 3, in, 1);
	dimid d[3 * MAX_DIMS];
	int n = union_dims(0, d, x->nd >= c->nd ? x : c);

	n = union_dims(union_dims(union_dims(n, d, x), d, y), d, c);
	enum dtype dt = x->dt == BOOL && y->dt == BOOL ? BOOL : join_type(OP_ADD, x->dt, y->dt);
	return op_type(b, op, 0, dt, n, d);
}

struct value *b_cast(struct builder *b, struct value *x, enum dtype dt)
{
	if (x->dt == dt)
		return x;
	struct op *op = op_new(b, OP_CAST, 1, &x, 1);
	return op_type(b, op, 0, dt, x->nd, x->d);
}

struct value *b_reduce(struct builder *b, enum opcode code, struct value *x, int nd, const dimid *over)
{
	struct op *op = op_new(b, code, 1, &x, 1);
	dimid d[MAX_DIMS];
	int n = 0;

	for (int i = 0; i < x->nd; i++) {
		bool gone = false;

		for (int k = 0; k < nd; k++)
			gone |= over[k] == x->d[i];
		if (!gone)
			d[n++] = x->d[i];
	}
	return op_type(b, op, 0, x->dt == BOOL ? INT : x->dt, n, d);
}

struct value *b_einsum(struct builder *b, struct value *x, struct value *y, enum dtype dt,
		       int nd, const dimid *keep)
{
	struct value *in[2] = { x, y };
	struct op *op = op_new(b, OP_EINSUM, 2, in, 1);

	return op_type(b, op, 0, dt, nd, keep);
}

struct value *b_rename(struct builder *b, struct value *x, dimid from, dimid to)
{
	struct op *op = op_new(b, OP_RENAME, 1, &x, 1);
	dimid d[MAX_DIMS];

	SET(op, dims, (struct dimlist){ 1, { from } });
	SET(op, tos, (struct dimlist){ 1, { to } });
	for (int i = 0; i < x->nd; i++)
		d[i] = x->d[i] == from ? to : x->d[i];
	return op_type(b, op, 0, x->dt, x->nd, d);
}

struct value *b_read(struct builder *b, const struct buffer *buf)
{
	struct op *op = op_new(b, OP_READ, 0, NULL, 1);

	SET(op, buf, buf->name);
	struct value *v = op_type(b, op, 0, buf->dt, buf->nd, buf->d);
	return v;
}

/* -- dims -- */

int dim_pos(const struct value *v, dimid d)
{
	for (int i = 0; i < v->nd; i++)
		if (v->d[i] == d)
			return i;
	return -1;
}

int64_t dim_size(const struct module *m, dimid d)
{
	const struct dim *x = &m->dims.at[d];
	int64_t rows = 0;

	if (x->part != PART_KEPT)
		return x->size;
	for (int s = 0; is_staged(m, d) && s < pipe_stages(m); s++)
		rows += pipe_rows(m, d, s);
	if (is_staged(m, d))
		return rows;
	rows = dim_size(m, x->of);
	return rows ? kept_row(m, d, rows - 1) + 1 : 0;
}

dimid part_dim(struct module *m, enum dim_part part, dimid of, int64_t from)
{
	for (uint32_t i = 0; i < m->dims.n; i++)
		if (m->dims.at[i].part == part && m->dims.at[i].of == of && m->dims.at[i].from == from)
			return (dimid)i;
	const char *name = arena_printf(m->mem, "%s.%s%lld", m->dims.at[of].name, part_name[part], (long long)from);
	dimid d = module_dim(m, name, 1, m->dims.at[of].at);

	m->dims.at[d].part = part;
	m->dims.at[d].of = of;
	m->dims.at[d].from = from;
	return d;
}

dimid kept_part(const struct module *m, dimid loop)
{
	for (uint32_t d = 0; d < m->dims.n; d++)
		if (m->dims.at[d].part == PART_KEPT && m->dims.at[d].of == loop)
			return (dimid)d;
	return NODIM;
}

dimid stack_dim(const struct module *m, const struct value *whole, dimid loop)
{
	if (has_dim(whole, loop))
		return loop;
	for (int i = 0; i < whole->nd; i++)
		if (m->dims.at[whole->d[i]].part == PART_KEPT && m->dims.at[whole->d[i]].of == loop)
			return whole->d[i];
	return NODIM;
}

bool is_first_part(const struct module *m, const struct op *op)
{
	return op->code == OP_REPEAT && m->dims.at[op->at.dim].part == PART_FIRST;
}

int64_t value_count(const struct module *m, const struct value *v)
{
	int64_t n = 1;

	for (int i = 0; i < v->nd; i++)
		n *= dim_size(m, v->d[i]);
	return n;
}

static int add_dim(int n, dimid *d, dimid x)
{
	for (int i = 0; i < n; i++)
		if (d[i] == x)
			return n;
	d[n] = x;
	return n + 1;
}

int union_dims(int n, dimid *d, const struct value *v)
{
	for (int i = 0; i < v->nd; i++)
		n = add_dim(n, d, v->d[i]);
	return n;
}

bool same_dims(const struct value *a, const struct value *b)
{
	if (a->nd != b->nd)
		return false;
	for (int i = 0; i < a->nd; i++)
		if (!has_dim(b, a->d[i]))
			return false;
	return true;
}

static bool in_list(const struct dimlist *l, dimid d)
{
	for (int i = 0; i < l->n; i++)
		if (l->d[i] == d)
			return true;
	return false;
}

bool op_closed_dim(const struct op *op, dimid d)
{
	switch (op->code) {
	case OP_ATTENTION:
	case OP_ATTENTION_GRAD:
		return d == op->at.dim || d == op->at.ctx;
	case OP_ROLL:
		return d == op->at.dim;
	case OP_SLICE:
	case OP_PAD:
		return d == op->at.dim || d == op->at.to;
	case OP_SPLIT:
		return op->at.tos.n > 0 && d != op->at.tos.d[0] && in_list(&op->at.tos, d);
	case OP_MERGE:
		return op->at.dims.n > 0 && d != op->at.dims.d[0] && in_list(&op->at.dims, d);
	case OP_ARGMAX:
		return d == op->at.dim;
	case OP_TOPK:
		return d == op->at.dim || d == op->at.to;
	case OP_RANK:
		return in_list(&op->at.dims, d);
	default:
		return false;
	}
}

/* -- labels -- */

dimid op_label(const struct op *op, dimid d, bool result)
{
	if (op->code == OP_SPLIT && result && op->at.tos.n && d == op->at.tos.d[0])
		return op->at.dim;
	if (op->code == OP_MERGE && !result && op->at.dims.n && d == op->at.dims.d[0])
		return op->at.to;
	for (int i = 0; op->code == OP_RENAME && !result && i < op->at.dims.n; i++)
		if (op->at.dims.d[i] == d)
			return op->at.tos.d[i];
	return d;
}

int label_pos(const struct op *op, const struct value *v, dimid label, bool result)
{
	for (int i = 0; i < v->nd; i++)
		if (op_label(op, v->d[i], result) == label)
			return i;
	return -1;
}

bool op_may_split(const struct module *m, const struct op *op, dimid label, const struct axes *on)
{
	bool split = op->code == OP_SPLIT && label == op->at.dim, merge = op->code == OP_MERGE && label == op->at.to;

	if (!on->n)
		return true;
	if (op_closed_dim(op, label) && !attn_keys(op, label))
		return false;
	if (!split && !merge)
		return true;
	const struct dimlist *parts = split ? &op->at.tos : &op->at.dims;
	int64_t ranks = 1;

	for (int i = 0; i < on->n; i++)
		ranks *= m->axes.at[on->a[i]].size;
	return parts->n && dim_size(m, parts->d[0]) % ranks == 0;
}

/* -- attention -- */

int attn_extra(const struct op *op, int which)
{
	int at = 3;

	if (!HAS(op, extra) || !(op->at.extra & which))
		return -1;
	for (int bit = 1; bit < which; bit <<= 1)
		at += (op->at.extra & bit) != 0;
	return at;
}

uint32_t attn_rest(const struct op *op)
{
	return 3 + (HAS(op, extra) ? (uint32_t)__builtin_popcount((unsigned)op->at.extra & 7) : 0);
}

uint32_t attn_iterations(const struct op *op)
{
	return attn_rest(op) + (op->code == OP_ATTENTION_GRAD ? 3 : 0);
}

bool attn_keys(const struct op *op, dimid d)
{
	return opinfo[op->code].class == C_ATTN && d == op->at.ctx;
}

bool attn_whole(const struct op *op, dimid d, uint32_t no, bool result)
{
	return attn_keys(op, d) && no >= 3 && (result || no < attn_rest(op));
}

uint32_t attn_ring(const struct op *op)
{
	if (opinfo[op->code].class != C_ATTN || !HAS(op, axes))
		return 0;
	return axes_bits(&op->at.axes) & sharding_axes(&op->in[0]->sh, op->in[0]->nd);
}

uint32_t attn_apart(const struct op *op)
{
	if (opinfo[op->code].class != C_ATTN || !HAS(op, axes))
		return 0;
	return axes_bits(&op->at.axes) & ~attn_ring(op);
}

bool comm_sends(enum opcode code)
{
	return opinfo[code].class == C_COMM && code != OP_SHARD && code != OP_TO_PARTIAL && code != OP_WAIT;
}

enum stream op_stream(enum opcode code)
{
	return code == OP_FROM_HOST ? S_IN : code == OP_TO_HOST ? S_OUT : comm_sends(code) ? S_COMM : S_COMPUTE;
}

const struct buffer *host_buffer(const struct module *m, const struct value *v)
{
	const struct buffer *b = NULL;

	while (!v->def && v->home->owner && v->home->owner->code == OP_REPEAT && (int64_t)v->no >= v->home->owner->at.ncarry)
		v = v->home->owner->in[v->no];
	if (v->def && v->def->code == OP_READ)
		b = find_buffer(m, v->def->at.buf);
	/* a read that lays it out otherwise is a copy by itself */
	return b && b->host && b->role != B_INPUT && same_layout(v, b->nd, b->d, b->store.on, b->dt) ? b : NULL;
}

bool is_bucket(enum opcode code)
{
	return opinfo[code].class == C_COMM && opinfo[code].most > 1;
}

bool results_fit(enum opcode code, uint32_t nin, uint32_t nout)
{
	if (is_bucket(code))
		return nout == nin;
	return (int)nout == opinfo[code].results || (code == OP_ATTENTION_GRAD && nout == 4);
}

int op_space(const struct op *op, dimid *d)
{
	int n = 0;

	for (uint32_t i = 0; i < op->nin; i++)
		n = union_dims(n, d, op->in[i]);
	for (uint32_t i = 0; i < op->nout; i++)
		n = union_dims(n, d, op->out[i]);
	return n;
}

uint64_t op_linear(const struct op *op, uint32_t i)
{
	uint64_t all = op->nin >= 64 ? ~0ull : (1ull << op->nin) - 1;

	switch (opinfo[op->code].linear) {
	case L_ALL:
		return all;
	case L_ONE:
		return 1ull << i;
	case L_FIRST:
		return i == 0 ? 1 : 0;
	case L_REST:
		return i ? all & ~1ull : 0;
	case L_NO:
		return 0;
	}
	return 0;
}

bool repeat_adds(const struct op *repeat, uint32_t k)
{
	return HAS(repeat, acc) && bits_has(repeat->at.acc, (int64_t)k - repeat->at.ncarry);
}

bool repeat_local(const struct op *repeat, uint32_t k)
{
	return HAS(repeat, local) && k < repeat->at.ncarry && bits_has(repeat->at.local, k);
}

static bool same_list(const struct dimlist *a, const struct dimlist *b)
{
	return a->n == b->n && !memcmp(a->d, b->d, a->n * sizeof *a->d);
}

bool op_same_attrs(const struct op *a, const struct op *b)
{
	bool same = a->has == b->has;

#define I(x) same = same && (!HAS(a, x) || a->at.x == b->at.x);
#define N(x) same = same && (!HAS(a, x) || !memcmp(&a->at.x, &b->at.x, sizeof a->at.x));
#define S(x) same = same && (!HAS(a, x) || streq(a->at.x, b->at.x));
#define D(x) I(x)
#define L(x) same = same && (!HAS(a, x) || same_list(&a->at.x, &b->at.x));
#define X(x) same = same && (!HAS(a, x) || axes_equal(&a->at.x, &b->at.x));
#define B(x) same = same && (!HAS(a, x) || bits_equal(a->at.x, b->at.x));
	ATTRS(I, N, S, D, L, X, B)
#undef I
#undef N
#undef S
#undef D
#undef L
#undef X
#undef B
	return same;
}

void block_unmark(struct block *block)
{
	for (uint32_t i = 0; i < block->args.n; i++)
		block->args.at[i]->mark = 0;
	for (struct op *op = block->first; op; op = op->next) {
		op->mark = 0;
		for (uint32_t i = 0; i < op->nout; i++)
			op->out[i]->mark = 0;
		if (op->body)
			block_unmark(op->body);
	}
}
