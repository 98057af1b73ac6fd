/* A disk in memory that loses what a crash may lose: bytes that were not synced, in part or
 * garbled, and changes of names in a folder that was not synced, any of them. It fails, fills up,
 * or stops (as in a crash) at an operation that the test names. Paths are absolute. One thread. */
#ifndef SL_TESTS_SUPPORT_MEMORY_DISK_H
#define SL_TESTS_SUPPORT_MEMORY_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reactor/disk.h"

#define MEMORY_DISK_NODES   512
#define MEMORY_DISK_CHANGES 256
#define MEMORY_DISK_PATH    128
#define MEMORY_DISK_NEVER   UINT64_MAX

struct memory_disk_node {
    bool is_folder;
    uint8_t *bytes;
    size_t count, capacity;
    size_t synced;   /* the bytes that a crash leaves as they are */
    uint32_t open;   /* handles of it */
    bool is_damaged; /* the test's: by who has changed its bytes */
};

struct memory_disk_name {
    char path[MEMORY_DISK_PATH]; /* "": free */
    uint32_t node;
};

/* Of names, since the last sync of the folder that holds them. */
struct memory_disk_change {
    char from[MEMORY_DISK_PATH]; /* goes; "": none */
    char to[MEMORY_DISK_PATH];   /* comes, as `node`; "": none */
    uint32_t node;
};

struct memory_disk {
    struct sl_disk disk; /* to be handed on */
    struct memory_disk_node nodes[MEMORY_DISK_NODES];
    uint32_t node_count;
    struct memory_disk_name names[MEMORY_DISK_NODES];  /* as they are */
    struct memory_disk_name synced[MEMORY_DISK_NODES]; /* as they are after a crash, at least */
    struct memory_disk_change changes[MEMORY_DISK_CHANGES];
    uint32_t change_count;
    uint64_t operations;    /* so far */
    uint64_t fail_at;       /* the operation of this number fails */
    uint64_t short_read_at; /* the operation of this number, if it reads, gives half */
    uint64_t stop_at;       /* from this operation on, all do: the machine has crashed */
    uint64_t bytes_left;    /* until it is full */
    bool stopped;
    uint32_t open_files;
};

/* With an empty folder "/c", synced. Too large for a stack. */
void memory_disk_init(struct memory_disk *disk);
void memory_disk_fini(struct memory_disk *disk);

/* Comes back after a crash: what was not synced is there, or not, or in part, by the seed. */
void memory_disk_restart(struct memory_disk *disk, uint64_t seed);

/* The process is gone, the machine is not: nothing is lost, nothing is open any more. */
void memory_disk_reopen(struct memory_disk *disk);

/* The bytes of a file, to be changed in place; NULL: there is none. */
struct memory_disk_node *memory_disk_find(struct memory_disk *disk, const char *path);

/* A file of these bytes, synced, whatever was there. */
void memory_disk_put(struct memory_disk *disk, const char *path, const void *bytes, size_t count);

#endif
