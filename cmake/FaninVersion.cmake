# <fanin/version.hpp> is made at configure time from project(VERSION). The git commit is looked up at every build
# and compiled into two small files only, so that a commit costs two compilations and the links of library and modules.
set(FANIN_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
configure_file("${PROJECT_SOURCE_DIR}/cmake/version.hpp.in" "${FANIN_GENERATED_DIR}/fanin/version.hpp" @ONLY)

set(FANIN_COMMIT_SOURCES version.cpp module_commit.cpp)
list(TRANSFORM FANIN_COMMIT_SOURCES PREPEND "${FANIN_GENERATED_DIR}/" OUTPUT_VARIABLE outputs)
add_custom_target(fanin_commit
  COMMAND "${CMAKE_COMMAND}" -D "SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    -D "NAMES=${FANIN_COMMIT_SOURCES}" -D "OUTPUT_DIR=${FANIN_GENERATED_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/FaninCommit.cmake"
  BYPRODUCTS ${outputs}
  COMMENT "Looking up the git commit" VERBATIM)
