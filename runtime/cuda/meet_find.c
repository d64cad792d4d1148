/* runtime/cuda/meet_find.c - which rank of how many this process is, as a launcher says. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/env.h"
#include "runtime/cuda/meet_wire.h"

enum { MOST_PROCESSES = 1 << 20, PORTS = 65535, WAIT = 300, SILENCE = 20 /* s */ };

/* One that must be there. */
static bool number(const char *name, int low, int high, int *x, char *why)
{
	return env_set(name) ? env_number(name, low, high, x, why) : meet_say(why, "%s is not set", name);
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

	if (!number("SLURM_NTASKS", 1, MOST_PROCESSES, &p->world, why) || !number("SLURM_PROCID", 0, p->world - 1, &p->rank, why) ||
	    !number("SLURM_LOCALID", 0, MOST_PROCESSES, &p->local, why) || !number("SLURM_JOB_ID", 0, INT_MAX, &job, why))
		return false;
	if (!nodes || !first_node(nodes, p->host, sizeof p->host))
		return meet_say(why, "SLURM_JOB_NODELIST names no node");
	p->port = 20000 + job % 10000;
	return true;
}

bool meet_find(struct meet_place *p, char *why)
{
	const char *host = getenv("MASTER_ADDR");
	bool world = env_set("WORLD_SIZE");
	int wait = WAIT;

	*p = (struct meet_place){ .world = 1, .silence = SILENCE };
	if (!env_number("PTC_CUDA_WAIT", 1, 86400, &wait, why))
		return false;
	p->timeout = wait;
	if (!world && env_set("SLURM_NTASKS") && env_set("SLURM_PROCID"))
		return from_slurm(p, why);
	if (!world)
		return true;
	if (!number("WORLD_SIZE", 1, MOST_PROCESSES, &p->world, why) || !number("RANK", 0, p->world - 1, &p->rank, why) ||
	    !number("MASTER_PORT", 1, PORTS, &p->port, why) || !env_number("LOCAL_RANK", 0, MOST_PROCESSES, &p->local, why))
		return false;
	if (!host || !*host)
		return meet_say(why, "MASTER_ADDR is not set");
	snprintf(p->host, sizeof p->host, "%s", host);
	return true;
}
