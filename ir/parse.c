/* ir/parse.c - text to IR: see text.h for the format. Any bytes are either read or refused with
 * one message; nothing here may trust a number or a name that it has read. */
#include "ir/lex.h"
#include "ir/text.h"

enum { MAX_DEPTH = 32, MAX_LIST = 4096, MAX_RESULTS = 4096, MOST_DIMS = 4096, MOST_BUFFERS = 16384,
       MOST_RANKS = 1 << 20 };
static const int64_t MOST_SIZE = (int64_t)1 << 40;     /* of a dim */
static const int64_t MOST_ELEMENTS = (int64_t)1 << 56; /* of a value */

/* -- types -- */

static dimid parse_dim(struct parser *p)
{
	struct token at = p->tok;
	const char *s = lex_name(p, "a dim");
	dimid d = p->bad ? NODIM : find_dim(p->m, s);

	if (d == NODIM)
		lex_fail_at(p, at, "no dim '%s'", s);
	return d;
}

static int parse_axis(struct parser *p)
{
	struct token at = p->tok;
	const char *s = lex_name(p, "an axis");
	int a = p->bad ? 0 : find_axis(p->m, s);

	if (a < 0)
		lex_fail_at(p, at, "no axis '%s'", s);
	return a < 0 ? 0 : a;
}

static int parse_user_axis(struct parser *p)
{
	struct token at = p->tok;
	const char *s = lex_name(p, "an axis of the mesh");

	for (uint32_t i = 0; i < p->m->mesh.n; i++)
		if (streq(p->m->mesh.at[i].name, s))
			return (int)i;
	lex_fail_at(p, at, "no axis '%s' in the mesh", s);
	return 0;
}

static struct axes parse_axes(struct parser *p)
{
	struct axes l = { 0 };

	do {
		if (l.n == MAX_ON) {
			lex_fail(p, "more than %d axes", MAX_ON);
			break;
		}
		axes_push(&l, parse_axis(p));
	} while (lex_accept(p, '.'));
	return l;
}

static uint32_t parse_pending(struct parser *p)
{
	uint32_t bits = 0;

	do {
		bits |= 1u << parse_axis(p);
	} while (lex_accept(p, '.'));
	return bits;
}

/* nd, d and sh of *v. */
static void parse_shape(struct parser *p, struct value *v)
{
	int64_t count = 1;

	v->nd = 0;
	if (lex_accept(p, '[') && !lex_accept(p, ']')) {
		do {
			struct token at = p->tok;
			dimid d = parse_dim(p);

			if (p->bad)
				return;
			if (has_dim(v, d))
				lex_fail_at(p, at, "dim '%s' twice in a type", p->m->dims.at[d].name);
			else if (v->nd == MAX_DIMS)
				lex_fail_at(p, at, "more than %d dims", MAX_DIMS);
			else if (!elements_fit(&count, dim_size(p->m, d), MOST_ELEMENTS))
				lex_fail_at(p, at, "too many elements");
			if (p->bad)
				return;
			v->d[v->nd] = d;
			if (lex_accept(p, '@'))
				v->sh.on[v->nd] = parse_axes(p);
			v->nd++;
		} while (lex_accept(p, ','));
		lex_expect(p, ']', "']'");
	}
	if (lex_accept(p, '+'))
		v->sh.sum = parse_pending(p);
	if (lex_accept(p, '^'))
		v->sh.max = parse_pending(p);
}

static void parse_type(struct parser *p, struct value *v)
{
	v->dt = (enum dtype)lex_choice(p, dtype_name, NDTYPE, "a type");
	parse_shape(p, v);
}

/* type facts. A span of UINT32_MAX lines: that of the op. */
static struct value parse_value(struct parser *p)
{
	struct value v = { .off = -1, .span = { .line = UINT32_MAX } };

	parse_type(p, &v);
	while (!p->bad) {
		if (p->tok.kind == T_STRING)
			v.name = lex_string(p, "a name");
		else if (lex_accept_key(p, "kind"))
			v.kind = (enum kind)lex_choice(p, kind_name, NKIND, "a kind");
		else if (lex_accept_word(p, "anchor"))
			v.placed = true;
		else if (lex_accept_key(p, "off"))
			v.off = lex_int(p, 0, INT64_MAX);
		else if (lex_accept_key(p, "at"))
			v.span = lex_span(p);
		else
			break;
	}
	return v;
}

/* -- declarations -- */

static void parse_module(struct parser *p)
{
	static const char *const precision[] = { "f32", "bf16" };
	struct module *m = p->m;

	if (p->tok.kind == T_STRING)
		m->name = lex_string(p, "a name");
	while (!p->bad && p->tok.kind == T_WORD) {
		if (lex_accept_key(p, "form")) {
			m->form = (enum form)lex_choice(p, form_name, NFORM, "a form");
		} else if (lex_accept_key(p, "precision")) {
			m->precision = (enum dtype)lex_choice(p, precision, 2, "a precision");
		} else if (lex_accept_key(p, "micro")) {
			m->micro = lex_int(p, 1, MOST_RANKS);
		} else if (lex_accept_key(p, "batch")) {
			p->batch = p->tok;
			lex_name(p, "a dim");
		} else if (lex_accept_key(p, "workspace")) {
			m->workspace = lex_int(p, 0, INT64_MAX);
		} else if (lex_accept_key(p, "arena")) {
			m->arena = lex_int(p, 0, INT64_MAX);
		} else if (lex_accept_key(p, "host")) {
			m->host = lex_int(p, 0, INT64_MAX);
		} else if (lex_accept_word(p, "probes")) {
			m->probes = true;
		} else {
			lex_fail(p, "an unknown property of the module");
		}
	}
}

static void parse_source(struct parser *p)
{
	struct source s = { 0 };

	lex_int(p, p->m->src->files.n, p->m->src->files.n);
	s.name = lex_string(p, "the name of a file");
	if (!p->bad)
		PUSH(p->mem, &p->m->src->files, s);
}

static void add_axis(struct parser *p, struct axis a, struct token at)
{
	int64_t places = a.size; /* of all axes, time included */

	for (uint32_t i = 0; i < p->m->axes.n; i++)
		places *= p->m->axes.at[i].size;
	if (places > MOST_SIZE)
		lex_fail_at(p, at, "too large a mesh");
	else if (find_axis(p->m, a.name) >= 0)
		lex_fail_at(p, at, "axis '%s' twice", a.name);
	else if (p->m->axes.n == MAX_AXES)
		lex_fail_at(p, at, "more than %d axes", MAX_AXES);
	else if (!p->bad)
		PUSH(p->mem, &p->m->axes, a);
}

/* Until axes are listed, those of the mesh are the axes. */
static void parse_mesh(struct parser *p)
{
	struct token at = p->tok;
	struct module *m = p->m;
	struct user_axis u = { .name = lex_name(p, "an axis") };

	lex_expect(p, '=', "'='");
	u.size = (int)lex_int(p, 1, MOST_RANKS);
	lex_accept_span(p, &u.at);
	if (m->mesh.n == MAX_MESH)
		lex_fail_at(p, at, "more than %d axes of the mesh", MAX_MESH);
	add_axis(p, (struct axis){ u.name, u.size, (int)m->mesh.n, false }, at);
	if (p->bad)
		return;
	PUSH(p->mem, &m->mesh, u);
	if (module_ranks(m) > MOST_RANKS)
		lex_fail_at(p, at, "more than %d ranks", MOST_RANKS);
}

static void parse_axis_line(struct parser *p)
{
	struct token at = p->tok;
	struct axis a = { .name = lex_name(p, "an axis"), .user = -1 };

	lex_expect(p, '=', "'='");
	a.size = (int)lex_int(p, 1, MOST_RANKS);
	if (lex_accept_word(p, "time"))
		a.time = true;
	else if (lex_accept_word(p, "of"))
		a.user = parse_user_axis(p);
	else
		lex_fail(p, "'of' or 'time' expected");
	if (!p->axes_listed)
		p->m->axes.n = 0;
	p->axes_listed = true;
	add_axis(p, a, at);
}

static void parse_link(struct parser *p)
{
	struct hardware *h = &p->m->hw;
	struct link l = { 0 };

	l.name = lex_name(p, "a link");
	lex_expect(p, ':', "':'");
	l.group = lex_int(p, 0, MOST_SIZE);
	lex_expect(p, ':', "':'");
	l.bandwidth = lex_number(p);
	lex_expect(p, ':', "':'");
	l.latency = lex_number(p);
	if (h->nlink == (int)LEN(h->link))
		lex_fail(p, "more than %d links", (int)LEN(h->link));
	else
		h->link[h->nlink++] = l;
}

static void parse_hardware(struct parser *p)
{
	struct hardware *h = &p->m->hw;
	const struct { const char *name; double *x; } field[] = {
		{ "fp32", &h->fp32 }, { "bf16", &h->bf16 }, { "fp8", &h->fp8 }, { "memory", &h->memory },
		{ "bandwidth", &h->bandwidth }, { "price", &h->price },
	};

	if (p->tok.kind == T_STRING)
		h->name = lex_string(p, "a name");
	while (!p->bad && p->tok.kind == T_WORD) {
		size_t i = 0;

		if (lex_accept_key(p, "link")) {
			parse_link(p);
			continue;
		}
		while (i < LEN(field) && !lex_is_word(&p->tok, field[i].name))
			i++;
		if (i == LEN(field))
			lex_fail(p, "an unknown property of the hardware");
		else if (lex_accept_key(p, field[i].name))
			*field[i].x = lex_number(p);
	}
}

static void parse_dim_line(struct parser *p)
{
	struct token at = p->tok;
	const char *s = lex_name(p, "a dim");
	struct span span = { 0 };

	lex_expect(p, '=', "'='");
	int64_t size = lex_int(p, 0, MOST_SIZE), zigzag = 0;
	if (lex_accept_word(p, "zigzag")) {
		lex_expect(p, '=', "'='");
		zigzag = lex_int(p, 2, MOST_RANKS);
		if (!p->bad && (!size || size % (2 * zigzag)))
			lex_fail_at(p, at, "%lld are no 2 * %lld equal chunks", (long long)size, (long long)zigzag);
	}
	lex_accept_span(p, &span);
	if (p->bad)
		return;
	if (find_dim(p->m, s) != NODIM)
		lex_fail_at(p, at, "dim '%s' twice", s);
	else if (p->m->dims.n == MOST_DIMS)
		lex_fail_at(p, at, "more than %d dims", MOST_DIMS);
	else {
		dimid d = module_dim(p->m, s, size, span);

		p->m->dims.at[d].zigzag = (int)zigzag;
	}
}

static void parse_compute(struct parser *p, struct buffer *b)
{
	struct token at = p->tok;
	struct value v = { 0 };

	parse_shape(p, &v);
	if (v.nd != b->nd || memcmp(v.d, b->d, sizeof *v.d * v.nd) != 0)
		lex_fail_at(p, at, "other dims than those of '%s'", b->name);
	b->compute = v.sh;
}

static void parse_init(struct parser *p, struct buffer *b)
{
	b->init = (enum init)lex_choice(p, init_name, NINIT, "an init");
	if (lex_accept(p, '(')) {
		b->init_arg = lex_number(p);
		lex_expect(p, ')', "')'");
	}
}

static void parse_buffer_facts(struct parser *p, struct buffer *b)
{
	while (!p->bad && p->tok.kind == T_WORD) {
		if (lex_accept_key(p, "init")) {
			parse_init(p, b);
		} else if (lex_accept_key(p, "tokens")) {
			b->tokens = lex_int(p, 0, MOST_SIZE);
		} else if (lex_accept_key(p, "next")) {
			b->next_of = lex_string(p, "an input");
			lex_expect(p, ':', "':'");
			b->next_k = lex_int(p, INT32_MIN, INT32_MAX);
		} else if (lex_accept_key(p, "owner")) {
			b->owner = lex_string(p, "a param");
		} else if (lex_accept_key(p, "compute")) {
			parse_compute(p, b);
		} else if (lex_accept_key(p, "where")) {
			b->where = lex_int(p, 0, INT64_MAX);
		} else if (lex_accept_word(p, "host")) {
			b->host = true;
		} else if (lex_accept_key(p, "off")) {
			b->off = lex_int(p, 0, INT64_MAX);
		} else {
			lex_fail(p, "an unknown property of a buffer");
		}
	}
	lex_accept_span(p, &b->at);
}

static void parse_buffer(struct parser *p)
{
	struct value v = { 0 };

	lex_expect(p, '@', "'@'");
	struct token at = p->tok;
	const char *s = lex_string(p, "the name of a buffer");
	enum role role = (enum role)lex_choice(p, role_name, NROLE, "a role");
	parse_type(p, &v);
	if (p->bad)
		return;
	if (find_buffer(p->m, s)) {
		lex_fail_at(p, at, "buffer '%s' twice", s);
		return;
	}
	if (p->m->bufs.n == MOST_BUFFERS) {
		lex_fail_at(p, at, "more than %d buffers", MOST_BUFFERS);
		return;
	}
	struct buffer *b = module_buffer(p->m, role, s, v.dt, v.nd, v.d);
	b->store = b->compute = v.sh;
	parse_buffer_facts(p, b);
}

static void parse_pipe_loops(struct parser *p, struct pipe *x)
{
	lex_expect(p, '(', "'('");
	do {
		struct token at = p->tok;
		dimid d = parse_dim(p);

		for (uint32_t i = 0; i < x->loops.n && !p->bad; i++)
			if (x->loops.at[i] == d)
				lex_fail_at(p, at, "a repeat twice in the pipeline");
		if (x->loops.n == 31)
			lex_fail_at(p, at, "more than 31 repeats in the pipeline");
		if (!p->bad)
			PUSH(p->mem, &x->loops, d);
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
}

static void parse_pipe_ends(struct parser *p, struct pipe *x)
{
	int64_t last = 0;

	lex_expect(p, '(', "'('");
	do {
		last = lex_int(p, last, MOST_SIZE);
		if (x->end.n == MOST_RANKS)
			lex_fail(p, "more than %d chunks", MOST_RANKS);
		PUSH(p->mem, &x->end, last);
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
}

static void parse_pipe_arenas(struct parser *p, struct pipe *x)
{
	lex_expect(p, '(', "'('");
	do {
		if (x->arena.n == MOST_RANKS)
			lex_fail(p, "more than %d stages", MOST_RANKS);
		PUSH(p->mem, &x->arena, lex_int(p, 0, INT64_MAX));
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
}

/* A string a stage, each a row of a CSV: it is read and checked as one. */
static void parse_pipe_list(struct parser *p, struct pipe *x)
{
	struct token at = p->tok;
	struct text csv = { .mem = p->mem };
	struct schedule_fault fault;
	struct schedule s;

	lex_expect(p, '(', "'('");
	do {
		const char *row = lex_string(p, "the actions of a stage");

		if (!p->bad)
			text_put(&csv, "%s\n", row);
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
	if (p->bad)
		return;
	if (!schedule_read_csv(p->mem, csv.s, csv.n, &s, &fault)) {
		lex_fail_at(p, at, "stage %d of the pipeline's list: %s", fault.stage, fault.what);
		return;
	}
	x->list = s.list;
	x->place = s.place;
	p->listed = s;
}

/* A list is of this pipeline. */
static void check_pipe_list(struct parser *p, struct token at)
{
	struct pipe *x = &p->m->pipe;
	const struct schedule *s = &p->listed;

	if (x->order == SCHED_LIST && !x->list)
		lex_fail_at(p, at, "a pipeline without its list");
	if (p->bad || !x->list)
		return;
	if (s->p != pipe_stages(p->m) || s->v != x->chunks || s->m != p->m->micro)
		lex_fail_at(p, at, "the list has %d stages of %d chunks and %d microbatches, the pipeline %d, %d and %lld",
			    s->p, s->v, s->m, pipe_stages(p->m), x->chunks, (long long)p->m->micro);
	struct schedule known = { .kind = x->order, .p = s->p, .v = s->v };
	for (int g = 0; x->order != SCHED_LIST && !p->bad && g < s->p * s->v; g++)
		if (s->place[g] != schedule_stage(&known, g))
			lex_fail_at(p, at, "chunk %d is on stage %d in the list, and on %d in %s", g, s->place[g],
				    schedule_stage(&known, g), schedule_name(x->order));
	if (x->order != SCHED_LIST)
		x->place = NULL;
}

/* The ends of all chunks, up to that of the chain. */
static void check_pipe(struct parser *p, struct token at)
{
	const struct pipe *x = &p->m->pipe;
	int64_t whole = 0;

	for (uint32_t i = 0; i < x->loops.n; i++)
		whole += dim_size(p->m, x->loops.at[i]);
	if (!p->bad && x->user < 0)
		lex_fail_at(p, at, "a pipeline has an axis");
	if (!p->bad && (int64_t)x->chunks * pipe_stages(p->m) > MOST_RANKS)
		lex_fail_at(p, at, "more than %d chunks", MOST_RANKS);
	if (!p->bad && x->order == SCHED_ZB_V && x->chunks != 2)
		lex_fail_at(p, at, "zb_v has 2 chunks a stage");
	if (!p->bad && x->arena.n && (int)x->arena.n != pipe_stages(p->m))
		lex_fail_at(p, at, "%u arenas of %d stages", x->arena.n, pipe_stages(p->m));
	if (!p->bad && x->end.n && x->loops.n && ((int)x->end.n != pipe_chunks(p->m) || x->end.at[x->end.n - 1] != whole))
		lex_fail_at(p, at, "the ends do not cut %lld iterations into %d chunks", (long long)whole,
			    pipe_chunks(p->m));
	if (!p->bad)
		check_pipe_list(p, at);
}

static void parse_pipe(struct parser *p)
{
	struct token at = p->tok;
	struct pipe x = { .user = -1, .chunks = 1 };

	const char *name = lex_string(p, "an order");
	if (!p->bad && streq(name, schedule_name(SCHED_LIST))) {
		x.order = SCHED_LIST;
	} else if (!p->bad && !schedule_find(name, &x.order)) {
		lex_fail_at(p, at, "no order of a pipeline");
		return;
	}
	while (!p->bad && p->tok.kind == T_WORD) {
		if (lex_accept_key(p, "axis"))
			x.user = parse_user_axis(p);
		else if (lex_accept_key(p, "chunks"))
			x.chunks = (int)lex_int(p, 1, MOST_RANKS);
		else if (lex_accept_key(p, "inflight"))
			x.inflight = lex_int(p, 0, MOST_SIZE);
		else if (lex_accept_key(p, "buffers"))
			x.buffers = lex_int(p, 0, MOST_RANKS);
		else if (lex_accept_key(p, "warm"))
			x.warm = (int)lex_int(p, 0, MOST_RANKS);
		else if (lex_accept_key(p, "list"))
			parse_pipe_list(p, &x);
		else if (lex_accept_word(p, "fixed"))
			x.fixed = true;
		else if (lex_accept_key(p, "loops"))
			parse_pipe_loops(p, &x);
		else if (lex_accept_key(p, "ends"))
			parse_pipe_ends(p, &x);
		else if (lex_accept_key(p, "arenas"))
			parse_pipe_arenas(p, &x);
		else
			lex_fail(p, "an unknown property of the pipeline");
	}
	p->m->pipe = x;
	check_pipe(p, at);
}

static void parse_keep(struct parser *p, struct recompute *x)
{
	lex_expect(p, '(', "'('");
	do {
		struct keep_name k = { .glob = lex_accept_word(p, "glob") };

		k.sel = lex_string(p, "a name");
		PUSH(p->mem, &x->keep, k);
	} while (!p->bad && lex_accept(p, ','));
	lex_expect(p, ')', "')'");
}

static void parse_recompute(struct parser *p)
{
	struct recompute x = { 0 };

	while (x.how < NRECOMPUTE && !lex_accept_word(p, recompute_name[x.how]))
		x.how++;
	if (x.how == NRECOMPUTE) {
		lex_fail(p, "nothing that can be recomputed");
		return;
	}
	if (lex_accept_key(p, "memory"))
		x.memory = lex_int(p, 1, (int64_t)1 << 60);
	if (lex_accept_key(p, "keep"))
		parse_keep(p, &x);
	lex_accept_span(p, &x.at);
	p->m->recompute = x;
}

static void parse_arrow_to(struct parser *p, struct arrow *a)
{
	while (!p->bad) {
		if (lex_accept_word(p, "none"))
			a->none = true;
		else if (lex_accept_word(p, "host"))
			a->host = true;
		else if (lex_accept_word(p, "zigzag"))
			a->zigzag = true;
		else if (lex_accept_word(p, "gather_step"))
			a->gather_step = true;
		else if (p->tok.kind != T_WORD && p->tok.kind != T_STRING)
			break;
		else if (a->none || a->host || a->zigzag || a->gather_step || a->naxes)
			lex_fail(p, "an axis out of place");
		else
			do {
				if (a->naxes == MAX_MESH)
					lex_fail(p, "more than %d axes", MAX_MESH);
				else
					a->axes[a->naxes++] = (uint8_t)parse_user_axis(p);
			} while (!p->bad && lex_accept(p, '.'));
	}
	lex_accept_span(p, &a->at);
}

static void parse_arrow(struct parser *p)
{
	static const char *const what[] = { NULL, "params", "grads", "optimizer", "activations" };
	struct arrow a = { .glob = lex_accept_word(p, "glob") };
	struct parser back = *p; /* a string may be a dim or the selector: ':' tells */

	if (p->tok.kind == T_STRING) {
		a.sel = p->tok.s;
		lex_next(p);
		if (!lex_accept(p, ':')) {
			if (p->bad)
				return;
			*p = back;
			a.sel = NULL;
		}
	}
	if (a.glob && !a.sel)
		lex_fail(p, "a pattern expected");
	for (int i = 1; i < (int)LEN(what); i++)
		if (lex_is_word(&p->tok, what[i])) {
			a.what = (enum arrow_what)i;
			lex_next(p);
			break;
		}
	if (p->tok.kind != T_TO) {
		do {
			if (a.dims.n == MAX_DIMS)
				lex_fail(p, "more than %d dims", MAX_DIMS);
			else
				a.dims.d[a.dims.n++] = parse_dim(p);
		} while (!p->bad && lex_accept(p, ','));
	}
	lex_expect(p, T_TO, "'->'");
	parse_arrow_to(p, &a);
	if (!p->bad)
		PUSH(p->mem, &p->m->arrows, a);
}

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
	ATTRS(I, N, S, D, L, X)
#undef I
#undef N
#undef S
#undef D
#undef L
#undef X
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
		     { "axis", parse_axis_line }, { "hardware", parse_hardware }, { "dim", parse_dim_line },
		     { "pipeline", parse_pipe }, { "recompute", parse_recompute },
		     { "buffer", parse_buffer }, { "arrow", parse_arrow } };

	for (int i = 0; i < (int)LEN(line); i++) {
		struct token at = p->tok;

		if (!lex_accept_word(p, line[i].word))
			continue;
		if (i < p->stage || (i == p->stage && (i == 0 || i == 4 || i == 6 || i == 7)))
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
