/// \file
/// Result<T> is a value or an Error. It is used where a failure is part of normal operation: bytes
/// from a peer, files, the operating system. Outcomes on the hot path are small enums instead.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

#include "fanin/base/export.hpp"

namespace fanin {

/// The kind of an error. It decides the exit status and the counter, never the wording.
enum class ErrorKind : std::uint8_t {
  usage, ///< configuration or command line: exit status 2
  not_found, ///< a file, node or key that does not exist
  refused, ///< no permission, port in use, refused by the peer
  malformed, ///< bytes that do not follow their format
  exhausted, ///< memory, disk or another limit is exhausted
  disconnected, ///< the peer is gone
  unsupported, ///< not built in, or not on this host
  internal ///< the operating system failed in an unexpected way
};

struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string text; ///< one line: what is wrong, where (file, key or peer), and how to fix it
};

template <class T = void>
using Result = std::expected<T, Error>;

/// Makes an error to return: return fail(ErrorKind::usage, "rate needs a unit, as in 10kHz");
[[nodiscard]] inline std::unexpected<Error> fail(ErrorKind kind, std::string text) {
  return std::unexpected(Error{kind, std::move(text)});
}

/// The text of an errno value, after what was attempted: "bind tcp://[::1]:7000: Address already in
/// use".
[[nodiscard]] FANIN_API std::unexpected<Error> fail_errno(ErrorKind kind, std::string what,
                                                          int error_number);

} // namespace fanin
