/* ir/parse.c - text to IR: see text.h for the format. Any bytes are either read or refused with
 * one message; nothing here may trust a number or a name that it has read. The lines that declare
 * are in parse_line.c. */
#include "ir/parse.h"
#include "ir/text.h"

enum { MAX_DEPTH = 32, MAX_LIST = 4096, MAX_RESULTS = 4096 };

/* -- values by number -- */

static struct value **slot(struct parser *p, uint32_t id)
{
	uint32_t i = id * 2654435761u & (p->cap - 1);

	while (p->table[i] && p->table[i]->id != id)
		i = (i + 1) & (p->cap - 1);
	return &p->table[i];
}

static void define(struct parser *p, struct value *v, struct token at)
{
	if (2 * (p->ntable + 1) > p->cap) {
		struct value **old = p->table;
		uint32_t n = p->cap;

		p->cap = n * 2;
		p->table = NEWN(p->mem, struct value *, p->cap);
		for (uint32_t i = 0; i < n; i++)
			if (old[i])
				*slot(p, old[i]->id) = old[i];
	}
	v->id = at.id;
	if (*slot(p, v->id)) {
		lex_fail_at(p, at, "%%%u is defined twice", v->id);
		return;
	}
	*slot(p, v->id) = v;
	p->ntable++;
	PUSH(p->mem, &p->values, v);
}

/* One that block may read. */
static struct value *parse_use(struct parser *p, const struct block *block)
{
	struct token at = p->tok;
	struct value *v = NULL;

	if (p->tok.kind == T_VALUE) {
		v = *slot(p, p->tok.id);
		if (!v)
			lex_fail(p, "%%%u is used before it is defined", at.id);
		else if (v->home != block)
			lex_fail(p, "%%%u is not visible here: a block sees only its own values", at.id);
	} else {
		lex_fail(p, "a value expected");
	}
	lex_next(p);
	return p->bad ? NULL : v;
}

/* -- ops -- */

static struct dimlist parse_dimlist(struct parser *p)
{
	struct dimlist l = { 0 };

	lex_expect(p, '(', "'('");
	if (lex_accept(p, ')'))
		return l;
	do {
		dimid d = parse_dim(p);

		if (l.n == MAX_DIMS)
			lex_fail(p, "more than %d dims", MAX_DIMS);
		else
			l.d[l.n++] = d;
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
	return l;
}

static struct axes parse_axis_list(struct parser *p)
{
	struct axes l = { 0 };

	lex_expect(p, '(', "'('");
	if (p->tok.kind != ')')
		l = parse_axes(p);
	lex_expect(p, ')', "')'");
	return l;
}

static dimid parse_dim_attr(struct parser *p)
{
	return lex_accept(p, '-') ? NODIM : parse_dim(p);
}

static struct bits parse_bits(struct parser *p)
{
	struct token at = p->tok;
	bool ok = true;

	if (at.kind != T_STRING)
		return bits_of_word(p->mem, (uint64_t)lex_int(p, 0, INT64_MAX));
	struct bits b = bits_of_digits(p->mem, lex_string(p, "a string"), &ok);

	if (!ok)
		lex_fail_at(p, at, "these are not the digits of a set");
	return b;
}

static bool parse_attr(struct parser *p, struct op *op)
{
#define ATTR(x, value) \
	if (lex_is_word(&p->tok, #x)) { \
		if (HAS(op, x)) \
			return lex_fail(p, "'%s' twice", #x); \
		return lex_accept_key(p, #x) && (SET(op, x, value), !p->bad); \
	}
#define I(x) ATTR(x, lex_int(p, -INT64_MAX, INT64_MAX))
#define N(x) ATTR(x, lex_number(p))
#define S(x) ATTR(x, lex_string(p, "a string"))
#define D(x) ATTR(x, parse_dim_attr(p))
#define L(x) ATTR(x, parse_dimlist(p))
#define X(x) ATTR(x, parse_axis_list(p))
#define B(x) ATTR(x, parse_bits(p))
	ATTRS(I, N, S, D, L, X, B)
#undef I
#undef N
#undef S
#undef D
#undef L
#undef X
#undef B
#undef ATTR
	return lex_fail(p, "an unknown attribute");
}

/* '{' ends the line: it opens a body, not attributes. */
static bool opens_body(struct parser *p)
{
	if (p->tok.kind != '{')
		return false;
	lex_skip_blanks(p);
	return lex_peek(p, 0) == '\n' || p->pos >= p->len;
}

static void parse_attrs(struct parser *p, struct op *op)
{
	if (p->tok.kind != '{' || opens_body(p))
		return;
	lex_next(p);
	if (lex_accept(p, '}'))
		return;
	while (parse_attr(p, op) && lex_accept(p, ','))
		;
	lex_expect(p, '}', "'}'");
}

static enum opcode parse_opcode(struct parser *p)
{
	for (int i = 0; i < NOP; i++)
		if (lex_is_word(&p->tok, opinfo[i].name)) {
			lex_next(p);
			return (enum opcode)i;
		}
	lex_fail(p, "no operation '%.*s'", p->tok.n < 40 ? (int)p->tok.n : 40, p->tok.n ? p->tok.s : "");
	return NOP;
}

static void keep_facts(struct value *to, const struct value *from)
{
	to->sh = from->sh;
	to->name = from->name;
	to->kind = from->kind;
	to->placed = from->placed;
	to->off = from->off;
	to->span = from->span;
}

struct token_list {
	VEC(struct token) ids;
};

static void parse_ids(struct parser *p, struct token_list *l)
{
	do {
		struct token at = p->tok;

		if (at.kind != T_VALUE)
			lex_fail(p, "a value expected");
		else if (l->ids.n == MAX_RESULTS)
			lex_fail(p, "more than %d values", MAX_RESULTS);
		else
			PUSH(p->mem, &l->ids, at);
		lex_next(p);
	} while (!p->bad && lex_accept(p, ','));
}

static void parse_results(struct parser *p, struct builder *b, struct op *op, const struct token_list *l)
{
	if (l->ids.n)
		lex_expect(p, ':', "':' and a type");
	for (uint32_t i = 0; i < l->ids.n && !p->bad; i++) {
		if (i)
			lex_expect(p, ',', "',' and another type");
		struct value v = parse_value(p);
		if (p->bad)
			return;
		struct value *r = op_type(b, op, i, v.dt, v.nd, v.d);
		keep_facts(r, &v);
		define(p, r, l->ids.at[i]);
	}
}

static void parse_op_facts(struct parser *p, struct op *op)
{
	while (!p->bad) {
		if (lex_accept_key(p, "of")) {
			struct fix f = { op, p->tok };

			if (lex_expect(p, T_VALUE, "a value"))
				PUSH(p->mem, &p->fixes, f);
		} else if (lex_accept_key(p, "why")) {
			op->why = lex_string(p, "a string");
		} else if (lex_accept_key(p, "phase")) {
			op->phase = (enum phase)lex_choice(p, phase_name, NPHASE, "a phase");
		} else if (!lex_accept_span(p, &op->span)) {
			break;
		}
	}
	for (uint32_t i = 0; i < op->nout && !p->bad; i++)
		if (op->out[i]->span.line == UINT32_MAX)
			op->out[i]->span = op->span;
}

static void parse_block(struct parser *p, struct block *block, int depth);

static void parse_args(struct parser *p, struct block *block)
{
	struct builder b = { .m = p->m, .block = block };

	do {
		struct token at = p->tok;

		lex_expect(p, T_VALUE, "a value");
		lex_expect(p, ':', "':' and a type");
		struct value v = parse_value(p);
		if (p->bad || block->args.n == MAX_LIST) {
			lex_fail(p, "more than %d values", MAX_LIST);
			return;
		}
		if (v.span.line == UINT32_MAX)
			v.span = (struct span){ 0 };
		struct value *r = block_arg(&b, block, v.dt, v.nd, v.d);
		keep_facts(r, &v);
		define(p, r, at);
	} while (!p->bad && lex_accept(p, ','));
	lex_end_line(p);
}

static void parse_body(struct parser *p, struct op *op, int depth)
{
	lex_expect(p, '{', "'{' and a body");
	lex_end_line(p);
	op->body = block_new(p->m, op);
	if (depth > MAX_DEPTH)
		lex_fail(p, "bodies nested too deeply");
	if (lex_accept_word(p, "args"))
		parse_args(p, op->body);
	parse_block(p, op->body, depth);
	if (!lex_accept_word(p, "yield"))
		lex_fail(p, "'yield' expected");
	while (!p->bad && p->tok.kind == T_VALUE) {
		struct value *v = parse_use(p, op->body);

		if (op->body->yields.n == MAX_LIST)
			lex_fail(p, "more than %d values", MAX_LIST);
		if (!p->bad)
			PUSH(p->mem, &op->body->yields, v);
		if (!lex_accept(p, ','))
			break;
	}
	lex_end_line(p);
	lex_expect(p, '}', "'}'");
}

static void check_counts(struct parser *p, enum opcode code, uint32_t nin, uint32_t nout, struct token at)
{
	const struct opinfo *info = &opinfo[code];

	if ((int)nin < info->least || (int)nin > info->most)
		lex_fail_at(p, at, "%s has %d to %d operands, not %u", info->name, info->least, info->most, nin);
	else if (info->class != C_REGION && !results_fit(code, nin, nout))
		lex_fail_at(p, at, "%s has %u results, not %u", info->name, is_bucket(code) ? nin : (uint32_t)info->results,
			    nout);
}

static void parse_op(struct parser *p, struct block *block, enum phase phase, int depth)
{
	struct builder b = { .m = p->m, .block = block, .phase = phase };
	struct token_list ids = { 0 };
	VEC(struct value *) in = { 0 };

	if (p->tok.kind == T_VALUE) {
		parse_ids(p, &ids);
		lex_expect(p, '=', "'='");
	}
	struct token at = p->tok;
	enum opcode code = parse_opcode(p);
	if (p->tok.kind == T_VALUE) {
		do {
			struct value *v = parse_use(p, block);

			if (in.n == MAX_LIST)
				lex_fail_at(p, at, "more than %d operands", MAX_LIST);
			PUSH(p->mem, &in, v);
		} while (!p->bad && lex_accept(p, ','));
	}
	if (!p->bad)
		check_counts(p, code, in.n, ids.ids.n, at);
	if (p->bad)
		return;
	struct op *op = op_new(&b, code, in.n, in.at, ids.ids.n);
	parse_attrs(p, op);
	parse_results(p, &b, op, &ids);
	parse_op_facts(p, op);
	if (opinfo[code].class == C_REGION && !p->bad)
		parse_body(p, op, depth + 1);
	lex_end_line(p);
}

static void parse_block(struct parser *p, struct block *block, int depth)
{
	enum phase phase = block->owner ? block->owner->phase : p->phase;

	while (!p->bad && p->tok.kind != T_END && p->tok.kind != '}' && !lex_is_word(&p->tok, "yield"))
		if (!lex_accept(p, T_LINE))
			parse_op(p, block, phase, depth);
}

/* -- the module -- */

/* "forward:" and the like; op lines follow. */
static bool accept_section(struct parser *p)
{
	for (int i = 0; i < NPHASE; i++)
		if (lex_accept_word(p, phase_name[i])) {
			lex_expect(p, ':', "':'");
			p->phase = (enum phase)i;
			return true;
		}
	return false;
}

static void parse_line(struct parser *p)
{
	static const struct {
		const char *word;
		void (*parse)(struct parser *p);
	} line[] = { { "module", parse_module }, { "source", parse_source }, { "mesh", parse_mesh },
		     { "axis", parse_axis_line }, { "hardware", parse_hardware }, { "software", parse_software },
		     { "dim", parse_dim_line },
		     { "pipeline", parse_pipe }, { "recompute", parse_recompute }, { "chunk", parse_chunk },
		     { "buffer", parse_buffer }, { "arrow", parse_arrow } };

	for (int i = 0; i < (int)LEN(line); i++) {
		struct token at = p->tok;

		if (!lex_accept_word(p, line[i].word))
			continue;
		if (i < p->stage || (i == p->stage && (i == 0 || i == 4 || i == 5 || i == 7 || i == 8)))
			lex_fail_at(p, at, "'%s' out of order", line[i].word);
		p->stage = i;
		line[i].parse(p);
		lex_end_line(p);
		return;
	}
	p->stage = LEN(line);
	if (accept_section(p))
		lex_end_line(p);
	else
		parse_op(p, &p->m->top, p->phase, 0);
}

static void fix_references(struct parser *p)
{
	for (uint32_t i = 0; i < p->fixes.n && !p->bad; i++) {
		struct fix *f = &p->fixes.at[i];
		struct value *v = *slot(p, f->at.id);

		if (!v || !v->def || v->def == f->op)
			lex_fail_at(p, f->at, "of=%%%u names no other operation", f->at.id);
		else
			f->op->of = v->def;
	}
	if (!p->bad && p->batch.kind) {
		char *s = arena_strndup(p->mem, p->batch.s, p->batch.n);

		p->m->batch = find_dim(p->m, s);
		if (p->m->batch == NODIM)
			lex_fail_at(p, p->batch, "no dim '%s'", s);
	}
}

static void parse_all(struct parser *p)
{
	static const char head[] = "ptc-ir 1";
	size_t n = sizeof head - 1;

	p->tok = (struct token){ .kind = T_LINE, .line = 1, .col = 1, .n = 1 };
	if (p->len < n || memcmp(p->text, head, n) != 0) {
		lex_fail(p, "not an IR text of version 1: '%s' expected", head);
		return;
	}
	p->pos = n;
	p->stage = -1;
	lex_next(p);
	lex_end_line(p);
	while (!p->bad && p->tok.kind != T_END)
		if (!lex_accept(p, T_LINE))
			parse_line(p);
	fix_references(p);
	for (uint32_t i = 0; i < p->values.n; i++)
		p->values.at[i]->id = i;
	p->m->next_id = p->values.n;
}

struct module *module_parse(struct arena *mem, const char *name, const char *text, size_t len, struct diag *d)
{
	bool take = !d->src || !d->src->files.n;
	struct sources *src = take && d->src ? d->src : NEW(mem, struct sources);
	struct parser p = { .mem = mem, .m = module_new(mem, src), .d = d, .name = name, .text = text,
			    .len = len, .line = 1, .cap = 64, .phase = FORWARD };

	p.table = NEWN(mem, struct value *, p.cap);
	parse_all(&p);
	if (p.bad)
		return NULL;
	if (take)
		d->src = src;
	return p.m;
}

struct module *module_copy(struct module *m, struct arena *mem)
{
	size_t len = 0;
	char *text = module_print(m, mem, &len);
	struct diag d;

	diag_init(&d, mem, NULL, NULL);
	struct module *copy = module_parse(mem, "copy", text, len, &d);
	if (!copy)
		die("a module does not read back: %s", d.log.s);
	if (m->src)
		copy->src = m->src;
	return copy;
}
