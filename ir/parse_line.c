/* ir/parse_line.c - the lines of IR text that declare: module, mesh, hardware, dims, buffers, recomputation, arrows. */
#include "ir/parse.h"

void parse_module(struct parser *p)
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
		} else if (lex_accept_word(p, "deterministic")) {
			m->deterministic = true;
		} else if (lex_accept_word(p, "probes")) {
			m->probes = true;
		} else {
			lex_fail(p, "an unknown property of the module");
		}
	}
}

void parse_source(struct parser *p)
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
void parse_mesh(struct parser *p)
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

void parse_axis_line(struct parser *p)
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

void parse_hardware(struct parser *p)
{
	struct hardware *h = &p->m->hw;
	const struct hardware_figure *field = hardware_figure;

	if (p->tok.kind == T_STRING)
		h->name = lex_string(p, "a name");
	while (!p->bad && p->tok.kind == T_WORD) {
		size_t i = 0;

		if (lex_accept_key(p, "link")) {
			parse_link(p);
			continue;
		}
		while (field[i].name && !lex_is_word(&p->tok, field[i].name))
			i++;
		if (!field[i].name)
			lex_fail(p, "an unknown property of the hardware");
		else if (lex_accept_key(p, field[i].name))
			*(double *)(void *)((char *)h + field[i].at) = lex_number(p);
	}
}

void parse_software(struct parser *p)
{
	struct software *s = &p->m->software;

	if (p->tok.kind == T_STRING)
		s->name = lex_string(p, "a name");
	while (!p->bad && p->tok.kind == T_WORD) {
		int i = 0, word = 0;

		while (i < NSWITCH && !lex_is_word(&p->tok, switches[i].name))
			i++;
		if (i == NSWITCH || !lex_accept_key(p, switches[i].name)) {
			lex_fail(p, "no switch of software");
			return;
		}
		while (switches[i].word[word] && !lex_accept_word(p, switches[i].word[word]))
			word++;
		if (!switches[i].word[word])
			lex_fail(p, "%s cannot be this", switches[i].name);
		else
			s->at[i] = (uint8_t)word;
	}
}

/* kept LOOP n, first LOOP n: if it is one. */
static void parse_part(struct parser *p, struct dim *x)
{
	struct token at = p->tok;

	for (enum dim_part k = PART_KEPT; k <= PART_FIRST && x->part == PART_NONE; k++)
		if (lex_accept_word(p, part_name[k]))
			x->part = k;
	if (x->part == PART_NONE)
		return;
	x->of = parse_dim(p);
	x->from = lex_int(p, x->part == PART_FIRST, MOST_SIZE);
	if (!p->bad && p->m->dims.at[x->of].part != PART_NONE)
		lex_fail_at(p, at, "a part of a part");
	if (!p->bad && x->part == PART_KEPT && kept_part(p->m, x->of) != NODIM)
		lex_fail_at(p, at, "two parts of '%s' that are kept", p->m->dims.at[x->of].name);
}

void parse_dim_line(struct parser *p)
{
	struct token at = p->tok;
	const char *s = lex_name(p, "a dim");
	struct span span = { 0 };
	struct dim part = { .part = PART_NONE };

	lex_expect(p, '=', "'='");
	parse_part(p, &part);
	int64_t size = part.part == PART_NONE ? lex_int(p, 0, MOST_SIZE) : 1, zigzag = 0;
	if (part.part == PART_NONE && lex_accept_word(p, "zigzag")) {
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
		p->m->dims.at[d].part = part.part;
		p->m->dims.at[d].of = part.of;
		p->m->dims.at[d].from = part.from;
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

void parse_buffer(struct parser *p)
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

void parse_recompute(struct parser *p)
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
	if (lex_accept_key(p, "first"))
		x.first = lex_int(p, 1, MOST_SIZE);
	if (lex_accept_key(p, "keep"))
		parse_keep(p, &x);
	lex_accept_span(p, &x.at);
	p->m->recompute = x;
}

void parse_chunk(struct parser *p)
{
	struct chunk x = { .sel = lex_string(p, "a name"), .dim = NODIM };

	if (lex_accept_key(p, "parts"))
		x.parts = lex_int(p, 1, MOST_SIZE);
	else if (lex_accept_key(p, "rows"))
		x.rows = lex_int(p, 1, MOST_SIZE);
	else
		lex_fail(p, "neither parts nor rows");
	if (lex_accept_key(p, "dim"))
		x.dim = parse_dim(p);
	lex_accept_span(p, &x.at);
	PUSH(p->mem, &p->m->chunks, x);
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

void parse_arrow(struct parser *p)
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
