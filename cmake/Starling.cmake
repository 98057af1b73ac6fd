# Compiler settings, and the three ways in which this project makes targets.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g1") # the lines that reports name; variables would take a tenth of the build

set(STARLING_SANITIZE "" CACHE STRING "Value of -fsanitize=, or empty")

# Some 160 test programs are linked with all they test: lld takes a third of ld's time. Packages are linked by ld.
if(BUILD_TESTING)
    find_program(STARLING_LLD ld.lld)
    if(STARLING_LLD)
        add_link_options(-fuse-ld=lld)
    endif()
endif()

# What every target is compiled with. -ffp-contract=off: a multiply-add is rounded twice on every
# processor, so that a model trained here and there is the same bit for bit.
add_library(starling_build INTERFACE)
target_compile_options(starling_build INTERFACE
    -Wall -Wextra -Wno-unused-parameter -Wconversion -Werror
    $<$<COMPILE_LANGUAGE:C>:-Wshadow> $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
    -fno-math-errno -ffp-contract=off -fno-omit-frame-pointer)
target_compile_definitions(starling_build INTERFACE
    _GNU_SOURCE STARLING_VERSION="${PROJECT_VERSION}")
target_include_directories(starling_build INTERFACE
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
if(STARLING_SANITIZE)
    target_compile_options(starling_build INTERFACE
        -fsanitize=${STARLING_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(starling_build INTERFACE -fsanitize=${STARLING_SANITIZE})
    target_compile_definitions(starling_build INTERFACE SL_ASSERT_SLOW)
endif()

# sl_library(NAME SOURCES file... LINKS target...): a folder's static library.
function(sl_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC starling_build ${ARG_LINKS})
endfunction()

find_program(PROTOC_C protoc-c REQUIRED)

# sl_protobuf(TARGET PATH...): adds each PATH.proto, by protobuf-c, to a target. The generated code is compiled
# without our warning flags and is seen by this target only.
function(sl_protobuf target)
    set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
    file(MAKE_DIRECTORY ${generated})
    add_library(${target}_proto OBJECT)
    foreach(path IN LISTS ARGN)
        get_filename_component(folder ${PROJECT_SOURCE_DIR}/${path} DIRECTORY)
        get_filename_component(name ${path} NAME)
        add_custom_command(
            OUTPUT ${generated}/${name}.pb-c.c ${generated}/${name}.pb-c.h
            COMMAND ${PROTOC_C} --proto_path=${folder} --c_out=${generated} ${name}.proto
            DEPENDS ${folder}/${name}.proto
            COMMENT "Generating ${name}.pb-c.[ch]"
            VERBATIM)
        target_sources(${target}_proto PRIVATE ${generated}/${name}.pb-c.c)
        target_sources(${target} PRIVATE ${generated}/${name}.pb-c.h)
    endforeach()
    target_include_directories(${target}_proto SYSTEM PUBLIC ${generated})
    target_link_libraries(${target}_proto PUBLIC PkgConfig::PROTOBUF_C)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_proto>)
    target_include_directories(${target} SYSTEM PRIVATE ${generated})
    target_link_libraries(${target} PUBLIC PkgConfig::PROTOBUF_C)
endfunction()

# sl_program(NAME SOURCES file... LINKS target...): an installed executable.
function(sl_program name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE starling_build ${ARG_LINKS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# sl_test(NAME SOURCES file... LINKS target...): a CMocka program, run by CTest under its name.
function(sl_test name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE starling_build PkgConfig::CMOCKA ${ARG_LINKS})
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
endfunction()
