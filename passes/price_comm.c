/* passes/price_comm.c - seconds of a collective by link, number of ranks and size.
 *
 * A group of n ranks lies in nodes (groups of the innermost link) of g each. Within one, the rate is the
 * link's; across them all g ranks' network cards carry a ring, so it is min(link, g * card). */
#include <math.h>

#include "passes/constants.h"
#include "passes/price.h"

/* nccl-tests on 8 A100 and 8 H100 (stas00/ml-engineering @744d01e1, VIA-Research/vTrain @f8dda847), as shares of what 4 GB get. */
double size_curve(double bytes)
{
	static const struct {
		double bytes, share;
	} at[] = { { 1e5, 0.01 }, { 1e6, 0.10 }, { 4e6, 0.29 }, { 17e6, 0.52 }, { 67e6, 0.80 }, { 268e6, 0.92 }, { 1e9, 0.97 }, { 4e9, 1 } };

	if (bytes <= at[0].bytes)
		return at[0].share;
	for (size_t i = 1; i < LEN(at); i++)
		if (bytes <= at[i].bytes) {
			double x = log(bytes / at[i - 1].bytes) / log(at[i].bytes / at[i - 1].bytes);

			return at[i - 1].share * pow(at[i].share / at[i - 1].share, x);
		}
	return 1;
}

/* Of that, what two and four GPUs get on the same links, of large messages (nccl-tests on A100: 197, 222 and 229 GB/s of
 * 2, 4 and 8; VIA-Research/vTrain @f8dda847). */
static double ring_share(double n)
{
	return n < 4 ? 0.86 : n < 8 ? 0.96 : 1;
}

/* How many ranks of the group lie in one group of link `level`. */
static double inside(const struct module *m, uint32_t axes, int level)
{
	double stride = 1, n = 1, group = (double)m->hw.link[level].group;

	for (int i = (int)m->axes.n - 1; i >= 0; i--) {
		double size = m->axes.at[i].size;

		if (m->axes.at[i].time)
			continue;
		if (axes >> i & 1)
			n *= group <= 0 || stride * size <= group ? size : stride < group ? floor(group / stride) : 1;
		stride *= size;
	}
	return fmax(1, n);
}

/* The rate of a rank, and the largest latency on the way. */
static double group_rate(const struct module *m, uint32_t axes, double *latency)
{
	double rate = m->hw.link[0].bandwidth * LINK_SHARE, n = (double)group_size(m, axes);

	*latency = 0;
	for (int l = 1; l < m->hw.nlink; l++) {
		double g = fmin(n, inside(m, axes, l - 1)); /* ranks that share the way out */

		if (g >= n)
			break;
		rate = fmin(rate, g * m->hw.link[l].bandwidth * NET_SHARE);
		*latency = m->hw.link[l].latency;
	}
	return rate;
}

/* Every rank sends to every other: what stays in the node and what leaves it go at once. A token that goes to
 * `copies` experts on as many of k nodes as chance has it crosses to each of these nodes once. */
static double exchange_price(const struct module *m, uint32_t axes, double sent, double copies)
{
	double n = (double)group_size(m, axes), g = fmin(n, inside(m, axes, 0)), k = n / g, all = sent * n / (n - 1);
	bool once = software(m, SW_DISPATCH) == DISPATCH_ONCE && copies > 1;
	double near = all / (m->hw.link[0].bandwidth * (once ? DISPATCH_LINK : EXCHANGE_LINK * EXCHANGE_SHARE)), far = 0, latency;

	group_rate(m, axes, &latency);
	if (k > 1 && m->hw.nlink > 1) {
		double nodes = k * (1 - pow(1 - 1 / k, copies));
		double out = once ? all / copies * nodes : all;

		far = out * (k - 1) / k / (m->hw.link[1].bandwidth * (once ? DISPATCH_NET : NET_SHARE * EXCHANGE_SHARE));
	}
	return fmax(near, far) + fmax(latency, m->hw.link[0].latency);
}

/* Ranks along the parts of an axis that lie further in than these: the others of one collective. */
static double further_in(const struct module *m, uint32_t axes)
{
	double ranks = 1;
	int user = -1;

	for (int i = 0; i < (int)m->axes.n; i++) {
		if (axes >> i & 1)
			user = m->axes.at[i].user;
		else if (!m->axes.at[i].time && m->axes.at[i].user == user)
			ranks *= m->axes.at[i].size;
	}
	return ranks;
}

double link_price(const struct module *m, uint32_t axes, double sent, int ways, double copies)
{
	double n = (double)group_size(m, axes), latency;

	if (n <= 1 || !m->hw.nlink)
		return m->hw.nlink ? 0 : sent * 1e-10;
	if (copies > 0)
		return exchange_price(m, axes, sent, copies);
	double rate = group_rate(m, axes, &latency), curve = size_curve(sent * n / (n - 1) / ways * further_in(m, axes));

	if (m->hw.cores > 0)
		return measured_comm(&m->hw.link[0], n, sent, ways);
	if (m->hw.units <= 0) /* no GPU, no NCCL: the latency of a link alone */
		return sent / rate + ways * fmax(latency, m->hw.link[0].latency);
	if (latency > 0)
		curve = fmax(curve, NET_CURVE);
	else
		rate *= ring_share(n);
	/* A tree of log2 n steps, each three messages deep, or a ring of n - 1 that are under way at once. */
	return sent / (rate * curve) + ways * latency * fmin(3 * log2(n), (n - 1) / 2);
}

/* Ranks of a stage on one inner link that hold the same as a rank of them. */
static double same_holders(const struct module *m, const struct value *v)
{
	uint32_t split = sharding_axes(&v->sh, v->nd), rest = 0;

	for (int i = 0; i < (int)m->axes.n; i++)
		if (!m->axes.at[i].time && i != pipe_axis(m) && !(split >> i & 1))
			rest |= 1u << i;
	return fmin((double)group_size(m, rest), inside(m, rest, 0));
}

double hop_price(const struct module *m, const struct value *v)
{
	double bytes = (double)local_bytes(m, v), k = 1;

	if (!m->hw.nlink)
		return bytes * 1e-10;
	const struct link *inner = &m->hw.link[0], *l = &m->hw.link[comm_link(m, 1u << pipe_axis(m))];

	if (m->software.at[SW_SCATTER] == SCATTER_ON && l != inner)
		k = same_holders(m, v);
	return bytes / k / (l->bandwidth * (l == inner ? LINK_SHARE : NET_SHARE)) + bytes * (k - 1) / k / (inner->bandwidth * LINK_SHARE);
}

double hop_latency(const struct module *m)
{
	return m->hw.nlink ? m->hw.link[comm_link(m, 1u << pipe_axis(m))].latency : 0;
}
