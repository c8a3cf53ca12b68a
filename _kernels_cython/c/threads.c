/* The thread pool, see threads.h. Waiting is a spin of at most SPIN_SECONDS, since steps of a plan follow
 * each other within microseconds and to wake a sleeper takes tens of them, and then a sleep. A spin
 * offers the CPU every microsecond: where another process has the other CPUs, the thread that is waited
 * for stands in the queue of this very one. */
#define _XOPEN_SOURCE 700 /* POSIX of 2008, and the signals that debuggers use */
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define SPIN_SECONDS 200e-6
#define LOOKS 64 /* between two looks at the clock and at who else wants the CPU */

/* A number that only grows, and a way to wait for it to change. */
typedef struct gate {
    atomic_uint value;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} gate;

struct zn_team {
    int threads;
    atomic_int arrived;
    gate barrier;
};

static struct {
    atomic_flag busy; /* somebody's run has the pool; everything below is theirs */
    int ready;        /* the gates are initialised */
    int workers;
    unsigned birth;   /* value of `start` when the youngest workers were made */
    gate start, done;
    atomic_int running;
    /* the job; changes under the mutex of `start` */
    zn_task *task;
    void *context;
    uint64_t float_mode;
    zn_team team;
} pool = {.busy = ATOMIC_FLAG_INIT};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* How a thread rounds, and whether it takes denormals for zero. Workers do as the caller, who may have
 * changed it (torch.set_flush_denormal), so that results are the same for every number of threads. */
static uint64_t float_mode(void)
{
#if defined(__SSE__)
    return __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

static void set_float_mode(uint64_t mode)
{
#if defined(__SSE__)
    __builtin_ia32_ldmxcsr((unsigned)mode);
#elif defined(__aarch64__)
    __asm__ __volatile__("msr fpcr, %0" : : "r"(mode));
#else
    (void)mode;
#endif
}

static void gate_init(gate *g)
{
    atomic_init(&g->value, 0);
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->changed, NULL);
}

static unsigned gate_value(gate *g)
{
    return atomic_load_explicit(&g->value, memory_order_acquire);
}

/* The caller holds the mutex. */
static void gate_advance_locked(gate *g)
{
    atomic_fetch_add_explicit(&g->value, 1, memory_order_release);
    pthread_cond_broadcast(&g->changed);
}

static void gate_advance(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    gate_advance_locked(g);
    pthread_mutex_unlock(&g->mutex);
}

/* Wait until the value is not `old`, asleep from the beginning where it is not soon to be expected. */
static void gate_wait(gate *g, unsigned old, int soon)
{
    if (gate_value(g) != old)
        return;
    if (soon) {
        const double end = zn_now() + SPIN_SECONDS;
        do {
            for (int i = 0; i < LOOKS; i++) {
                if (gate_value(g) != old)
                    return;
                pause_cpu();
            }
            sched_yield();
        } while (zn_now() < end);
    }
    pthread_mutex_lock(&g->mutex);
    while (gate_value(g) == old)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

static void *work(void *argument)
{
    const int thread = (int)(intptr_t)argument;
    unsigned seen = pool.birth;
    for (int member = 1;;) {
        /* A job ends only when all its members have ended, so none of them misses one; the
         * others may skip jobs, and look under the mutex since the next one may be coming. */
        gate_wait(&pool.start, seen, member);
        pthread_mutex_lock(&pool.start.mutex);
        seen = gate_value(&pool.start);
        const int threads = pool.team.threads;
        pthread_mutex_unlock(&pool.start.mutex);
        member = thread < threads;
        if (!member)
            continue;
        set_float_mode(pool.float_mode);
        pool.task(pool.context, &pool.team, thread, threads);
        if (atomic_fetch_sub_explicit(&pool.running, 1, memory_order_acq_rel) == 1)
            gate_advance(&pool.done);
    }
    return NULL;
}

static void reset(void)
{
    gate_init(&pool.start);
    gate_init(&pool.done);
    gate_init(&pool.team.barrier);
    atomic_init(&pool.team.arrived, 0);
    pool.team.threads = 0;
    pool.workers = 0;
    pool.ready = 1;
}

/* In the child the workers are gone and the pool may be marked as busy by a run of the parent. */
static void after_fork(void)
{
    reset();
    atomic_flag_clear(&pool.busy);
}

static void add_workers(int wanted)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    pthread_attr_t attributes;
    sigset_t all, before;

    if (pool.workers >= wanted)
        return;
    pool.birth = gate_value(&pool.start);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals belong to the threads that Python knows, */
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]); /* but a fault to the one that makes it: blocked, no handler would see it */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted) {
        pthread_t id;
        if (pthread_create(&id, &attributes, work, (void *)(intptr_t)(pool.workers + 1)))
            break; /* fewer threads, same result */
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

int zn_team_run(int threads, zn_task *task, void *context)
{
    if (threads > ZN_MAX_THREADS)
        threads = ZN_MAX_THREADS;
    if (threads <= 1 || atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)) {
        task(context, NULL, 0, 1);
        return 1;
    }
    if (!pool.ready) {
        reset();
        pthread_atfork(NULL, NULL, after_fork);
    }
    add_workers(threads - 1);
    if (threads > pool.workers + 1)
        threads = pool.workers + 1;

    const unsigned before = gate_value(&pool.done);
    pthread_mutex_lock(&pool.start.mutex);
    pool.task = task;
    pool.context = context;
    pool.float_mode = float_mode();
    pool.team.threads = threads;
    atomic_store_explicit(&pool.running, threads - 1, memory_order_relaxed);
    gate_advance_locked(&pool.start);
    pthread_mutex_unlock(&pool.start.mutex);

    task(context, &pool.team, 0, threads);
    if (zn_team_is_lost(&pool.team))
        return 0; /* the pool is as new, and free */
    if (threads > 1)
        gate_wait(&pool.done, before, 1);
    atomic_flag_clear_explicit(&pool.busy, memory_order_release);
    return threads;
}

int zn_team_is_lost(const zn_team *team)
{
    return team && team->threads == 0;
}

double zn_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void zn_team_barrier(zn_team *team, double *time)
{
    if (!team || team->threads == 1) {
        if (time)
            *time = zn_now();
        return;
    }
    const unsigned before = gate_value(&team->barrier);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) == team->threads - 1) {
        if (time) /* read before the others go on: this thread may lose its CPU to one of them */
            *time = zn_now();
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        gate_advance(&team->barrier);
    } else {
        gate_wait(&team->barrier, before, 1);
    }
}
