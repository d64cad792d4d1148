/* What the arrows do to the tensors of the model, as far as it can be said before `place`:
 * arrows that never apply or always come too late, dims that are padded, microbatches that do not
 * divide. */
#include "frontend/lower.h"

struct seen {
	const char *path;
	int nd;
	const dimid *d;
	bool input, value; /* value: computed, not a buffer */
};

/* What an axis of an arrow does to computed values: nothing, if another arrow takes it from all. */
struct fate {
	bool took;
	const struct seen *blocked;
	const struct arrow *by;
};

struct padded {
	dimid d;
	int64_t to;
	struct span at;
};

struct tensors {
	struct ctx *c;
	VEC(struct seen) at;
	VEC(struct padded) pads;
	bool *applies; /* by arrow */
	struct fate (*fate)[MAX_MESH]; /* by arrow and its axes */
	int64_t share; /* of the batch, for a rank */
};

static void add_tensor(struct tensors *t, const char *path, int nd, const dimid *d, bool input, bool value)
{
	PUSH(t->c->mem, &t->at, ((struct seen){ path, nd, d, input, value }));
}

static void walk(struct tensors *t, const struct block *b)
{
	for (const struct op *op = b->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			if (op->out[i]->name && op->code != OP_READ)
				add_tensor(t, op->out[i]->name, op->out[i]->nd, op->out[i]->d, false, true);
		if (op->body)
			walk(t, op->body);
	}
}

static bool selected(const struct arrow *a, const char *path)
{
	struct node what = { .kind = a->glob ? N_STRING : N_NAME, .name = a->sel };

	return !a->sel || selects(&what, path);
}

/* Splits dim i of s over an axis, or over as much of it as fits; the rest of the axis is given back. */
static int take(struct tensors *t, const struct seen *s, int i, int size, int64_t *on, struct span at)
{
	int64_t dim = dim_size(t->c->m, s->d[i]), left = dim / on[i];
	int fits = size;

	while (fits > 1 && (size % fits || fits > left))
		fits--;
	on[i] *= fits;
	if (dim % on[i])
		PUSH(t->c->mem, &t->pads, ((struct padded){ s->d[i], ceil_div(dim, on[i]) * on[i], at }));
	return size / fits;
}

/* The axis is larger than all the dims that could take it, times what is left of it: said once an arrow. on: how often
 * the dims were cut before. */
static void warn_replicated(struct tensors *t, const struct seen *s, const struct arrow *a, int axis, int left, const int64_t *on)
{
	int whole = t->c->m->mesh.at[axis].size;
	const struct module *m = t->c->m;
	struct text dims = { .mem = t->c->mem }, sizes = { .mem = t->c->mem };
	int64_t product = 1;

	for (int k = 0; k < a->dims.n; k++)
		for (int i = 0; i < s->nd; i++) {
			if (s->d[i] != a->dims.d[k])
				continue;
			int64_t size = dim_size(m, s->d[i]) / on[i];

			text_put(&dims, on[i] > 1 ? "%s%s has %lld left" : "%s%s is %lld", dims.n ? ", " : "",
				 m->dims.at[s->d[i]].name, (long long)size);
			if (size > 1)
				text_put(&sizes, "%s%lld", sizes.n ? " or " : "", (long long)(product *= size));
		}
	const char *name = m->mesh.at[axis].name;
	if (left == whole)
		caution(t->c, a->at, "'%s' = %d shards no dim of %s: %s", name, whole, s->path, dims.s);
	else
		caution(t->c, a->at, "'%s' = %d cuts %s in %d parts only, which %d ranks each hold: %s", name, whole, s->path, whole / left,
			left, dims.s);
	if (sizes.n && left == whole)
		hint(t->c, "it is replicated over %s; %s = %s fits", name, name, sizes.s);
	else if (sizes.n)
		hint(t->c, "they all do the same work; %s = %s fits", name, sizes.s);
}

/* used: by axis, the arrow that has taken it from this tensor. An arrow with a selector comes
 * first on purpose. */
static void apply(struct tensors *t, const struct seen *s, uint32_t no, const struct arrow **used, int64_t *on)
{
	const struct arrow *a = &t->c->m->arrows.at[no];

	for (int x = 0; x < a->naxes; x++) {
		int whole = t->c->m->mesh.at[a->axes[x]].size, size = whole;
		const struct arrow *taken = used[a->axes[x]];
		struct fate *fate = &t->fate[no][x];
		int64_t before[MAX_DIMS];
		bool touched = a->none;

		memcpy(before, on, sizeof before);
		for (int k = 0; k < a->dims.n; k++)
			for (int i = 0; i < s->nd; i++) {
				if (s->d[i] != a->dims.d[k])
					continue;
				t->applies[no] = true;
				touched = true;
				if (!taken)
					size = take(t, s, i, size, on, a->at);
			}
		/* Where an input is not cut enough, all work is done more than once. Params may be: few heads of keys. */
		if (!taken && touched && !a->none && size > 1 && (size == whole || s->input))
			warn_replicated(t, s, a, a->axes[x], size, before);
		t->applies[no] |= a->none;
		fate->took |= touched && !taken && s->value;
		if (touched && taken && s->value && !fate->blocked && !taken->sel == !a->sel) {
			fate->blocked = s;
			fate->by = taken;
		}
		if (touched && !taken)
			used[a->axes[x]] = a;
	}
}

/* An axis that always goes to an arrow above: the order of the two is wrong. */
static void warn_blocked(struct tensors *t)
{
	struct ctx *c = t->c;

	for (uint32_t k = 0; k < c->m->arrows.n; k++)
		for (int x = 0; x < c->m->arrows.at[k].naxes; x++) {
			const struct arrow *a = &c->m->arrows.at[k];
			const struct fate *f = &t->fate[k][x];
			const struct user_axis *axis = &c->m->mesh.at[a->axes[x]];
			const char *by = "none", *text;

			if (f->took || !f->blocked || axis->size == 1 || a->none)
				continue;
			for (int i = f->by->dims.n; i-- > 0;)
				for (int j = 0; j < f->blocked->nd; j++)
					if (f->blocked->d[j] == f->by->dims.d[i])
						by = c->m->dims.at[f->by->dims.d[i]].name;
			text = arena_printf(c->mem, "%s -> %s", list_text(c, a->dims.n, a->dims.d, ""), axis->name);
			caution(c, a->at, "'%s' never applies to %s: '%s' took '%s' at %s", text, f->blocked->path,
				by, axis->name, line_of(c, f->by->at, a->at));
			hint(c, "put '%s' first", text);
		}
}

/* It splits no tensor as the others do: iterations are cut by cost, and nothing is padded. */
static bool cuts_pipeline(const struct ctx *c, const struct arrow *a)
{
	return c->pipeline && a->naxes && a->axes[0] == c->pipeline_axis;
}

static void place_one(struct tensors *t, const struct seen *s)
{
	struct ctx *c = t->c;
	const struct arrow *used[MAX_MESH] = { NULL };
	int64_t on[MAX_DIMS];

	for (int i = 0; i < MAX_DIMS; i++)
		on[i] = 1;
	for (int with = 1; with >= 0; with--)
		for (uint32_t k = 0; k < c->m->arrows.n; k++) {
			const struct arrow *a = &c->m->arrows.at[k];

			if ((a->sel != NULL) != with || a->what != W_DIMS || !selected(a, s->path) || cuts_pipeline(c, a))
				continue;
			apply(t, s, k, used, on);
		}
	if (s->input && s->nd && s->d[0] == c->m->batch)
		t->share = ceil_div(dim_size(c->m, c->m->batch), on[0]);
}

static bool any_selected(const struct tensors *t, const struct arrow *a)
{
	for (uint32_t i = 0; i < t->at.n; i++)
		if (selected(a, t->at.at[i].path))
			return true;
	return false;
}

static void warn_idle(struct tensors *t)
{
	struct ctx *c = t->c;

	for (uint32_t k = 0; k < c->m->arrows.n; k++) {
		const struct arrow *a = &c->m->arrows.at[k];

		if (t->applies[k] || a->what != W_DIMS || cuts_pipeline(c, a))
			continue;
		caution(c, a->at, "this arrow never applies");
		if (a->sel && !any_selected(t, a))
			hint(c, a->glob ? "nothing matches \"%s\"" : "nothing is called '%s'", a->sel);
		else if (a->sel)
			hint(c, "what '%s' selects has no dim %s", a->sel,
			     list_text(c, a->dims.n, a->dims.d, "'"));
		else
			hint(c, "no value has dim %s", list_text(c, a->dims.n, a->dims.d, "'"));
	}
}

/* An arrow may pad several dims: each is said, at the same place. */
static void warn_padding(struct tensors *t)
{
	struct ctx *c = t->c;

	for (uint32_t i = 0; i < t->pads.n; i++) {
		const struct padded *p = &t->pads.at[i];
		double size = (double)dim_size(c->m, p->d), more = ((double)p->to - size) / size * 100;
		bool first = true;

		for (uint32_t k = 0; k < i; k++)
			first &= t->pads.at[k].d != p->d || t->pads.at[k].to != p->to;
		if (first)
			diag_warn(c->diag, p->at, more < 10 ? "'%s' is padded from %.0f to %lld (%.1g %%)" :
			     "'%s' is padded from %.0f to %lld (%.0f %%)", c->m->dims.at[p->d].name,
			     size, (long long)p->to, more);
	}
}

/* Divisors of n on both sides of x, the nearer first. */
static void check_microbatches(struct tensors *t)
{
	struct ctx *c = t->c;
	int64_t m = c->m->micro, below = m, above = m;

	if (t->share == 0 || t->share % m == 0)
		return;
	fail(c, c->micro_at, "%lld microbatches do not divide the %lld sequences of a rank",
	     (long long)m, (long long)t->share);
	if (m > t->share) {
		hint(c, "nearest: %lld", (long long)t->share);
		return;
	}
	while (t->share % below)
		below--;
	while (t->share % above)
		above++;
	bool up = above - m <= m - below;
	hint(c, "nearest: %lld, %lld", (long long)(up ? above : below), (long long)(up ? below : above));
}

void check_arrows(struct ctx *c)
{
	struct tensors t = { .c = c };

	t.applies = NEWN(c->mem, bool, c->m->arrows.n + 1);
	t.fate = arena_alloc(c->mem, (c->m->arrows.n + 1) * sizeof *t.fate);
	for (uint32_t i = 0; i < c->m->bufs.n; i++) {
		const struct buffer *b = c->m->bufs.at[i];

		add_tensor(&t, b->name, b->nd, b->d, b->role == B_INPUT, false);
	}
	walk(&t, &c->m->top);
	for (uint32_t i = 0; i < t.at.n; i++)
		place_one(&t, &t.at.at[i]);
	warn_idle(&t);
	warn_blocked(&t);
	warn_padding(&t);
	check_microbatches(&t);
}
