/* A made-up host for code that reads sysfs below a root: the files, links and addresses of a
 * description that tests/support/sysfs_tree.py prints. The folder with the descriptions is
 * tests/support/sysfs. */
#ifndef SL_TESTS_SUPPORT_SYSFS_TREE_H
#define SL_TESTS_SUPPORT_SYSFS_TREE_H

#include "reactor/devices.h"

#define SYSFS_TREE_ADDRESSES_MAX 64

struct sysfs_tree {
    char root[64];
    struct ifaddrs addresses[SYSFS_TREE_ADDRESSES_MAX]; /* linked; the first is addresses[0] */
    uint32_t address_count;
};

/* Makes the files of a description ("one-adapter") below root, an existing folder; they are added
 * to those there. */
void sysfs_tree_add(struct sysfs_tree *tree, const char *root, const char *description);

/* The same below a new folder; and removes that folder. */
void sysfs_tree_make(struct sysfs_tree *tree, const char *description);
void sysfs_tree_remove(struct sysfs_tree *tree);
void sysfs_tree_free_addresses(struct sysfs_tree *tree);

/* Writes a file or replaces its text. */
void sysfs_tree_write(const struct sysfs_tree *tree, const char *path, const char *text);

void sysfs_tree_read(const struct sysfs_tree *tree, struct sl_devices *out);

#endif
