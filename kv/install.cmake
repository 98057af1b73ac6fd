# libstarling_kv: all of libstarling, the key-value interface, and the server that it can be.

starling_installed_library(starling_kv starling-kv
    FOLDERS sl_core sl_reactor sl_net sl_net_tcp sl_net_control sl_net_control_proto sl_worker
        sl_ps_table sl_ps sl_config sl_kv
    LINKS PkgConfig::LIBURING PkgConfig::PROTOBUF_C PkgConfig::OPENSSL PkgConfig::HWLOC
        PkgConfig::XXHASH PkgConfig::JANSSON)
