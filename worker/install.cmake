# libstarling: the client and what it stands on; and the CMake package of all that is installed.

starling_installed_library(starling starling
    FOLDERS sl_core sl_reactor sl_net sl_net_shm sl_net_tcp sl_net_control sl_net_control_proto sl_worker
    LINKS PkgConfig::LIBURING PkgConfig::PROTOBUF_C PkgConfig::OPENSSL PkgConfig::HWLOC
        PkgConfig::XXHASH)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/starlingConfig.cmake.in
    ${CMAKE_CURRENT_BINARY_DIR}/starlingConfig.cmake
    INSTALL_DESTINATION ${STARLING_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/starlingConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/starlingConfig.cmake
        ${CMAKE_CURRENT_BINARY_DIR}/starlingConfigVersion.cmake
    COMPONENT libstarling DESTINATION ${STARLING_CMAKE_DIR})
