/* The notices that nodes and the catalogue send each other, as structs; docs/protocol.md describes
 * each kind. Pure functions; any thread; no allocation.
 *
 * One struct serves all kinds: a kind uses the members that its list in message.c has. Decoded
 * texts point into the decoded bytes; lists have a fixed room. Decoding checks every length, number
 * and text, and that nothing is left over. */
#ifndef SL_OBJECTS_CATALOGUE_MESSAGE_H
#define SL_OBJECTS_CATALOGUE_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include <starling_objects.h>

#include "core/hash.h"
#include "core/limits.h"
#include "core/reason.h"
#include "objects/catalogue/choose.h"

#define SL_OBJECTS_MESSAGE_BYTES      4096 /* of the text of a notice */
/* Texts, with NUL. */
#define SL_OBJECTS_ADDRESS_BYTES      176 /* the name of a node's engine */
#define SL_OBJECTS_LOCATION_BYTES     64
#define SL_OBJECTS_TEXT_BYTES         256 /* of an error; a reason; a note */
#define SL_OBJECTS_TABLES_BYTES       2048
#define SL_OBJECTS_BATCH_BYTES        4064 /* all of a notice but the header */
#define SL_OBJECTS_BATCH_ROOM         700  /* for a HOLD of one part */
#define SL_OBJECTS_SPREAD_MS_MAX      60000
/* Of a version's manifest and image, to travel with a message. */
#define SL_OBJECTS_IMAGE_BYTES        (72U << 10)
/* Items of lists. */
#define SL_OBJECTS_KEEPERS_MAX        16 /* of a version */
#define SL_OBJECTS_RANGES_MAX         128
#define SL_OBJECTS_ENTRIES_MAX        8
#define SL_OBJECTS_MANIFEST_WORDS_MAX 96
#define SL_OBJECTS_FOLLOWERS_MAX      8

/* Numbers of the wire: never renumber, only append. */
enum sl_objects_kind {
    SL_OBJECTS_ATTACH = 1, /* node to catalogue: here I am */
    SL_OBJECTS_ALIVE = 2,  /* the same again, each third of the lease */
    SL_OBJECTS_BEGIN = 3,
    SL_OBJECTS_COMMIT = 4,
    SL_OBJECTS_FOLLOW = 5,
    SL_OBJECTS_FIND = 6,
    SL_OBJECTS_NEWS = 7, /* catalogue to node; also the body of the answers to FOLLOW and FIND */
    SL_OBJECTS_HOLD = 8, /* node to catalogue */
    SL_OBJECTS_DROP = 9,
    SL_OBJECTS_LIST = 10,
    SL_OBJECTS_REMOVE = 11,
    SL_OBJECTS_TABLES = 12, /* publisher to keeper: publish rows of these tables as a part */
    SL_OBJECTS_RETIRE = 13, /* catalogue to holders */
    SL_OBJECTS_DETACH = 14, /* node to catalogue: it ends */
    SL_OBJECTS_USE = 15,    /* node to catalogue: the version of a name that its readers use */
    SL_OBJECTS_FOLLOWERS = 16,
    SL_OBJECTS_BATCH = 17, /* node to catalogue: several HOLD and USE */
    SL_OBJECTS_PUT = 18,   /* publisher to agent: STORE, and COMMIT; then agent to catalogue */
    SL_OBJECTS_STORE = 20, /* publisher to keeper or agent */
    SL_OBJECTS_WANT = 21,  /* child to parent */
    SL_OBJECTS_DONE = 22,
    SL_OBJECTS_HAVE = 23, /* parent to child; also the body of the answer to WANT */
    SL_OBJECTS_GONE = 24,
    SL_OBJECTS_KINDS /* one more than the last */
};

/* With each ALIVE a node reports at least so many of its copies, in turn. */
#define SL_OBJECTS_REPORTS_AN_ALIVE 512

enum sl_objects_role {
    SL_OBJECTS_ROLE_KEEPER = 1,
    SL_OBJECTS_ROLE_AGENT = 2,
    SL_OBJECTS_ROLE_REPORTS = 4, /* reports follow of what it holds, for the first time */
    SL_OBJECTS_ROLE_DISK = 8     /* a keeper with a directory */
};
enum sl_objects_begin {
    SL_OBJECTS_TAKE_OVER = 1,
    SL_OBJECTS_NEW_NAME = 2,
    SL_OBJECTS_BY_KEEPER = 4, /* not the sender but the first keeper is the publisher of the part */
    SL_OBJECTS_NO_AGENT = 8   /* origin HOST: from memory of the publisher */
};

/* One part of a version. */
struct sl_objects_part {
    struct sl_hash_128 digest; /* of its manifest */
    uint64_t bytes;            /* of its image */
    uint64_t holder;           /* the node that has all of it at the commit; 0: keepers */
    uint32_t manifest_bytes;   /* 1 to SL_OBJECTS_MANIFEST_BYTES */
};

/* The catalogue's entry of a committed version. */
struct sl_objects_record {
    const char *name; /* sl_objects_name_is_valid */
    const char *note;
    uint64_t version; /* > 0 */
    uint64_t epoch;   /* of the publisher */
    uint64_t time_ms; /* of the commit, Unix time; 0: not committed yet */
    uint32_t origin;  /* enum sl_object_origin */
    uint32_t keeper_count, part_count;
    uint64_t keepers[SL_OBJECTS_KEEPERS_MAX]; /* COMMIT: that have the part, with holder 0 */
    struct sl_objects_part parts[SL_OBJECTS_PARTS_MAX];
};

struct sl_objects_peer {
    uint64_t node;       /* 0: none */
    const char *address; /* the name of its engine */
};

/* Bytes [offset, offset + bytes) of a stored part (manifest.h) lie at `address` of the sender's
 * engine. Neither sum overflows. */
struct sl_objects_range {
    uint64_t offset, address, bytes; /* bytes > 0 */
};

struct sl_objects_entry {
    const char *name, *note;
    uint64_t version, bytes, time_ms; /* bytes: of all parts' images */
    uint32_t holders, part_count, origin;
};

/* A node that follows a name. */
struct sl_objects_follower {
    const char *address, *location; /* as in ATTACH; `host` too */
    uint64_t node, host;
    uint64_t version, behind; /* in use, 0: none; and from it to the newest */
    uint64_t age_ms;          /* since its last message */
};

struct sl_objects_message {
    /* Header */
    uint32_t kind; /* enum sl_objects_kind; an answer has that of its request */
    bool is_answer;
    int err;          /* of an answer: 0, or a negative sl_err: then the body is that of an error */
    uint32_t request; /* its number; an answer repeats it; 0: no answer is expected */
    uint64_t term;    /* of the catalogue, as the sender knows it; 0: unknown */
    uint64_t node;    /* the sender */

    /* Of most kinds */
    const char *name;
    uint64_t version;          /* 0 means the newest, or none, where the kind allows it */
    uint32_t part, part_count; /* part < part_count, where a kind has both */

    const char *text; /* error, GONE: the reason. A longer text is sent truncated */

    struct {                  /* ATTACH, ALIVE */
        uint64_t host;        /* same number, same host */
        const char *location; /* a label; "": none */
        uint32_t roles;       /* bits, of enum sl_objects_role */
        uint32_t lease_ms;    /* their answer */
        uint32_t spread_ms;   /* nodes that lose the catalogue return spread over it. The answer
                               * says it; the node says what the catalogue before said */
    } attach;
    struct {
        uint32_t options; /* bits, of enum sl_objects_begin */
        uint32_t origin;  /* enum sl_object_origin */
    } begin;
    struct {
        uint64_t oldest, newest; /* error NOT_FOUND: versions of the name; 0: none */
        uint32_t bad_count;      /* sources that failed */
        uint64_t bad[SL_OBJECTS_OTHERS_MAX];
    } find;
    uint64_t epoch;            /* BEGIN's answer, TABLES */
    struct sl_hash_128 digest; /* WANT, RETIRE: of the part's manifest */

    /* COMMIT and STORE: of the sender: its one part is number `part` of `part_count`. COMMIT's
     * answer, NEWS, HOLD, and STORE after the commit: the whole record, or none. */
    struct {
        uint32_t record_count; /* 0 or 1 */
        struct sl_objects_record record;
        uint32_t blocks;    /* HOLD: verified blocks of the stored part */
        uint64_t publisher; /* PUT to the catalogue: that has sent it to the agent; else 0 */
        /* PUT, NEWS: of the part, both as long as its record says. They are attached to the
         * notice, and not encoded. `manifest` NULL: they are not here. */
        struct {
            const uint8_t *manifest, *bytes;
        } image;
    } commit;
    struct {
        uint64_t age_ms;       /* time since the commit, on the catalogue's clock */
        uint32_t parent_count; /* 0, or one for each stripe */
        uint32_t other_count;
        struct sl_objects_peer parents[SL_OBJECTS_STRIPES];
        struct sl_objects_peer others[SL_OBJECTS_OTHERS_MAX];
    } news;
    struct {
        uint32_t count; /* BEGIN's answer: those that are to store the part; HOST: the agent */
        uint32_t total; /* BEGIN's answer: all keepers that are attached */
        struct sl_objects_peer peers[SL_OBJECTS_KEEPERS_MAX];
    } keepers;

    uint32_t timeout_ms; /* STORE, PUT, TABLES: until the publisher gives up */
    struct {
        uint32_t iterations;          /* that the rows have; the answer: that the server has */
        uint32_t shards, shard_count; /* the answer: that the server has, of all of the job */
        const char *names;            /* with commas between them; the note is in `text` */
    } tables;
    struct {
        const char *prefix; /* of names; list those after `name` and `version` */
        uint32_t more;      /* the answer: 1: entries follow after the last one */
        uint32_t entry_count;
        struct sl_objects_entry entries[SL_OBJECTS_ENTRIES_MAX];
    } list;
    struct {
        uint64_t after; /* list nodes with higher numbers */
        uint32_t count; /* the answer: the most, if others may follow */
        struct sl_objects_follower nodes[SL_OBJECTS_FOLLOWERS_MAX];
    } followers;
    struct {
        const uint8_t *messages; /* each behind its length, u16 */
        uint32_t bytes;
    } batch;
    struct {
        uint64_t rate; /* bytes per second that the child may read; 0: no limit */
        uint32_t range_count;
        struct sl_objects_range ranges[SL_OBJECTS_RANGES_MAX];
        uint32_t manifest_words; /* answer to WANT: of 8 bytes; 0: it is to be read */
        uint64_t manifest[SL_OBJECTS_MANIFEST_WORDS_MAX];
    } have;
};

/* Writes the message to `to`, which has room for SL_OBJECTS_MESSAGE_BYTES, and returns its length:
 * every message fits. A text that is NULL is sent as "". Members out of range are asserted: check
 * before what users and options say. */
uint32_t sl_objects_message_encode(const struct sl_objects_message *message, void *to);

/* Fills in *out; members that the kind has not are zero. Errors: PROTOCOL, with a reason that names
 * kind and member; then only the header may be used, and only if `kind` is not 0. Two relations
 * between members are checked, others are up to the receiver: part < part_count, and no number of
 * a request where the kind has no answer. */
int sl_objects_message_decode(const void *bytes, uint32_t byte_count,
                              struct sl_objects_message *out, struct sl_reason *reason);

/* Bytes of manifest and image; 0: they do not travel with this message. */
uint32_t sl_objects_message_image_bytes(const struct sl_objects_message *message);

/* Appends a message without answer to a batch, whose `batch` is `text`. False: it has no room. */
bool sl_objects_message_batch(struct sl_objects_message *batch,
                              uint8_t text[SL_OBJECTS_BATCH_BYTES],
                              const struct sl_objects_message *message);

/* Takes the first message of a batch. Errors: PROTOCOL; NOT_FOUND: it was the last. */
int sl_objects_message_unbatch(struct sl_objects_message *batch, struct sl_objects_message *out,
                               struct sl_reason *reason);

/* "WANT", for log lines; "unknown" for other numbers. */
const char *sl_objects_message_name(uint32_t kind);

/* An object's name: 1 to SL_OBJECTS_NAME_BYTES - 1 bytes of UTF-8 without blank, '@' and control
 * characters. */
bool sl_objects_name_is_valid(const char *name);

/* A text of fewer than `bytes` bytes without control characters: notes, locations, addresses. */
bool sl_objects_text_is_valid(const char *text, uint32_t bytes);

/* Whether a text is UTF-8, so that JSON can have it. */
bool sl_objects_text_is_utf8(const char *text);

#endif
