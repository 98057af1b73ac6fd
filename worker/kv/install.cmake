# libstarling_kv: all of libstarling, the key-value interface, and the server that it can be.
starling_installed_library(starling_kv starling-kv sl_worker_kv starling_kv.h)
