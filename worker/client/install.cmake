# libstarling: the client and what it stands on; and the CMake package of all that is installed.

starling_installed_library(starling starling sl_worker_client starling.h
    starling_table.h starling_encoding.h starling_placement.h starling_rows.h starling_training.h)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/starlingConfig.cmake.in
    ${CMAKE_CURRENT_BINARY_DIR}/starlingConfig.cmake
    INSTALL_DESTINATION ${STARLING_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/starlingConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/starlingConfig.cmake
        ${CMAKE_CURRENT_BINARY_DIR}/starlingConfigVersion.cmake
    COMPONENT libstarling DESTINATION ${STARLING_CMAKE_DIR})
