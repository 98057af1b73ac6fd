/* Requests of the fuzz targets, and the tables that they fit. Tables 0 to 3: sparse, ASP; sparse,
 * BSP, of INT8; dense, SSP(1); dense, ASP with Adam and finite values; 4 to 6: KV, of floats, bytes
 * and halves. */
#ifndef SL_TESTS_FUZZ_REQUEST_MAKE_H
#define SL_TESTS_FUZZ_REQUEST_MAKE_H

#include "core/bytes.h"
#include "ps/shard/shard.h"

#define FUZZ_REQUEST_KV     4 /* the first KV table */
#define FUZZ_REQUEST_TABLES 7

/* The specification of a table. */
struct sl_table_spec fuzz_request_spec(uint32_t table_id);

/* Opens all of them. */
void fuzz_request_open_tables(struct sl_shard *shard);

/* A request whose sections fit the tables, up to dense ranges that may be another shard's; `shape`
 * says how many there are, and of which iteration it is. */
void fuzz_request_make(struct sl_bytes_writer *writer, uint32_t shard, uint32_t shard_count,
                       uint8_t shape, struct sl_bytes *input);

/* Gives the section precisions, as far as its operation has values of f32 and knows them. Write:
 * its pushed values, any bytes. */
void fuzz_request_encode(struct sl_request_section *section, uint32_t pushed, uint32_t returned);
void fuzz_request_write_values(struct sl_bytes_writer *writer,
                               const struct sl_request_section *section, uint32_t dim);

#endif
