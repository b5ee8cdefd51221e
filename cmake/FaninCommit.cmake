# Script: writes each of NAMES into OUTPUT_DIR from its template beside this file, with the commit of SOURCE_DIR; a "+" marks changes that are not committed.
set(FANIN_COMMIT "unknown")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS "${SOURCE_DIR}/.git")
  execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${SOURCE_DIR}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    set(FANIN_COMMIT "${commit}")
    execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${SOURCE_DIR}" --no-optional-locks diff --quiet HEAD
      RESULT_VARIABLE status ERROR_QUIET)
    if(NOT status EQUAL 0)
      string(APPEND FANIN_COMMIT "+")
    endif()
  endif()
endif()
foreach(name IN LISTS NAMES)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/${name}.in" "${OUTPUT_DIR}/${name}" @ONLY)
endforeach()
