/* runtime/cuda/meet_find.c - which rank of how many this process is, as a launcher says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/meet_wire.h"

static bool number(const char *name, int low, int *x, char *why)
{
	const char *s = getenv(name);
	char *end;

	if (!s || !*s)
		return meet_say(why, "%s is not set", name);
	long n = strtol(s, &end, 10);

	if (*end || n < low || n > 10000000)
		return meet_say(why, "%s=%s is no number of %d or more", name, s, low);
	*x = (int)n;
	return true;
}

/* "node[03-07,11]" or "a,b": the first name. */
static bool first_node(const char *list, char *host, size_t size)
{
	size_t n = strcspn(list, ",[");

	if (list[n] != '[') {
		snprintf(host, size, "%.*s", (int)n, list);
		return n > 0;
	}
	size_t digits = strcspn(list + n + 1, ",-]");

	snprintf(host, size, "%.*s%.*s", (int)n, list, (int)digits, list + n + 1);
	return digits > 0;
}

static bool from_slurm(struct meet_place *p, char *why)
{
	const char *nodes = getenv("SLURM_JOB_NODELIST");
	int job = 0;

	if (!number("SLURM_PROCID", 0, &p->rank, why) || !number("SLURM_NTASKS", 1, &p->world, why) ||
	    !number("SLURM_LOCALID", 0, &p->local, why) || !number("SLURM_JOB_ID", 0, &job, why))
		return false;
	if (!nodes || !first_node(nodes, p->host, sizeof p->host))
		return meet_say(why, "SLURM_JOB_NODELIST names no node");
	p->port = 20000 + job % 10000;
	return true;
}

bool meet_find(struct meet_place *p, char *why)
{
	const char *world = getenv("WORLD_SIZE"), *host = getenv("MASTER_ADDR");

	*p = (struct meet_place){ .world = 1, .timeout = 300, .silence = 20 };
	if (!world && getenv("SLURM_NTASKS") && getenv("SLURM_PROCID"))
		return from_slurm(p, why);
	if (!world)
		return true;
	if (!number("WORLD_SIZE", 1, &p->world, why) || !number("RANK", 0, &p->rank, why) || !number("MASTER_PORT", 1, &p->port, why))
		return false;
	if (getenv("LOCAL_RANK") && !number("LOCAL_RANK", 0, &p->local, why))
		return false;
	if (p->rank >= p->world)
		return meet_say(why, "RANK=%d, and WORLD_SIZE=%d", p->rank, p->world);
	if (!host || !*host)
		return meet_say(why, "MASTER_ADDR is not set");
	snprintf(p->host, sizeof p->host, "%s", host);
	return true;
}
