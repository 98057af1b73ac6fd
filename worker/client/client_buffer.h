/* Client buffers, for the end of a client: the rest is the public API. */
#ifndef SL_WORKER_CLIENT_CLIENT_BUFFER_H
#define SL_WORKER_CLIENT_CLIENT_BUFFER_H

struct sl_client;

/* Frees all buffers. Any thread, after the client_ios have closed. */
void sl_client_buffer_destroy_all(struct sl_client *client);

#endif
