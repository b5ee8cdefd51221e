# <fanin/version.hpp> is made at configure time from project(VERSION). The git commit is looked up at every build
# and compiled into one small file only, so that a commit costs one compilation and one link.
set(FANIN_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
configure_file("${PROJECT_SOURCE_DIR}/cmake/version.hpp.in" "${FANIN_GENERATED_DIR}/fanin/version.hpp" @ONLY)

add_custom_target(fanin_commit
  COMMAND "${CMAKE_COMMAND}" -D "SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    -D "TEMPLATE=${PROJECT_SOURCE_DIR}/cmake/version.cpp.in"
    -D "OUTPUT=${FANIN_GENERATED_DIR}/version.cpp" -P "${PROJECT_SOURCE_DIR}/cmake/FaninCommit.cmake"
  BYPRODUCTS "${FANIN_GENERATED_DIR}/version.cpp"
  COMMENT "Looking up the git commit" VERBATIM)
