# The functions a module's CMakeLists.txt is written with:
#
#   fanin_module(wire
#     SOURCES header.cpp checksum.cpp      # relative to the module
#     PUBLIC_HEADERS checksum.hpp          # those that are installed (docs/abi.md)
#     LIBS isal)                           # short names of cmake/FaninDependencies.cmake, or any CMake target
#   fanin_module_tests(wire
#     header_test.cpp checksum_test.cpp)   # one GoogleTest executable, every test case registered with ctest;
#                                          # has the module's own LIBS, and more with LIBS
#   fanin_test_executable(virtual ...) and fanin_discover_tests(virtual builder "-*Shaped.*")
#                                        # the two parts of it, where the tests of one executable have several labels
#   fanin_shared_module(ofi              # fanin_ofi.so beside the library, opened at run time (base/shared_module.hpp)
#     SOURCES module.cpp LIBS ofi        # its object files for tests: fanin_shared_ofi_objects
#     FUNCTIONS fanin_ofi_providers)     # those that are looked up in it, for builds that link it in: fanin_link_modules()
#   fanin_fuzz(wire_header SOURCES header_fuzz.cpp)    # defines LLVMFuzzerTestOneInput; corpus: fuzz/corpus/wire_header/
#   fanin_microbench(wire SOURCES header_bench.cpp)    # Google Benchmark, built with the target fanin_microbenches
#
# Includes are written from src/: #include "fanin/wire/header.hpp".

add_custom_target(fanin_tests)
add_custom_target(fanin_shared_modules)
add_custom_target(fanin_threaded_tests) # what ThreadSanitizer runs in ./dev test --full (tests/threads_test.py)
add_custom_target(fanin_fuzzers)
add_custom_target(fanin_microbenches)

# A slower build gets more time; a test that hangs still ends.
set(FANIN_TEST_TIMEOUT_S 300)
if(FANIN_SANITIZE)
  set(FANIN_TEST_TIMEOUT_S 600)
endif()

# A module is compiled once, into object files. They are linked into the module's library, and, since that hides most
# names, into the tests of the module and of those above it.
function(fanin_module name)
  cmake_parse_arguments(PARSE_ARGV 1 MODULE "" "" "SOURCES;PUBLIC_HEADERS;LIBS")
  fanin_resolve_libs(libs ${MODULE_LIBS})
  set_property(GLOBAL PROPERTY FANIN_LIBS_OF_${name} ${libs})
  set(target fanin_${name}_objects)
  add_library(${target} OBJECT ${MODULE_SOURCES})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/src" "${FANIN_GENERATED_DIR}")
  target_link_libraries(${target} PUBLIC fmt::fmt Threads::Threads PRIVATE ${libs})
  list(TRANSFORM MODULE_PUBLIC_HEADERS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(GLOBAL PROPERTY FANIN_PUBLIC_HEADERS_OF_${name} ${MODULE_PUBLIC_HEADERS})
endfunction()

# The object files of the module of this folder and of those below it; of all modules in a folder that is no module.
function(fanin_objects_of_this_folder out)
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  set(result)
  foreach(module IN LISTS FANIN_MODULES)
    list(APPEND result fanin_${module}_objects)
    if(module STREQUAL folder)
      break()
    endif()
  endforeach()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

# A library of some modules. A static one names its libraries to its users, but not those that are headers alone.
function(fanin_library target)
  add_library(${target})
  foreach(module IN LISTS ARGN)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:fanin_${module}_objects>)
    get_property(libs GLOBAL PROPERTY FANIN_LIBS_OF_${module})
    list(REMOVE_ITEM libs fanin_tomlplusplus nlohmann_json::nlohmann_json)
    target_link_libraries(${target} PRIVATE ${libs})
    get_property(headers GLOBAL PROPERTY FANIN_PUBLIC_HEADERS_OF_${module})
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/src" FILES ${headers})
  endforeach()
  target_compile_features(${target} PUBLIC cxx_std_23)
  target_link_libraries(${target} PUBLIC fmt::fmt Threads::Threads)
  # Until 1.0 every minor version may change the binary interface (docs/abi.md).
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  if(BUILD_SHARED_LIBS AND NOT FANIN_SANITIZE)
    set(exports "${PROJECT_SOURCE_DIR}/cmake/exports.map")
    target_link_options(${target} PRIVATE -Wl,-z,defs "-Wl,--version-script=${exports}")
    set_property(TARGET ${target} PROPERTY LINK_DEPENDS "${exports}")
  endif()
endfunction()

# With static libraries only the tests of this tree open it: it finds fanin in their executables.
function(fanin_shared_module name)
  cmake_parse_arguments(PARSE_ARGV 1 MODULE "" "" "SOURCES;LIBS;FUNCTIONS")
  fanin_resolve_libs(libs ${MODULE_LIBS})
  set_property(GLOBAL PROPERTY FANIN_FUNCTIONS_OF_${name} ${MODULE_FUNCTIONS})
  set_property(GLOBAL PROPERTY FANIN_LIBS_OF_${name} ${libs})
  set(target fanin_shared_${name})
  add_library(${target}_objects OBJECT ${MODULE_SOURCES})
  target_include_directories(${target}_objects PUBLIC "${PROJECT_SOURCE_DIR}/src" "${FANIN_GENERATED_DIR}")
  target_link_libraries(${target}_objects PUBLIC fmt::fmt Threads::Threads ${libs})
  add_library(${target} MODULE "${FANIN_GENERATED_DIR}/module_commit.cpp")
  add_dependencies(${target} fanin_commit)
  target_link_libraries(${target} PRIVATE ${target}_objects)
  if(BUILD_SHARED_LIBS)
    target_link_libraries(${target} PRIVATE fanin_net)
    install(TARGETS ${target} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/fanin" COMPONENT fanin_net)
  else()
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME fanin_${name} UNITY_BUILD OFF
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/fanin" INSTALL_RPATH "$ORIGIN/..")
  if(BUILD_SHARED_LIBS AND NOT FANIN_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  add_dependencies(fanin_shared_modules ${target})
endfunction()

# Links shared modules into a target, with the table of their functions.
function(fanin_link_modules target)
  set(FANIN_LINKED_DECLARATIONS "")
  set(FANIN_LINKED_ROWS "")
  set(FANIN_LINKED_COUNT 0)
  foreach(module IN LISTS ARGN)
    if(TARGET fanin_shared_${module}_objects)
      get_property(libs GLOBAL PROPERTY FANIN_LIBS_OF_${module})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:fanin_shared_${module}_objects>)
      target_link_libraries(${target} PRIVATE ${libs})
      get_property(functions GLOBAL PROPERTY FANIN_FUNCTIONS_OF_${module})
      foreach(function IN LISTS functions)
        string(APPEND FANIN_LINKED_DECLARATIONS "void ${function}();\n")
        math(EXPR FANIN_LINKED_COUNT "${FANIN_LINKED_COUNT} + 1")
        string(APPEND FANIN_LINKED_ROWS "    {\"${module}\", \"${function}\", &${function}},\n")
      endforeach()
    endif()
  endforeach()
  set(table "${FANIN_GENERATED_DIR}/linked_modules_of_${target}.cpp")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/linked_modules.cpp.in" "${table}" @ONLY)
  target_sources(${target} PRIVATE "${table}")
  set_source_files_properties("${table}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON) # it knows no types of functions
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${FANIN_GENERATED_DIR}")
endfunction()

function(fanin_module_tests name)
  fanin_test_executable(${name} ${ARGN})
  fanin_discover_tests(${name} ${name} "*")
endfunction()

function(fanin_test_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "" "LIBS")
  if(NOT FANIN_HAVE_GTEST)
    return()
  endif()
  fanin_resolve_libs(libs ${TEST_LIBS})
  fanin_objects_of_this_folder(objects)
  get_filename_component(module "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  get_property(module_libs GLOBAL PROPERTY FANIN_LIBS_OF_${module})  # a test may look where its module looks
  set(target fanin_${name}_test)
  add_executable(${target} ${TEST_UNPARSED_ARGUMENTS})
  if(FANIN_SANITIZE MATCHES "address")
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/asan_options.cpp")
  endif()
  target_link_libraries(${target} PRIVATE fanin_version_of_tests ${objects} ${libs} ${module_libs}
    GTest::gmock GTest::gtest_main)
  # ENABLE_EXPORTS: a shared module or plug-in that a test opens uses the test's fanin, not one more.
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests" ENABLE_EXPORTS ON)
  target_compile_options(${target} PRIVATE ${FANIN_TEST_OPTIONS})
  # Where the tests find what they need, without a path compiled into a test's own source.
  target_compile_definitions(${target} PRIVATE
    "FANIN_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  add_dependencies(fanin_tests ${target} fanin_shared_modules)
endfunction()

# Those that match a filter of GoogleTest get the label.
function(fanin_discover_tests name label filter)
  if(NOT FANIN_HAVE_GTEST)
    return()
  endif()
  include(GoogleTest)
  gtest_discover_tests(fanin_${name}_test TEST_FILTER "${filter}"
    DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES NO_PRETTY_TYPES
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    TEST_PREFIX "${name}." PROPERTIES TIMEOUT ${FANIN_TEST_TIMEOUT_S} LABELS ${label})
endfunction()

if(FANIN_TESTS AND NOT FANIN_FUZZ)
  add_library(fanin_fuzz_replay OBJECT "${PROJECT_SOURCE_DIR}/fuzz/replay_main.cpp")
endif()

# With FANIN_FUZZ a libFuzzer executable; otherwise the same target with a main that replays the corpus, cuts each
# entry short and flips bytes in it, so that every build tests every decoder.
function(fanin_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 FUZZ "" "" "SOURCES;LIBS")
  if(NOT FANIN_TESTS)
    return()
  endif()
  fanin_resolve_libs(libs ${FUZZ_LIBS})
  fanin_objects_of_this_folder(objects)
  set(target fanin_fuzz_${name})
  add_executable(${target} ${FUZZ_SOURCES})
  target_link_libraries(${target} PRIVATE fanin_version_of_tests ${objects} ${libs})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-missing-declarations)  # LLVMFuzzerTestOneInput
  endif()
  add_dependencies(fanin_fuzzers ${target})
  add_dependencies(fanin_tests ${target})
  set(corpus "${PROJECT_SOURCE_DIR}/fuzz/corpus/${name}")
  if(FANIN_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    # libFuzzer wants a folder of its own to write to; -runs=0 only replays what is committed.
    set(command ${target} -runs=0 -timeout=10 -rss_limit_mb=4096 "${corpus}")
  else()
    target_link_libraries(${target} PRIVATE fanin_fuzz_replay)
    set(command ${target} "${corpus}")
  endif()
  if(IS_DIRECTORY "${corpus}")
    add_test(NAME fuzz.${name} COMMAND ${command} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT ${FANIN_TEST_TIMEOUT_S} LABELS fuzz)
  else()
    message(SEND_ERROR "fanin_fuzz(${name}): its corpus is missing: fuzz/corpus/${name}/")
  endif()
endfunction()

function(fanin_microbench name)
  cmake_parse_arguments(PARSE_ARGV 1 BENCH "" "" "SOURCES;LIBS")
  if(NOT TARGET benchmark::benchmark)
    return()
  endif()
  fanin_resolve_libs(libs ${BENCH_LIBS})
  fanin_objects_of_this_folder(objects)
  set(target fanin_${name}_microbench)
  add_executable(${target} EXCLUDE_FROM_ALL ${BENCH_SOURCES})
  target_link_libraries(${target} PRIVATE fanin_version_of_tests ${objects} ${libs} benchmark::benchmark_main)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
  add_dependencies(fanin_microbenches ${target})
endfunction()

# Called once, after the modules: what --version says. It is in libfanin_net. The tests have it in a library of their
# own, since it changes with each commit, and a test is not linked again because a shared library has changed.
function(fanin_add_version)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  set(description "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
  if(FANIN_SANITIZE)
    string(APPEND description " -fsanitize=${FANIN_SANITIZE}")
  endif()
  string(REGEX REPLACE " +" " " description "${description}")
  add_library(fanin_version OBJECT "${FANIN_GENERATED_DIR}/version.cpp")
  add_dependencies(fanin_version fanin_commit)
  target_include_directories(fanin_version PRIVATE "${PROJECT_SOURCE_DIR}/src" "${FANIN_GENERATED_DIR}")
  target_compile_definitions(fanin_version PRIVATE "FANIN_BUILD_DESCRIPTION=\"${description}\"")
  target_sources(fanin_net PRIVATE $<TARGET_OBJECTS:fanin_version> PUBLIC
    FILE_SET HEADERS BASE_DIRS "${FANIN_GENERATED_DIR}" FILES "${FANIN_GENERATED_DIR}/fanin/version.hpp")
  # Tests open the modules that they use: others would wait for the constructors of RDMA's libraries.
  add_library(fanin_version_of_tests SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:fanin_version>)
  fanin_link_modules(fanin_version_of_tests)
endfunction()
