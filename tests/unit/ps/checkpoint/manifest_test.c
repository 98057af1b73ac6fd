/* Manifests from anywhere: what is accepted, and what is said of the rest. */
#include "tests/unit/ps/checkpoint/fixture.h"

#define FILE_0                                                                                     \
    "{\"name\": \"shard-0000-of-0001.slc\", \"shard\": 0, \"bytes\": 500, \"hash\": "              \
    "\"00000000000000ff\", \"rows\": 3}"
#define HEAD                                                                                       \
    "{\"format\": \"starling checkpoint 1\", \"number\": 5, \"base\": 0, \"base_id\": "            \
    "\"0000000000000000\", "
#define TAIL "\"time\": 7, \"shard_count\": 1, \"files\": [" FILE_0 "], "

/* Puts the right hash behind the text. Returns what decode says. */
static int decode(const char *text, struct sl_checkpoint_manifest *out)
{
    char whole[4096];
    char seal[SL_CHECKPOINT_SEAL_BYTES];
    sl_checkpoint_manifest_seal(text, strlen(text), seal);
    (void)snprintf(whole, sizeof whole, "%s%s", text, seal);
    return sl_checkpoint_manifest_decode(whole, strlen(whole), out, REASON);
}

SL_CASE(decode__takes_what_encode_makes)
{
    struct sl_checkpoint_manifest manifest;
    struct sl_checkpoint_manifest again;
    size_t bytes;
    assert_int_equal(sl_checkpoint_manifest_init(SL_LIMIT_SHARDS, &manifest), 0);
    manifest.number = SL_LIMIT_CHECKPOINT_NUMBER;
    manifest.base = SL_LIMIT_CHECKPOINT_NUMBER - 1;
    manifest.base_id = UINT64_MAX;
    manifest.time_s = INT64_MAX;
    manifest.workers = SL_CHECKPOINT_WORKERS_SOME;
    for (uint32_t i = 0; i < SL_LIMIT_SHARDS; i++) {
        manifest.files[i].bytes = INT64_MAX - i;
        manifest.files[i].hash = UINT64_MAX - i;
        manifest.files[i].rows = INT64_MAX;
    }
    manifest.id = sl_checkpoint_manifest_id(&manifest);
    char *text = sl_checkpoint_manifest_encode(&manifest, &bytes);
    assert_non_null(text);
    assert_int_equal(strlen(text), bytes);
    assert_int_equal(sl_checkpoint_manifest_decode(text, bytes, &again, REASON), 0);
    assert_memory_equal(again.files, manifest.files, SL_LIMIT_SHARDS * sizeof manifest.files[0]);
    assert_int_equal(again.number, manifest.number);
    assert_int_equal(again.base, manifest.base);
    assert_int_equal(again.base_id, manifest.base_id);
    assert_int_equal(again.time_s, manifest.time_s);
    assert_int_equal(again.workers, manifest.workers);
    free(text);
    sl_checkpoint_manifest_fini(&again);
    sl_checkpoint_manifest_fini(&manifest);
}

SL_CASE(decode__refuses)
{
    static const struct {
        const char *text;
        const char *why;
    } cases[] = {
        {"", "line 1"},
        {"[1, 2, ", "line"},
        {"{", "the manifest has other members"},
        {HEAD TAIL, "the manifest has other members"},
        {HEAD "\"id\": \"00000000000000aa\", \"x\": 1, " TAIL, "the manifest has other members"},
        {HEAD "\"id\": \"00000000000000aa\", " TAIL, "\"id\" is not the one of these files"},
        {HEAD "\"id\": \"00000000000000AA\", " TAIL, "\"id\" is not 16 hexadecimal digits"},
        {HEAD "\"id\": 5, " TAIL, "\"id\" is not a string"},
        {"{\"format\": \"starling checkpoint 2\", \"number\": 5, \"base\": 0, \"base_id\": "
         "\"0000000000000000\", \"id\": \"00000000000000aa\", " TAIL,
         "\"format\" is not \"starling checkpoint 1\""},
        {"{\"format\": \"starling checkpoint 1\", \"number\": 5, \"base\": 5, \"base_id\": "
         "\"0000000000000000\", \"id\": \"00000000000000aa\", " TAIL,
         "\"base\" is not a whole number of 0 to 4"},
        {"{\"format\": \"starling checkpoint 1\", \"number\": 0, \"base\": 0, \"base_id\": "
         "\"0000000000000000\", \"id\": \"00000000000000aa\", " TAIL,
         "\"number\" is not a whole number of 1 to 999999999999"},
        {"{\"format\": \"starling checkpoint 1\", \"number\": 5, \"base\": 0, \"base_id\": "
         "\"0000000000000001\", \"id\": \"00000000000000aa\", " TAIL,
         "\"base_id\" is not zeros"},
        {HEAD "\"id\": \"00000000000000aa\", \"time\": 7, \"shard_count\": 4097, \"files\": [], ",
         "\"shard_count\" is not a whole number of 1 to 4096"},
        {HEAD "\"id\": \"00000000000000aa\", \"time\": 7, \"shard_count\": 2, \"files\": [" FILE_0
              "], ",
         "\"files\" is not an array of 2"},
        {HEAD "\"id\": \"00000000000000aa\", \"time\": 7, \"shard_count\": 1, \"files\": [3], ",
         "an entry of \"files\" is not an object"},
        {HEAD
         "\"id\": \"00000000000000aa\", \"time\": 7, \"shard_count\": 1, \"files\": [{\"name\":"
         "\"../../etc/passwd\", \"shard\": 0, \"bytes\": 5, \"hash\": \"00000000000000ff\", "
         "\"rows\": 1}], ",
         "a file is named \"../../etc/passwd\"; expected shard-0000-of-0001.slc"},
        {HEAD
         "\"id\": \"00000000000000aa\", \"time\": 7, \"shard_count\": 1, \"files\": [{\"name\":"
         "\"shard-0000-of-0001.slc\", \"shard\": 0, \"bytes\": -5, \"hash\": "
         "\"00000000000000ff\", \"rows\": 1}], ",
         "\"bytes\" is not a whole number"},
        {HEAD "\"number\": 6, \"id\": \"00000000000000aa\", " TAIL, "duplicate"},
    };
    struct sl_checkpoint_manifest manifest;
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(decode(cases[i].text, &manifest), SL_ERR_CORRUPT);
        if (strstr(fixture_reason.text, cases[i].why) == NULL) {
            fail_msg("case %u: \"%s\" instead of \"%s\"", i, fixture_reason.text, cases[i].why);
        }
    }
}

SL_CASE(decode__takes_the_same_by_hand)
{
    struct sl_checkpoint_manifest manifest;
    char text[2048];
    assert_int_equal(sl_checkpoint_manifest_init(1, &manifest), 0);
    manifest.number = 5;
    manifest.files[0].bytes = 500;
    manifest.files[0].hash = 255;
    manifest.files[0].rows = 3;
    (void)snprintf(text, sizeof text, HEAD "\"id\": \"%016llx\", " TAIL,
                   (unsigned long long)sl_checkpoint_manifest_id(&manifest));
    sl_checkpoint_manifest_fini(&manifest);
    assert_int_equal(decode(text, &manifest), 0);
    assert_int_equal(manifest.files[0].rows, 3);
    sl_checkpoint_manifest_fini(&manifest);
}
