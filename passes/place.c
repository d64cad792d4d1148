/* passes/place.c - arrows to shardings: of named values (anchors), params (storage and compute),
 * gradients' homes, states.
 *
 * Requires kinds and sections (microbatch). Refines the mesh: where a dim is smaller than an axis
 * it takes the largest divisor of the axis that fits, and the axis is cut there, for the whole
 * module, so that afterwards axes are plain. All cuts of one axis form a chain of divisors.
 * An axis that is longer than a link is cut there too, so that a collective may be done link by link. These
 * cuts come last and divide what is there: which elements a rank has of a dim does not depend on them.
 */
#include "passes/place.h"

#include "passes/microbatch.h"
#include "passes/passes.h"

bool glob_match(const char *p, const char *s)
{
	for (; *p; p++, s++) {
		if (*p == '*') {
			for (; *s; s++)
				if (glob_match(p + 1, s))
					return true;
			p++;
			while (*p == '*')
				p++;
			return !*p;
		}
		if (!*s || (*p != '?' && *p != *s))
			return false;
	}
	return !*s;
}

bool selector_matches(const char *sel, bool glob, const char *path)
{
	const char *last = strrchr(path, '.');
	const char *part = strchr(sel, '.') || !last ? path : last + 1;

	return glob ? glob_match(sel, part) || glob_match(sel, path) : streq(sel, part);
}

static bool arrow_matches(const struct arrow *a, const char *name)
{
	return !a->sel || (name && selector_matches(a->sel, a->glob, name));
}

static bool repeat_dim_in(const struct block *block, dimid d)
{
	for (const struct op *op = block->first; op; op = op->next)
		if (op->body && ((op->code == OP_REPEAT && op->at.dim == d) || repeat_dim_in(op->body, d)))
			return true;
	return false;
}

bool is_repeat_dim(const struct module *m, dimid d)
{
	return repeat_dim_in(&m->top, d);
}

/* -- a placement in pieces of user axes -- */

/* Piece k of user axis u: the sub-axis between the prefix products lo and hi. */
struct piece {
	uint8_t user;
	int lo, hi;
};

struct pieces {
	int n[MAX_DIMS];
	struct piece at[MAX_DIMS][MAX_MESH]; /* at most one of a user's axis */
};

enum { MAX_CUTS = 32 };

/* Where user axes are cut: prefix products, each dividing the next. */
struct cuts {
	int n[MAX_MESH];
	int at[MAX_MESH][MAX_CUTS];
};

static bool cut_fits(const struct cuts *c, int u, int x)
{
	for (int i = 0; i < c->n[u]; i++)
		if (c->at[u][i] % x && x % c->at[u][i])
			return false;
	return true;
}

static void cut_add(struct cuts *c, int u, int x, int size)
{
	int i = 0;

	if (x <= 1 || x >= size)
		return;
	while (i < c->n[u] && c->at[u][i] < x)
		i++;
	if (i < c->n[u] && c->at[u][i] == x)
		return;
	if (c->n[u] == MAX_CUTS)
		die("axis %d is cut too often", u); /* sizes are ints: each cut doubles at least */
	memmove(&c->at[u][i + 1], &c->at[u][i], (size_t)(c->n[u] - i) * sizeof(int));
	c->at[u][i] = x;
	c->n[u]++;
}

/* The largest prefix product hi of axis u, lo | hi | size, that adds at most `room` ranks. */
static int largest_cut(const struct cuts *c, int u, int lo, int size, int64_t room)
{
	for (int k = size / lo; k > 1; k--)
		if ((size / lo) % k == 0 && k <= room && cut_fits(c, u, lo * k))
			return lo * k;
	return lo;
}

static int64_t piece_room(const struct module *m, const struct pieces *p, const dimid *d, int i)
{
	int64_t room = dim_size(m, d[i]);

	for (int k = 0; k < p->n[i]; k++)
		room = ceil_div(room, p->at[i][k].hi / p->at[i][k].lo);
	return room;
}

/* One arrow: each of its axes that is still free goes to the listed dims in turn. */
static void apply_arrow(const struct module *m, const struct arrow *a, int nd, const dimid *d,
			struct pieces *p, struct cuts *c, uint32_t *used)
{
	for (int x = 0; x < a->naxes; x++) {
		int u = a->axes[x], size = m->mesh.at[u].size, lo = 1;
		bool touched = a->none;

		if (*used >> u & 1 || u == m->pipe.user)
			continue;
		for (int k = 0; k < a->dims.n && lo < size && !a->none; k++) {
			int i = 0;

			while (i < nd && d[i] != a->dims.d[k])
				i++;
			if (i == nd)
				continue;
			int hi = largest_cut(c, u, lo, size, piece_room(m, p, d, i));
			touched = true;
			if (hi == lo)
				continue;
			cut_add(c, u, hi, size);
			p->at[i][p->n[i]++] = (struct piece){ (uint8_t)u, lo, hi };
			lo = hi;
		}
		if (touched)
			*used |= 1u << u;
	}
}

static struct pieces place_pieces(const struct module *m, const char *name, int nd, const dimid *d,
				  struct cuts *c)
{
	struct pieces p = { { 0 }, { { { 0, 0, 0 } } } };
	uint32_t used = 0;

	for (int round = 0; round < 2; round++)
		for (uint32_t i = 0; i < m->arrows.n; i++) {
			const struct arrow *a = &m->arrows.at[i];

			if ((a->sel != NULL) == (round == 0) && a->what == W_DIMS && arrow_matches(a, name))
				apply_arrow(m, a, nd, d, &p, c, &used);
		}
	return p;
}

/* -- the refined mesh -- */

static void cuts_of_block(const struct module *m, const struct block *block, struct cuts *c)
{
	for (const struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++)
			if (op->out[i]->nd)
				place_pieces(m, op->out[i]->name, op->out[i]->nd, op->out[i]->d, c);
		if (op->body)
			cuts_of_block(m, op->body, c);
	}
}

/* Cuts user axis u, whose neighbours are stride ranks apart, so that the inner part lies on a link of
 * `group` ranks: blocks of them must be whole in it. */
static bool cut_at_link(struct cuts *c, int u, int size, int64_t stride, int64_t group)
{
	for (int inner = size - 1; inner > 1; inner--) {
		int x = size / inner;

		if (size % inner || group % (stride * inner) || !cut_fits(c, u, x))
			continue;
		int n = c->n[u];
		cut_add(c, u, x, size);
		return c->n[u] > n;
	}
	return false;
}

/* At most `most` cuts more. A pipeline's axis stays whole: it is told by its stages. */
static void cuts_of_links(const struct module *m, struct cuts *c, int most)
{
	int64_t ranks = 1;

	for (uint32_t u = 0; u < m->mesh.n; u++)
		ranks *= m->mesh.at[u].size;
	for (int l = m->hw.nlink - 2; l >= 0; l--) {
		const struct link *in = &m->hw.link[l];
		int64_t stride = 1;

		if (!in->group || in->group >= ranks || in->bandwidth <= in[1].bandwidth)
			continue;
		for (int u = (int)m->mesh.n - 1; u >= 0 && most > 0; u--) {
			int size = m->mesh.at[u].size;

			if (in->group % (stride * size) && u != m->pipe.user)
				most -= cut_at_link(c, u, size, stride, in->group);
			stride *= size;
		}
	}
}

static bool refine_mesh(struct module *m, struct cuts *c, struct diag *d)
{
	struct axis time = { 0 };
	int t = time_axis(m);
	uint32_t n = t >= 0;

	if (t >= 0)
		time = m->axes.at[t];
	for (uint32_t i = 0; i < m->bufs.n; i++)
		place_pieces(m, m->bufs.at[i]->name, m->bufs.at[i]->nd, m->bufs.at[i]->d, c);
	cuts_of_block(m, &m->top, c);
	for (uint32_t u = 0; u < m->mesh.n; u++)
		n += 1 + (uint32_t)c->n[u];
	if (n > MAX_AXES) {
		diag_error(d, m->mesh.at[0].at, "small dims cut the axes of the mesh in %u parts, more than %d", n, MAX_AXES);
		diag_note(d, m->mesh.at[0].at, "list fewer dims that are smaller than their axes, or take smaller axes");
		return false;
	}
	cuts_of_links(m, c, MAX_AXES - (int)n);
	m->axes.n = 0;
	for (uint32_t u = 0; u < m->mesh.n; u++) {
		int lo = 1, size = m->mesh.at[u].size;

		for (int k = 0; k <= c->n[u]; k++) {
			int hi = k < c->n[u] ? c->at[u][k] : size;
			const char *name = c->n[u] ? arena_printf(m->mem, "%s/%d", m->mesh.at[u].name, k) :
						     m->mesh.at[u].name;
			struct axis a = { name, hi / lo, (int)u, false };

			PUSH(m->mem, &m->axes, a);
			lo = hi;
		}
	}
	if (t >= 0)
		PUSH(m->mem, &m->axes, time);
	return true;
}

/* The cuts that the refined mesh has. */
static struct cuts mesh_cuts(const struct module *m)
{
	struct cuts c = { { 0 }, { { 0 } } };

	for (uint32_t u = 0; u < m->mesh.n; u++) {
		int at = 1;

		for (uint32_t i = 0; i < m->axes.n; i++)
			if (!m->axes.at[i].time && m->axes.at[i].user == (int)u) {
				at *= m->axes.at[i].size;
				cut_add(&c, (int)u, at, m->mesh.at[u].size);
			}
	}
	return c;
}

static void push_piece(const struct module *m, struct axes *l, const struct piece *p)
{
	int at = 1;

	for (uint32_t i = 0; i < m->axes.n; i++) {
		const struct axis *a = &m->axes.at[i];

		if (a->time || a->user != p->user)
			continue;
		if (at >= p->lo && at < p->hi && a->size > 1)
			axes_push(l, (int)i);
		at *= a->size;
	}
}

struct sharding place_by_arrows(const struct module *m, const char *name, int nd, const dimid *d,
				bool batch_in_time)
{
	struct cuts c = mesh_cuts(m);
	struct pieces p = place_pieces(m, name, nd, d, &c);
	struct sharding sh;
	int t = time_axis(m);

	memset(&sh, 0, sizeof sh);
	for (int i = 0; i < nd; i++) {
		if (batch_in_time && t >= 0 && d[i] == m->batch)
			axes_push(&sh.on[i], t);
		if (is_staged(m, d[i]) && pipe_axis(m) >= 0)
			axes_push(&sh.on[i], pipe_axis(m));
		for (int k = 0; k < p.n[i]; k++)
			push_piece(m, &sh.on[i], &p.at[i][k]);
	}
	return sh;
}

/* Axes to be put on one dim, as one axis of that size; parts on inner links are major, so that sums are
 * split over them first, and what is gathered crosses the outer links while it is small. */
struct unit {
	struct axes axes;
	int64_t size;
	int link;
};

static void refine_by_unit(const struct module *m, const struct unit *u, int nd, const dimid *d, struct sharding *sh)
{
	int best = -1;
	int64_t most = 0;

	for (int i = 0; i < nd; i++) {
		int64_t cap = cap_of(m, d[i], &sh->on[i]);

		if (m->dims.at[d[i]].loop || sh->on[i].n + u->axes.n > MAX_ON)
			continue;
		if (cap % u->size == 0 && cap) {
			best = i;
			break;
		}
		if (cap > most) {
			most = cap;
			best = i;
		}
	}
	for (int k = u->axes.n - 1; best >= 0 && k >= 0; k--)
		axes_push(&sh->on[best], u->axes.a[k]);
}

/* The units of user axis x that sh leaves free, sorted in by link, the innermost first. */
static int add_units(const struct module *m, int x, uint32_t used, struct unit *unit, int n)
{
	int last = -1;

	for (int k = 0; k < (int)m->axes.n; k++) {
		const struct axis *a = &m->axes.at[k];

		if (a->time || a->user != x || a->size == 1 || used >> k & 1)
			continue;
		if (last < 0 || !same_cut_axis(m, unit[last].axes.a[unit[last].axes.n - 1], k)) {
			struct unit u = { .size = 1, .link = comm_link(m, 1u << k) };

			for (last = n++; last > 0 && unit[last - 1].link > u.link; last--)
				unit[last] = unit[last - 1];
			unit[last] = u;
		}
		axes_push(&unit[last].axes, k);
		unit[last].size *= a->size;
	}
	return n;
}

struct sharding refine_by_kind(const struct module *m, const char *name, int nd, const dimid *d,
			       struct sharding sh, enum arrow_what what)
{
	for (uint32_t i = 0; i < m->arrows.n; i++) {
		const struct arrow *a = &m->arrows.at[i];
		struct unit unit[MAX_AXES];
		int n = 0;

		if (a->what != what || a->host || a->none || !arrow_matches(a, name))
			continue;
		for (int x = 0; x < a->naxes; x++)
			n = add_units(m, a->axes[x], sharding_axes(&sh, nd), unit, n);
		for (int u = 0; u < n; u++)
			refine_by_unit(m, &unit[u], nd, d, &sh);
	}
	return sh;
}

bool reduced_each_microbatch(const struct module *m, const char *param)
{
	for (uint32_t i = 0; i < m->arrows.n; i++) {
		const struct arrow *a = &m->arrows.at[i];

		if ((a->what == W_GRADS || a->what == W_PARAMS) && !a->host && !a->none && arrow_matches(a, param))
			return true;
	}
	return false;
}

bool gathered_once(const struct module *m, const char *param)
{
	for (uint32_t i = 0; i < m->arrows.n; i++)
		if (m->arrows.at[i].gather_step && arrow_matches(&m->arrows.at[i], param))
			return true;
	return false;
}

/* -- anchors -- */

static void place_buffer(const struct module *m, struct buffer *b)
{
	const char *path = b->owner ? b->owner : b->name;
	struct sharding sh = place_by_arrows(m, path, b->nd, b->d, false);

	b->compute = sh;
	b->store = sh;
	if (b->role == B_PARAM)
		b->store = refine_by_kind(m, path, b->nd, b->d, sh, W_PARAMS);
	if (b->role == B_OPT || (b->role == B_PROBE && b->owner)) {
		b->store = refine_by_kind(m, path, b->nd, b->d, sh, W_PARAMS);
		b->store = refine_by_kind(m, path, b->nd, b->d, b->store, W_GRADS);
		b->compute = b->store = refine_by_kind(m, path, b->nd, b->d, b->store, W_OPTIMIZER);
	}
}

static void anchor(struct value *v, struct sharding sh)
{
	v->placed = true;
	v->sh = sh;
}

/* The home of the gradient of a param: where its optimizer state lies, so never replicated when
 * that is sharded. */
static struct sharding gradient_home(const struct module *m, const char *path, const struct value *v)
{
	struct sharding sh = place_by_arrows(m, path, v->nd, v->d, false);

	sh = refine_by_kind(m, path, v->nd, v->d, sh, W_PARAMS);
	sh = refine_by_kind(m, path, v->nd, v->d, sh, W_GRADS);
	return refine_by_kind(m, path, v->nd, v->d, sh, W_OPTIMIZER);
}

static void place_result(const struct module *m, const struct op *op, struct value *v)
{
	bool time = op->phase == FORWARD || op->phase == BACKWARD;

	if (!v->name || !v->nd || is_free(v) || op->code == OP_READ)
		return;
	if (strncmp(v->name, "d:", 2) == 0)
		anchor(v, gradient_home(m, v->name + 2, v));
	else if (op->phase <= FORWARD && v->kind != K_SUM && v->kind != K_FN)
		anchor(v, place_by_arrows(m, v->name, v->nd, v->d, time));
}

static void place_block(const struct module *m, struct block *block);

/* A sum over the batch that is carried is one of a microbatch. */
static void owe_time(const struct module *m, struct value *v)
{
	int t = time_axis(m);

	if (t >= 0 && (v->kind == K_SUM || v->kind == K_FN))
		v->sh.sum |= 1u << t;
}

/* A carried value keeps one sharding: that of its name, or of any unnamed value. */
static void place_repeat(const struct module *m, struct op *op)
{
	bool time = op->phase == FORWARD || op->phase == BACKWARD;

	place_block(m, op->body);
	for (int64_t i = 0; i < op->at.ncarry; i++) {
		struct value *arg = op->body->args.at[i], *y = op->body->yields.at[i];
		const char *name = arg->name ? arg->name : y->name;

		arg->placed = false;
		if (op->phase > FORWARD) {
			if (!arg->name || strncmp(arg->name, "d:", 2))
				continue;
			name = arg->name[2] ? arg->name + 2 : NULL;
		}
		if (!arg->nd)
			continue;
		anchor(arg, place_by_arrows(m, name, arg->nd, arg->d, time));
		if (time)
			owe_time(m, arg);
		op->out[i]->placed = true;
		op->out[i]->sh = arg->sh;
	}
}

static void place_block(const struct module *m, struct block *block)
{
	for (struct op *op = block->first; op; op = op->next) {
		for (uint32_t i = 0; i < op->nout; i++) {
			op->out[i]->placed = false;
			place_result(m, op, op->out[i]);
		}
		if (op->code == OP_REPEAT)
			place_repeat(m, op);
		if (op->code == OP_WRITE && op->in[0]->nd && !op->in[0]->placed && op->in[0]->def) {
			anchor(op->in[0], find_buffer(m, op->at.buf)->store);
			if (!op->in[0]->name)
				op->in[0]->name = op->at.buf;
		}
	}
}

void find_loops(struct module *m, const struct block *block)
{
	for (const struct op *op = block->first; op; op = op->next) {
		if (op->code == OP_REPEAT)
			m->dims.at[op->at.dim].loop = true;
		if (op->body)
			find_loops(m, op->body);
	}
}

/* Sums over stages are over the axis by its number in the refined mesh. */
static void find_sums(struct module *m)
{
	for (struct op *op = m->top.first; op; op = op->next)
		if (op->code == OP_TO_PARTIAL)
			op->at.axes = (struct axes){ .n = 1, .a = { (uint8_t)pipe_axis(m) } };
}

/* A param, or an optimizer state by its param, lies in host memory where an arrow says so. */
static bool on_host(const struct module *m, const struct buffer *b)
{
	enum arrow_what what = b->role == B_PARAM ? W_PARAMS : W_OPTIMIZER;
	const char *name = b->role == B_PARAM ? b->name : b->owner;

	for (uint32_t i = 0; (b->role == B_PARAM || b->role == B_OPT) && i < m->arrows.n; i++)
		if (m->arrows.at[i].host && m->arrows.at[i].what == what && arrow_matches(&m->arrows.at[i], name))
			return true;
	return false;
}

bool pass_place(struct module *m, struct diag *d)
{
	struct cuts c = { { 0 }, { { 0 } } };

	find_loops(m, &m->top);
	if (!order_dims(m, d) || !refine_mesh(m, &c, d))
		return false;
	find_sums(m);
	for (uint32_t i = 0; i < m->bufs.n; i++)
		place_buffer(m, m->bufs.at[i]);
	for (uint32_t i = 0; i < m->bufs.n; i++)
		m->bufs.at[i]->host = on_host(m, m->bufs.at[i]);
	place_block(m, &m->top);
	m->form = PLACED;
	return true;
}
