#include "authority.h"

#include <dirent.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/assert.h"

#define PATH_BYTES 512
#define DAY_S      86400L
#define HERE       "IP:127.0.0.1,IP:::1,DNS:localhost"

struct signer {
    EVP_PKEY *key;
    X509 *certificate;
};

static char folder[] = "/tmp/starling-tls-XXXXXX";
static char paths[AUTHORITY_COUNT][3][PATH_BYTES];
static struct sl_transport_tls files[AUTHORITY_COUNT];

const char *authority_path(const char *name)
{
    static char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void remove_folder(void)
{
    DIR *opened = opendir(folder);
    struct dirent *entry;
    while (opened != NULL && (entry = readdir(opened)) != NULL) {
        unlink(authority_path(entry->d_name));
    }
    if (opened != NULL) {
        closedir(opened);
    }
    rmdir(folder);
}

static void extend(X509 *certificate, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, certificate, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    sl_assert(extension != NULL);
    sl_assert(X509_add_ext(certificate, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

static uint64_t next_serial = 1;

/* Signed by itself when there is no signer. */
static struct signer make(const struct signer *by, const char *common_name, long from_s, long to_s)
{
    struct signer made = {.key = EVP_EC_gen("P-256"), .certificate = X509_new()};
    sl_assert(made.key != NULL);
    sl_assert(made.certificate != NULL);
    X509_set_version(made.certificate, 2);
    ASN1_INTEGER_set_uint64(X509_get_serialNumber(made.certificate), next_serial++);
    X509_gmtime_adj(X509_getm_notBefore(made.certificate), from_s);
    X509_gmtime_adj(X509_getm_notAfter(made.certificate), to_s);
    X509_set_pubkey(made.certificate, made.key);
    X509_NAME *name = X509_get_subject_name(made.certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common_name, -1, -1,
                               0);
    X509_set_issuer_name(made.certificate,
                         by != NULL ? X509_get_subject_name(by->certificate) : name);
    return made;
}

static void sign(struct signer *made, const struct signer *by)
{
    sl_assert(X509_sign(made->certificate, by->key, EVP_sha256()) > 0);
}

static void write_certificate(const X509 *certificate, const char *path)
{
    FILE *file = fopen(path, "we");
    sl_assert(file != NULL);
    sl_assert(PEM_write_X509(file, certificate) == 1);
    fclose(file);
}

static void write_key(const EVP_PKEY *key, const char *path)
{
    FILE *file = fopen(path, "we");
    sl_assert(file != NULL);
    sl_assert(fchmod(fileno(file), S_IRUSR | S_IWUSR) == 0);
    sl_assert(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
    fclose(file);
}

static struct signer make_root(const char *common_name)
{
    struct signer root = make(NULL, common_name, -DAY_S, DAY_S);
    extend(root.certificate, NID_basic_constraints, "critical,CA:TRUE");
    sign(&root, &root);
    write_certificate(root.certificate, authority_path(common_name));
    return root;
}

static void free_signer(struct signer *signer)
{
    EVP_PKEY_free(signer->key);
    X509_free(signer->certificate);
}

static void make_node(enum authority_who who, const struct signer *by, const char *trusts,
                      const char *names, long to_s)
{
    struct signer node = make(by, "node", -2 * DAY_S, to_s);
    extend(node.certificate, NID_subject_alt_name, names);
    sign(&node, by);
    snprintf(paths[who][0], PATH_BYTES, "%s/%d.pem", folder, who);
    snprintf(paths[who][1], PATH_BYTES, "%s/%d.key", folder, who);
    snprintf(paths[who][2], PATH_BYTES, "%s/%s", folder, trusts);
    write_certificate(node.certificate, paths[who][0]);
    write_key(node.key, paths[who][1]);
    files[who] = (struct sl_transport_tls){
        .certificate = paths[who][0], .key = paths[who][1], .authority = paths[who][2]};
    free_signer(&node);
}

void authority_make(void)
{
    sl_assert(mkdtemp(folder) != NULL);
    atexit(remove_folder);
    struct signer ours = make_root("ours");
    struct signer others = make_root("others");
    make_node(AUTHORITY_NODE, &ours, "ours", HERE, DAY_S);
    make_node(AUTHORITY_STRANGER, &others, "others", HERE, DAY_S);
    make_node(AUTHORITY_IMPOSTOR, &others, "ours", HERE, DAY_S);
    make_node(AUTHORITY_EXPIRED, &ours, "ours", HERE, -DAY_S);
    make_node(AUTHORITY_ELSEWHERE, &ours, "ours", "DNS:elsewhere.example", DAY_S);
    free_signer(&ours);
    free_signer(&others);
}

const struct sl_transport_tls *authority_files(enum authority_who who)
{
    return &files[who];
}
