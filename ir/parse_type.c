/* ir/parse_type.c - types of values in IR text: dims, axes, shapes, facts. */
#include "ir/parse.h"

dimid parse_dim(struct parser *p)
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

int parse_user_axis(struct parser *p)
{
	struct token at = p->tok;
	const char *s = lex_name(p, "an axis of the mesh");

	for (uint32_t i = 0; i < p->m->mesh.n; i++)
		if (streq(p->m->mesh.at[i].name, s))
			return (int)i;
	lex_fail_at(p, at, "no axis '%s' in the mesh", s);
	return 0;
}

struct axes parse_axes(struct parser *p)
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
void parse_shape(struct parser *p, struct value *v)
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

void parse_type(struct parser *p, struct value *v)
{
	v->dt = (enum dtype)lex_choice(p, dtype_name, NDTYPE, "a type");
	parse_shape(p, v);
}

/* type facts. A span of UINT32_MAX lines: that of the op. */
struct value parse_value(struct parser *p)
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
