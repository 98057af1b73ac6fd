# libstarling, shared and static: the objects of every folder that the client stands on, in one
# library each, and what a user needs to find them.

include(CMakePackageConfigHelpers)

set(STARLING_FOLDERS sl_core sl_reactor sl_net sl_net_tcp sl_net_control sl_net_control_proto
    sl_worker)
set(STARLING_OBJECTS ${STARLING_FOLDERS})
list(TRANSFORM STARLING_OBJECTS REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")

set(STARLING_LINKS PkgConfig::LIBURING PkgConfig::PROTOBUF_C PkgConfig::OPENSSL PkgConfig::HWLOC
    PkgConfig::XXHASH
    Threads::Threads m)
# For users, NAME:pkg-config's specification of what the static library needs.
set(STARLING_PC_MODULES
    "LIBURING:liburing>=2.3 PROTOBUF_C:libprotobuf-c HWLOC:hwloc XXHASH:libxxhash OPENSSL:openssl")
set(STARLING_PC_LIBS_PRIVATE "-luring -lprotobuf-c -lhwloc -lxxhash -lssl -lcrypto -pthread -lm")

function(starling_library name type export)
    add_library(${name} ${type} ${STARLING_OBJECTS})
    set_target_properties(${name} PROPERTIES
        LINKER_LANGUAGE C OUTPUT_NAME starling
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
    target_link_libraries(${name} PRIVATE ${STARLING_LINKS})
    target_include_directories(${name} INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    install(TARGETS ${name} EXPORT ${export} COMPONENT libstarling
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT ${export} NAMESPACE starling:: COMPONENT libstarling
        DESTINATION ${STARLING_CMAKE_DIR})
endfunction()

set(STARLING_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/starling)
starling_library(starling SHARED starlingTargets)
starling_library(starling_static STATIC starlingStaticTargets)
target_link_options(starling PRIVATE -Wl,--no-undefined)
if(STARLING_SANITIZE)
    # The sanitizers' run time is linked into programs, not into libraries.
    set_target_properties(starling PROPERTIES LINK_OPTIONS -fsanitize=${STARLING_SANITIZE})
endif()

install(FILES ${PROJECT_SOURCE_DIR}/include/starling.h COMPONENT libstarling
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# Paths relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH STARLING_PC_UP "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(${PROJECT_SOURCE_DIR}/cmake/starling.pc.in
    ${CMAKE_CURRENT_BINARY_DIR}/starling.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/starling.pc COMPONENT libstarling
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/starlingConfig.cmake.in
    ${CMAKE_CURRENT_BINARY_DIR}/starlingConfig.cmake
    INSTALL_DESTINATION ${STARLING_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/starlingConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/starlingConfig.cmake
        ${CMAKE_CURRENT_BINARY_DIR}/starlingConfigVersion.cmake
    COMPONENT libstarling DESTINATION ${STARLING_CMAKE_DIR})
