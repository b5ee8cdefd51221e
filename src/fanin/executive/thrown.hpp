// What a plug-in throws, as an error.
#pragma once

#include <exception>

#include <fmt/format.h>

#include "fanin/base/result.hpp"

namespace fanin::executive {

// Only in a handler of an exception: that one.
[[nodiscard]] inline Error thrown() {
  try {
    throw;
  } catch (const std::exception& exception) {
    return {ErrorKind::internal, fmt::format("it threw an exception: {}", exception.what())};
  } catch (...) {
    return {ErrorKind::internal, "it threw an exception that is not a std::exception"};
  }
}

} // namespace fanin::executive
