#include "tests/support/sysfs_tree.h"
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path below the root, whose folders are made. */
static void make_path(const struct sysfs_tree *tree, const char *path, char whole[512])
{
    (void)snprintf(whole, 512, "%s%s", tree->root, path);
    for (char *slash = strchr(whole + strlen(tree->root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(whole, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

void sysfs_tree_write(const struct sysfs_tree *tree, const char *path, const char *text)
{
    char whole[512];
    make_path(tree, path, whole);
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "%s\n", text) > 0);
    assert_int_equal(fclose(file), 0);
}

static void add_address(struct sysfs_tree *tree, const char *device, const char *text)
{
    assert_true(tree->address_count < SYSFS_TREE_ADDRESSES_MAX);
    struct ifaddrs *address = &tree->addresses[tree->address_count];
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    const bool is_in = inet_pton(AF_INET, text, &in.sin_addr) == 1;
    assert_true(is_in || inet_pton(AF_INET6, text, &in6.sin6_addr) == 1);
    *address = (struct ifaddrs){.ifa_name = strdup(device), .ifa_addr = calloc(1, sizeof in6)};
    if (is_in) {
        memcpy(address->ifa_addr, &in, sizeof in);
    } else {
        memcpy(address->ifa_addr, &in6, sizeof in6);
    }
    if (tree->address_count > 0) {
        tree->addresses[tree->address_count - 1].ifa_next = address;
    }
    tree->address_count++;
}

static void add_line(struct sysfs_tree *tree, char *line)
{
    char whole[512];
    line[strcspn(line, "\n")] = '\0';
    char *name = strchr(line, ' ');
    assert_non_null(name);
    *name++ = '\0';
    char *value = strchr(name, ' ');
    assert_non_null(value);
    *value++ = '\0';
    if (strcmp(line, "file") == 0) {
        sysfs_tree_write(tree, name, value);
    } else if (strcmp(line, "link") == 0) {
        make_path(tree, name, whole);
        assert_int_equal(symlink(value, whole), 0);
    } else {
        assert_string_equal(line, "address");
        add_address(tree, name, value);
    }
}

void sysfs_tree_add(struct sysfs_tree *tree, const char *root, const char *description)
{
    char path[512], line[1024];
    (void)snprintf(tree->root, sizeof tree->root, "%s", root);
    (void)snprintf(path, sizeof path, SYSFS_TREES "/%s.txt", description);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        add_line(tree, line);
    }
    assert_int_equal(fclose(file), 0);
}

void sysfs_tree_make(struct sysfs_tree *tree, const char *description)
{
    char root[] = "/tmp/starling_sysfs_XXXXXX";
    assert_non_null(mkdtemp(root));
    *tree = (struct sysfs_tree){.address_count = 0};
    sysfs_tree_add(tree, root, description);
}

void sysfs_tree_free_addresses(struct sysfs_tree *tree)
{
    for (uint32_t i = 0; i < tree->address_count; i++) {
        free(tree->addresses[i].ifa_name);
        free(tree->addresses[i].ifa_addr);
    }
    tree->address_count = 0;
}

void sysfs_tree_remove(struct sysfs_tree *tree)
{
    char command[96];
    sysfs_tree_free_addresses(tree);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", tree->root);
    assert_int_equal(system(command), 0);
}

void sysfs_tree_read(const struct sysfs_tree *tree, struct sl_devices *out)
{
    sl_devices_read(tree->root, tree->address_count == 0 ? NULL : tree->addresses, out);
}
