#include "core/file_kind.h"

#include <strings.h>

static const struct {
    const char *bytes; /* letters of either case */
    size_t byte_count;
    const char *what;
} KINDS[] = {
    {"version https://git-lfs", 23,
     "the file is a Git LFS pointer, not the data: run git lfs pull"},
    {"\xef\xbb\xbf", 3, "the file begins with a byte order mark: save it as UTF-8 without one"},
    {"\xff\xfe", 2, "the file is UTF-16: convert it to UTF-8"},
    {"\xfe\xff", 2, "the file is UTF-16: convert it to UTF-8"},
    {"\x1f\x8b", 2, "the file is compressed with gzip: unpack it first"},
    {"\x28\xb5\x2f\xfd", 4, "the file is compressed with zstd: unpack it first"},
    {"BZh", 3, "the file is compressed with bzip2: unpack it first"},
    {"\xfd"
     "7zXZ",
     5, "the file is compressed with xz: unpack it first"},
    {"PK\x03\x04", 4, "the file is a zip archive, as torch.save and numpy.savez write: convert it"},
    {"\x80\x02", 2, "the file is a Python pickle, as torch.save writes: convert it"},
    {"\x80\x04", 2, "the file is a Python pickle: convert it"},
    {"\x93NUMPY", 6, "the file is a NumPy array: convert it"},
    {"\x89HDF", 4, "the file is HDF5, as Keras writes: convert it"},
    {"GGUF", 4, "the file is GGUF: convert it"},
    {"<!doctype", 9, "the file is a page of HTML, not the data: check the link that it came from"},
    {"<html", 5, "the file is a page of HTML, not the data: check the link that it came from"},
    {"<?xml", 5, "the file is XML, not the data: check the link that it came from"},
    {"{\"", 2, "the file is JSON"},
    {"{\n", 2, "the file is JSON"},
    {"{ ", 2, "the file is JSON"},
};

const char *sl_file_kind_explain(const void *bytes, size_t count)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (count >= KINDS[i].byte_count &&
            strncasecmp(bytes, KINDS[i].bytes, KINDS[i].byte_count) == 0) {
            return KINDS[i].what;
        }
    }
    return NULL;
}
