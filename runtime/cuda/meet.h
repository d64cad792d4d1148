/* runtime/cuda/meet.h - where ranks leave small things for each other: names of communicators, losses, that they live.
 *
 * A table of texts by key. Within a process it is memory; with several, the process of rank 0 keeps it and the others reach
 * it by TCP. A rank that leaves without a goodbye, or is silent for too long, breaks the table: all are told who it was. */
#ifndef PTC_CUDA_MEET_H
#define PTC_CUDA_MEET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MEET_TEXT = 400 };

/* As torchrun or Slurm tell each process. */
struct meet_place {
	int rank, world, local;   /* local: among those of this host */
	char host[256];           /* of rank 0 */
	int port;
	double timeout;           /* s: of one wait */
	double silence;           /* s without a sign of life after which a rank is lost */
	uint64_t plan;            /* all must be the same */
};
/* From RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; else SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, the first
 * of SLURM_JOB_NODELIST and a port made of SLURM_JOB_ID. world 1: there is only this process. false: why. */
bool meet_find(struct meet_place *p, char *why);

struct meet;
struct meet *meet_open(const struct meet_place *p, char *why); /* all are there; NULL: why. world 1: a table in memory */
/* All that this rank had to do is done, well: that of rank 0 stays until all others have said goodbye, or for `silence`. */
void meet_end(struct meet *m);
void meet_close(struct meet *m);                               /* goodbye */
bool meet_put(struct meet *m, const char *key, const void *x, size_t n, char *why);
/* Waits until it is there, and has n bytes. */
bool meet_get(struct meet *m, const char *key, void *x, size_t n, char *why);
bool meet_has(struct meet *m, const char *key);                /* is it there by now? Its value is of no bytes. */
/* By the process of rank 0 alone: the same, and it is there no longer. */
bool meet_take(struct meet *m, const char *key, void *x, size_t n, char *why);
bool meet_ok(struct meet *m, char *why);                       /* false: the table is broken, and why */
void meet_break(struct meet *m, const char *why);              /* all are told */

#endif
