/* One pool of threads for the process.
 *
 * No thread is started before the first run that wants more than one. A run takes the whole pool
 * if it is free and otherwise works on its caller's thread alone, so that several Python threads
 * never oversubscribe the CPU. After a fork the child starts a pool of its own.
 */
#ifndef ZENITH_THREADS_H
#define ZENITH_THREADS_H

#define ZN_MAX_THREADS 256

typedef struct zn_team zn_team;

/* `thread` counts from 0 to threads - 1; 0 is the caller. */
typedef void zn_task(void *context, zn_team *team, int thread, int threads);

/* Run the task on up to `threads` threads and return when all are done. Returns how many were used, or 0 in
 * a child that the task forked, which has none of the other threads. */
int zn_team_run(int threads, zn_task *task, void *context);

/* Whether this is such a forked child, which must not wait at a barrier. */
int zn_team_is_lost(const zn_team *team);

/* Wait until every thread of the team has come here. What they wrote before is then visible. `time`, if not
 * NULL, receives the clock's reading in seconds when the last one came. */
void zn_team_barrier(zn_team *team, double *time);

/* The monotonic clock, in seconds. */
double zn_now(void);

/* The share [*begin, *end) of `count` units that a thread has: contiguous, and as even as possible. */
static inline void zn_share(int count, int thread, int threads, int *begin, int *end)
{
    *begin = (int)((long long)count * thread / threads);
    *end = (int)((long long)count * (thread + 1) / threads);
}

#endif
