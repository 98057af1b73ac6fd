/* The live page serves its files from memory: the build compresses each file of this folder with
 * gzip and puts it into the program (embed.py). An answer has Content-Encoding: gzip, the type, the
 * ETag and "Content-Security-Policy: default-src 'self'"; the page needs nothing else and loads
 * nothing from other hosts. The files hold no data of a job, so a browser may load them without a
 * token. Constant: any thread. */
#ifndef SL_OBSERVE_WEB_H
#define SL_OBSERVE_WEB_H

#include <stddef.h>

struct sl_web_file {
    const char *path;           /* "/" is index.html; "/app.js" */
    const char *type;           /* value of Content-Type */
    const char *etag;           /* with its quotation marks; a hash of the bytes */
    const unsigned char *bytes; /* compressed with gzip */
    size_t length;
};

extern const struct sl_web_file sl_web_files[];
extern const size_t sl_web_file_count;

#endif
