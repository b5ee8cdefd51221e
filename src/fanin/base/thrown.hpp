// An exception of a plug-in, or of a library that throws, as an error.
#pragma once

#include <exception>

#include <fmt/format.h>

#include "fanin/base/result.hpp"

namespace fanin {

// The exception that is being handled: call it only within a handler. Other kinds and a place are
// the caller's.
[[nodiscard]] inline Error thrown() {
  try {
    throw;
  } catch (const std::exception& exception) {
    return {ErrorKind::internal, fmt::format("it threw an exception: {}", exception.what())};
  } catch (...) {
    return {ErrorKind::internal, "it threw an exception that is not a std::exception"};
  }
}

} // namespace fanin
