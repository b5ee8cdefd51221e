# The functions a module's CMakeLists.txt is written with:
#
#   fanin_module(wire
#     SOURCES header.cpp checksum.cpp      # relative to the module
#     LIBS isal                            # short names of cmake/FaninDependencies.cmake, or any CMake target
#     PUBLIC_LIBS fmt)                     # those that the module's own headers include
#   fanin_module_tests(wire
#     header_test.cpp checksum_test.cpp)   # one GoogleTest executable, every test case registered with ctest;
#                                          # has the module's own LIBS, and more with LIBS
#   fanin_shared_module(ofi              # fanin_ofi.so beside the library, opened at run time (base/shared_module.hpp)
#     SOURCES module.cpp LIBS ofi)       # its object files for tests: fanin_shared_ofi_objects
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

function(fanin_module name)
  cmake_parse_arguments(PARSE_ARGV 1 MODULE "" "" "SOURCES;LIBS;PUBLIC_LIBS")
  fanin_resolve_libs(libs ${MODULE_LIBS})
  fanin_resolve_libs(public_libs ${MODULE_PUBLIC_LIBS} fmt)
  set_property(GLOBAL PROPERTY FANIN_LIBS_OF_${name} ${libs})
  set(target fanin_${name})
  if(MODULE_SOURCES)
    add_library(${target} OBJECT ${MODULE_SOURCES})
    target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/src" "${FANIN_GENERATED_DIR}")
    target_link_libraries(${target} PRIVATE ${libs} ${public_libs} Threads::Threads)
    target_sources(fanin PRIVATE $<TARGET_OBJECTS:${target}>)
  endif()
  target_link_libraries(fanin PRIVATE ${libs} PUBLIC ${public_libs})
  set_property(GLOBAL APPEND PROPERTY FANIN_PUBLIC_TARGETS ${public_libs})
endfunction()

function(fanin_shared_module name)
  cmake_parse_arguments(PARSE_ARGV 1 MODULE "" "" "SOURCES;LIBS")
  fanin_resolve_libs(libs ${MODULE_LIBS})
  set(target fanin_shared_${name})
  add_library(${target}_objects OBJECT ${MODULE_SOURCES})
  target_link_libraries(${target}_objects PUBLIC fanin ${libs})
  add_library(${target} MODULE $<TARGET_OBJECTS:${target}_objects> "${FANIN_GENERATED_DIR}/module_commit.cpp")
  add_dependencies(${target} fanin_commit)
  target_link_libraries(${target} PRIVATE fanin ${libs})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME fanin_${name} UNITY_BUILD OFF
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/fanin" INSTALL_RPATH "$ORIGIN/..")
  add_dependencies(fanin_shared_modules ${target})
  install(TARGETS ${target} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/fanin" COMPONENT fanin)
endfunction()

function(fanin_module_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "" "LIBS")
  if(NOT FANIN_HAVE_GTEST)
    return()
  endif()
  fanin_resolve_libs(libs ${TEST_LIBS})
  get_property(module_libs GLOBAL PROPERTY FANIN_LIBS_OF_${name})  # a test may look where its module looks
  set(target fanin_${name}_test)
  add_executable(${target} ${TEST_UNPARSED_ARGUMENTS})
  target_link_libraries(${target} PRIVATE fanin ${libs} ${module_libs} GTest::gmock GTest::gtest_main)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_compile_options(${target} PRIVATE ${FANIN_TEST_OPTIONS})
  # Where the tests find what they need, without a path compiled into a test's own source.
  target_compile_definitions(${target} PRIVATE
    "FANIN_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  add_dependencies(fanin_tests ${target} fanin_shared_modules)
  include(GoogleTest)
  gtest_discover_tests(${target}
    DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES NO_PRETTY_TYPES
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    TEST_PREFIX "${name}." PROPERTIES TIMEOUT ${FANIN_TEST_TIMEOUT_S} LABELS ${name})
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
  set(target fanin_fuzz_${name})
  add_executable(${target} ${FUZZ_SOURCES})
  target_link_libraries(${target} PRIVATE fanin ${libs})
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
  set(target fanin_${name}_microbench)
  add_executable(${target} EXCLUDE_FROM_ALL ${BENCH_SOURCES})
  target_link_libraries(${target} PRIVATE fanin ${libs} benchmark::benchmark_main)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
  add_dependencies(fanin_microbenches ${target})
endfunction()

# Called once, after the modules.
function(fanin_finish_library)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  set(description "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
  if(FANIN_SANITIZE)
    string(APPEND description " -fsanitize=${FANIN_SANITIZE}")
  endif()
  string(REGEX REPLACE " +" " " description "${description}")
  add_library(fanin_version OBJECT "${FANIN_GENERATED_DIR}/version.cpp")
  add_dependencies(fanin_version fanin_commit)
  target_include_directories(fanin_version PRIVATE "${FANIN_GENERATED_DIR}")
  target_compile_definitions(fanin_version PRIVATE "FANIN_BUILD_DESCRIPTION=\"${description}\"")
  target_sources(fanin PRIVATE $<TARGET_OBJECTS:fanin_version>)

  target_compile_features(fanin PUBLIC cxx_std_23)
  target_include_directories(fanin PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${FANIN_GENERATED_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(fanin PUBLIC Threads::Threads PRIVATE ${CMAKE_DL_LIBS})
  # Until 1.0 every minor version may change the binary interface.
  set_target_properties(fanin PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  if(NOT FANIN_SANITIZE)
    target_link_options(fanin PRIVATE -Wl,-z,defs)
  endif()
endfunction()
