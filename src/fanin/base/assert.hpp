/// \file
/// FANIN_ASSERT checks an invariant of fanin's own code, in release builds too. If it is broken,
/// the process ends with one line. It is never used for bytes from a peer, a file or the
/// configuration: those return an Error.
#pragma once

#include "fanin/base/export.hpp"

namespace fanin::detail {
[[noreturn]] FANIN_API void assertion_failed(const char* condition, const char* file, int line);
} // namespace fanin::detail

#define FANIN_ASSERT(condition)                                                                    \
  (__builtin_expect(static_cast<bool>(condition), 1)                                               \
       ? static_cast<void>(0)                                                                      \
       : ::fanin::detail::assertion_failed(#condition, __FILE__, __LINE__))
