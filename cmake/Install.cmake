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

# Into the caller's variables of these names: what the folder's library stands on, itself included,
# and what of other people's.
function(starling_collect target ours_name foreign_name)
    set(all ${${ours_name}} ${target})
    set(foreign ${${foreign_name}})
    get_target_property(needed ${target} LINK_LIBRARIES)
    foreach(other IN LISTS needed)
        if(other MATCHES "^sl_" AND NOT other IN_LIST all)
            starling_collect(${other} all foreign)
        elseif(other MATCHES "^PkgConfig::")
            list(APPEND foreign ${other})
        endif()
    endforeach()
    list(REMOVE_DUPLICATES foreign)
    set(${ours_name} ${all} PARENT_SCOPE)
    set(${foreign_name} ${foreign} PARENT_SCOPE)
endfunction()

# starling_installed_library(NAME PC FOLDER HEADER...): lib<NAME> and the targets NAME and NAME_static,
# of the folder's library and all that it stands on, with these headers of include/. PC: what
# pkg-config calls it; cmake/PC.pc.in names what the static one needs.
function(starling_installed_library name pc folder)
    if(STARLING_SANITIZE) # the sanitizers' run time is linked into programs, and nothing there links these
        return()
    endif()
    set(folders)
    set(links)
    starling_collect(${folder} folders links)
    set(objects)
    foreach(part IN LISTS folders)
        get_target_property(sources ${part} SOURCES)
        list(FILTER sources INCLUDE REGEX "TARGET_OBJECTS") # not among the target's own
        list(APPEND objects $<TARGET_OBJECTS:${part}> ${sources})
    endforeach()
    starling_library_file(${name} ${name} SHARED ${name}Targets "${objects}" "${links}")
    starling_library_file(${name}_static ${name} STATIC ${name}StaticTargets "${objects}"
        "${links}")
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
    list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/include/ OUTPUT_VARIABLE headers)
    install(FILES ${headers} COMPONENT libstarling
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${pc}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${pc}.pc
        @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${pc}.pc COMPONENT libstarling
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
