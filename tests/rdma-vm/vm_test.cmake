# Tests that run in a virtual machine with a soft RDMA device (tests/rdma-vm/README.md). One machine at a
# time, since each takes the processors that it emulates. Nothing is added to builds with a sanitizer, which
# would only be slower: the same code runs there over what stands in for a device.

# Every program that asks for a device takes some ten minutes where the processor is emulated.
option(STARLING_VM_ALL "All tests that need an RDMA device, instead of the quick ones" OFF)

set(STARLING_VM_PREPARE_S 300) # what is downloaded and built at most, before the first machine starts
set(STARLING_VM_BOOT_S 120)

# sl_vm_test(NAME name COMMAND command... [TIMEOUT seconds] [OPTIONS option...]): a test with a machine of
# its own. OPTIONS: more of rdma-vm's.
function(sl_vm_test)
    cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "COMMAND;OPTIONS" ${ARGN})
    if(STARLING_SANITIZE)
        return()
    endif()
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 120)
    endif()
    add_test(NAME ${ARG_NAME} COMMAND
        ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/rdma-vm/rdma-vm
        --timeout ${ARG_TIMEOUT} --boot-timeout ${STARLING_VM_BOOT_S}
        --prepare-timeout ${STARLING_VM_PREPARE_S} ${ARG_OPTIONS} -- ${ARG_COMMAND})
    sl_vm_set_properties(${ARG_NAME} ${ARG_TIMEOUT})
endfunction()

# sl_vm_set_properties(NAME SECONDS): for a test that runs rdma-vm itself.
function(sl_vm_set_properties name seconds)
    math(EXPR limit "${seconds} + ${STARLING_VM_PREPARE_S} + 2 * ${STARLING_VM_BOOT_S}")
    set_tests_properties(${name} PROPERTIES LABELS "rdma;nightly" RESOURCE_LOCK rdma_vm SKIP_RETURN_CODE 77
        PROCESSORS 3 COST 100 TIMEOUT ${limit})
endfunction()

# sl_vm_item(NAME name COMMAND command... [TIMEOUT seconds]): a command among those that one machine runs
# in a row: the test rdma_vm_rxe. No argument holds a '.
function(sl_vm_item)
    cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "COMMAND" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 60)
    endif()
    list(JOIN ARG_COMMAND "' '" words)
    set_property(GLOBAL APPEND_STRING PROPERTY starling_vm_list
        "${ARG_TIMEOUT} ${ARG_NAME} '${words}'\n")
    set_property(GLOBAL APPEND PROPERTY starling_vm_seconds ${ARG_TIMEOUT})
endfunction()

# sl_vm_add_items(): the test that runs all items; once, behind the last item.
function(sl_vm_add_items)
    get_property(list GLOBAL PROPERTY starling_vm_list)
    get_property(seconds GLOBAL PROPERTY starling_vm_seconds)
    if(NOT list)
        return()
    endif()
    list(JOIN seconds " + " sum)
    math(EXPR sum "${sum}")
    set(file ${PROJECT_BINARY_DIR}/tests/rdma_vm_rxe.list)
    file(GENERATE OUTPUT ${file} CONTENT "${list}")
    sl_vm_test(NAME rdma_vm_rxe TIMEOUT ${sum}
        COMMAND ${PROJECT_SOURCE_DIR}/tests/rdma-vm/guest/run-list ${file})
endfunction()
