/* A bounds-checked cursor for reading untrusted bytes, and a writer over a buffer of known size.
 * All data from peers and files is read through the cursor. Multi-byte values are little-endian.
 *
 * Reading past the end turns the cursor bad for good, and every later read yields zeros: a decoder
 * reads all fields and checks `bad` once. No allocation. Any thread, one at a time. */
#ifndef SL_CORE_BYTES_H
#define SL_CORE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire format is copied as it stands in memory: little-endian hosts only"
#endif

struct sl_bytes {
    const uint8_t *next;
    size_t left;
    bool bad;
};

struct sl_bytes_writer {
    uint8_t *next;
    size_t left;
    bool bad;
};

static inline struct sl_bytes sl_bytes_over(const void *base, size_t bytes)
{
    return (struct sl_bytes){.next = base, .left = bytes};
}

/* Returns the next `bytes` bytes in place; NULL if fewer are left. */
static inline const void *sl_bytes_take(struct sl_bytes *cursor, size_t bytes)
{
    if (cursor->bad || bytes > cursor->left) {
        cursor->bad = true;
        return NULL;
    }
    const uint8_t *at = cursor->next;
    cursor->next += bytes;
    cursor->left -= bytes;
    return at;
}

/* Copies the next `bytes` bytes to `to`; zeros if fewer are left. */
static inline void sl_bytes_copy(struct sl_bytes *cursor, void *to, size_t bytes)
{
    const void *at = sl_bytes_take(cursor, bytes);
    if (at != NULL) {
        memcpy(to, at, bytes);
    } else {
        memset(to, 0, bytes);
    }
}

/* Like take, for `count` items of `item_bytes` each; an overflow of the product turns it bad. */
static inline const void *sl_bytes_take_array(struct sl_bytes *cursor, uint64_t count,
                                              size_t item_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, item_bytes, &bytes)) {
        cursor->bad = true;
        return NULL;
    }
    return sl_bytes_take(cursor, bytes);
}

static inline uint8_t sl_bytes_u8(struct sl_bytes *cursor)
{
    uint8_t value;
    sl_bytes_copy(cursor, &value, sizeof value);
    return value;
}

static inline uint16_t sl_bytes_u16(struct sl_bytes *cursor)
{
    uint16_t value;
    sl_bytes_copy(cursor, &value, sizeof value);
    return value;
}

static inline uint32_t sl_bytes_u32(struct sl_bytes *cursor)
{
    uint32_t value;
    sl_bytes_copy(cursor, &value, sizeof value);
    return value;
}

static inline uint64_t sl_bytes_u64(struct sl_bytes *cursor)
{
    uint64_t value;
    sl_bytes_copy(cursor, &value, sizeof value);
    return value;
}

/* Returns the next bytes up to a NUL, in place, and takes both; "" if the first `bytes_max` bytes
 * have no NUL. */
static inline const char *sl_bytes_text(struct sl_bytes *cursor, size_t bytes_max)
{
    const size_t bytes = cursor->left < bytes_max ? cursor->left : bytes_max;
    const uint8_t *end = cursor->bad || bytes == 0 ? NULL : memchr(cursor->next, 0, bytes);
    if (end == NULL) {
        cursor->bad = true;
        return "";
    }
    return sl_bytes_take(cursor, (size_t)(end - cursor->next) + 1);
}

static inline struct sl_bytes_writer sl_bytes_writer_over(void *base, size_t bytes)
{
    return (struct sl_bytes_writer){.next = base, .left = bytes};
}

/* Returns space for `bytes` bytes, which the caller fills; NULL if less is left. */
static inline void *sl_bytes_reserve(struct sl_bytes_writer *writer, size_t bytes)
{
    if (writer->bad || bytes > writer->left) {
        writer->bad = true;
        return NULL;
    }
    uint8_t *at = writer->next;
    writer->next += bytes;
    writer->left -= bytes;
    return at;
}

static inline void sl_bytes_put(struct sl_bytes_writer *writer, const void *from, size_t bytes)
{
    void *at = sl_bytes_reserve(writer, bytes);
    if (at != NULL && bytes != 0) {
        memcpy(at, from, bytes);
    }
}

static inline void sl_bytes_put_u8(struct sl_bytes_writer *writer, uint8_t value)
{
    sl_bytes_put(writer, &value, sizeof value);
}

static inline void sl_bytes_put_u16(struct sl_bytes_writer *writer, uint16_t value)
{
    sl_bytes_put(writer, &value, sizeof value);
}

static inline void sl_bytes_put_u32(struct sl_bytes_writer *writer, uint32_t value)
{
    sl_bytes_put(writer, &value, sizeof value);
}

static inline void sl_bytes_put_u64(struct sl_bytes_writer *writer, uint64_t value)
{
    sl_bytes_put(writer, &value, sizeof value);
}

/* Rounds up to a multiple of 8: every section of a data-plane message is padded so. */
static inline uint64_t sl_bytes_pad8(uint64_t value)
{
    return (value + 7) & ~(uint64_t)7;
}

#endif
