/* Small checkpoints whose contents follow from their number, and the disk in memory that they lie
 * on: what several tests of ps/checkpoint share. */
#ifndef SL_TESTS_UNIT_PS_CHECKPOINT_FIXTURE_H
#define SL_TESTS_UNIT_PS_CHECKPOINT_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/checkpoint/directory.h"
#include "ps/checkpoint/reader.h"
#include "ps/checkpoint/writer.h"
#include "tests/support/memory_disk.h"
#include "tests/support/unit.h"

#define FIXTURE_BLOCKS 4
#define FIXTURE_SHARDS 2

extern struct sl_reason fixture_reason;
#define REASON (&fixture_reason)

/* Block `index` of a shard's file: opaque bytes, the caller's to free(block.payload). */
struct sl_snapshot_block fixture_block(uint64_t number, uint32_t shard, uint32_t index);

/* Writes a shard's file. Returns what the writer does. */
int fixture_write_shard(const struct sl_disk *disk, const char *directory, uint64_t number,
                        uint64_t base, uint32_t shard, struct sl_checkpoint_entry *entry);

/* Both shards' files and the manifest. Returns the first error. */
int fixture_write(const struct sl_disk *disk, const char *directory, uint64_t number,
                  uint64_t base);

/* The checkpoint's files hold what fixture_write wrote (asserted). */
void fixture_check(const struct sl_disk *disk, const char *directory, uint64_t number);

/* Findings, kept. */
struct fixture_findings {
    uint32_t count;
    char paths[16][MEMORY_DISK_PATH];
    char whys[16][512];
    struct sl_checkpoint_report report;
};
void fixture_findings_init(struct fixture_findings *findings);

/* Verifies all of it; what is wrong is in *findings. */
int fixture_verify(const struct sl_disk *disk, const char *directory, uint64_t number,
                   struct fixture_findings *findings);

struct memory_disk *fixture_disk(void); /* malloc'd */
void fixture_disk_free(struct memory_disk *disk);

/* A case on an empty disk; all files must be closed at its end. */
void fixture_teardown(struct memory_disk *disk);
#define CASE(name) SL_CASE_USING(name, struct memory_disk, disk, memory_disk_init, fixture_teardown)

#endif
