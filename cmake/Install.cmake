# What users link: the objects of every folder that a library stands on in one file, shared and
# static, with a file for pkg-config and targets for the CMake package `starling`.

include(CMakePackageConfigHelpers)

set(STARLING_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/starling)
# Paths relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH STARLING_PC_UP "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")

function(starling_library_file name output type export objects links)
    add_library(${name} ${type} ${objects})
    set_target_properties(${name} PROPERTIES
        LINKER_LANGUAGE C OUTPUT_NAME ${output}
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
    target_link_libraries(${name} PRIVATE ${links} Threads::Threads m)
    target_include_directories(${name} INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    install(TARGETS ${name} EXPORT ${export} COMPONENT libstarling
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT ${export} NAMESPACE starling:: COMPONENT libstarling
        DESTINATION ${STARLING_CMAKE_DIR})
endfunction()

# starling_installed_library(NAME PC FOLDERS target... LINKS imported...): lib<NAME> and the targets
# NAME and NAME_static. PC: what pkg-config calls it; cmake/PC.pc.in names what the static one needs.
function(starling_installed_library name pc)
    cmake_parse_arguments(ARG "" "" "FOLDERS;LINKS" ${ARGN})
    list(TRANSFORM ARG_FOLDERS REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
    starling_library_file(${name} ${name} SHARED ${name}Targets "${objects}" "${ARG_LINKS}")
    starling_library_file(${name}_static ${name} STATIC ${name}StaticTargets "${objects}"
        "${ARG_LINKS}")
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
    if(STARLING_SANITIZE)
        # The sanitizers' run time is linked into programs, not into libraries.
        set_target_properties(${name} PROPERTIES LINK_OPTIONS -fsanitize=${STARLING_SANITIZE})
    endif()
    install(FILES ${PROJECT_SOURCE_DIR}/include/${name}.h COMPONENT libstarling
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${pc}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${pc}.pc
        @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${pc}.pc COMPONENT libstarling
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
