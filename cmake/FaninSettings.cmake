# Language, options, warnings, sanitizers, output folders.

option(FANIN_TESTS "Build the tests, where GoogleTest is found" ON)
option(FANIN_FUZZ "Build the fuzz targets with libFuzzer (clang); otherwise they replay their corpora" OFF)
option(FANIN_COVERAGE "Measure coverage (gcc: gcov)" OFF)
option(FANIN_WARNINGS_AS_ERRORS "A warning stops the build" ${PROJECT_IS_TOP_LEVEL})
option(FANIN_UNITY "Compile each module, and the tests of each, as one file: less than half of the time" OFF)
option(BUILD_SHARED_LIBS "Shared libraries; otherwise static ones, with the modules of RDMA linked in" ON)
option(FANIN_LINK_MODULES "Link the modules of RDMA into the library, instead of opening them when they are needed" OFF)
if(NOT BUILD_SHARED_LIBS)
  set(FANIN_LINK_MODULES ON)
endif()
set(FANIN_SANITIZE "" CACHE STRING "Sanitizers, comma separated: address,undefined or thread")

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# One file for each target: a name in an unnamed namespace is unique in its module.
set(CMAKE_UNITY_BUILD ${FANIN_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()

# build/<preset>/{bin,lib,tests}; the command finds its library beside itself wherever the tree is moved.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
# A new libfanin.so does not make every test link again.
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(FANIN_CCACHE ccache)
  if(FANIN_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER "${FANIN_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${FANIN_CCACHE}")
  endif()
endif()

# Test code is compiled for little: optimising it costs more than it saves. What is tested keeps its flags.
set(FANIN_TEST_OPTIONS -O1 -g1)
set(FANIN_COLD_OPTIONS) # of what runs once in a process
if(FANIN_SANITIZE)
  set(FANIN_TEST_OPTIONS -O0 -g1)
  set(FANIN_COLD_OPTIONS -O0)
endif()

include(CheckCXXCompilerFlag)
include(CheckLinkerFlag)
if(NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld")
  check_linker_flag(CXX "-fuse-ld=lld" FANIN_HAS_LLD)
  if(FANIN_HAS_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# A library exports what a macro marks (fanin/base/export.hpp, docs/abi.md). Calls inside a library are direct.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
add_link_options(-Wl,--as-needed)
# __FILE__ in messages is relative to the source tree, wherever that is.
add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")

set(FANIN_WARNINGS
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
  -Wold-style-cast -Woverloaded-virtual -Wcast-align -Wcast-qual -Wformat=2 -Wunused
  -Wimplicit-fallthrough -Wextra-semi -Wredundant-decls -Wmissing-declarations -Wvla
  # Designated initializers leave members at their defaults on purpose.
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND FANIN_WARNINGS -Wduplicated-cond -Wlogical-op
    -Wno-interference-size  # one cache-line size for the builds of one architecture is what is wanted
    # GCC 12 warns about its own inlining of vector, optional and expected; clang and the sanitizers watch this.
    -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-restrict -Wno-free-nonheap-object
    -Wno-maybe-uninitialized)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(REMOVE_ITEM FANIN_WARNINGS -Wmissing-declarations)  # in clang: a C-ism about typedefs
  list(APPEND FANIN_WARNINGS -Wshadow-uncaptured-local -Wunreachable-code -Wcomma -Wrange-loop-analysis)
endif()
if(FANIN_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND FANIN_WARNINGS -Wno-subobject-linkage) # takes every source in such a file for a header
endif()
if(FANIN_WARNINGS_AS_ERRORS)
  list(APPEND FANIN_WARNINGS -Werror)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${FANIN_WARNINGS}>")

if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()

if(FANIN_SANITIZE)
  string(REPLACE "," ";" sanitizers "${FANIN_SANITIZE}")
  add_compile_options(-fsanitize=${FANIN_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${FANIN_SANITIZE})
  if("undefined" IN_LIST sanitizers)
    # vptr probes memory through a pipe: in a test without free descriptors it reports objects that are sound.
    add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=vptr)
    add_link_options(-fno-sanitize-recover=undefined -fno-sanitize=vptr)
  endif()
  if("address" IN_LIST sanitizers)
    add_compile_options(-fsanitize-address-use-after-scope)
  endif()
  # A plug-in that user code opens must find the same run-time as the command.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-rdynamic>)
  endif()
endif()
if(FANIN_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "FANIN_FUZZ needs clang (preset fuzz)")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(FANIN_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()
