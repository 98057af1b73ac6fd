/* The machine that figures were taken on, for the head of a report. One thread. */
#ifndef SL_BENCH_MACHINE_H
#define SL_BENCH_MACHINE_H

#include <stddef.h>
#include <stdint.h>

struct sl_bench_machine {
    char cpu[96];                 /* "AMD EPYC" */
    uint32_t cores, cores_usable; /* online; those that this process may run on */
    char kernel[136];             /* "Linux 6.1.0-28-amd64" */
    char huge_pages[32];          /* mode of transparent huge pages: "madvise" */
    char congestion[32];          /* control of TCP that connections get: "cubic" */
    char build[160];              /* "starling 0.1.0, gcc 12.2.0, RelWithDebInfo" */
};

/* Unavailable properties are "unknown". */
void sl_bench_machine_read(struct sl_bench_machine *out);

/* How near two cores are: "share L3 of 32768K", "share no cache", "hyper-threads of one core", "the
 * same core". */
void sl_bench_machine_nearness(int core_a, int core_b, char *text, size_t text_bytes);

#endif
