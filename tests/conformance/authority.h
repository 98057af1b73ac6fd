/* Certificates for tests, made by OpenSSL in a folder of their own that goes with the program. */
#ifndef TESTS_CONFORMANCE_AUTHORITY_H
#define TESTS_CONFORMANCE_AUTHORITY_H

#include "net/transport.h"

/* Who shows what; all of them name 127.0.0.1, ::1 and localhost unless said otherwise. */
enum authority_who {
    AUTHORITY_NODE,
    AUTHORITY_STRANGER,  /* signed by another authority, and trusts that one only */
    AUTHORITY_IMPOSTOR,  /* signed by another authority, but trusts ours */
    AUTHORITY_EXPIRED,   /* since yesterday */
    AUTHORITY_ELSEWHERE, /* names elsewhere.example only */
    AUTHORITY_COUNT
};

/* Makes everything; the folder is removed when the program ends. */
void authority_make(void);

const struct sl_transport_tls *authority_files(enum authority_who who);

/* The path of a file in the folder, for one more of the test's own; static storage, one at a time.
 * All files in it are removed at the end. */
const char *authority_path(const char *name);

#endif
