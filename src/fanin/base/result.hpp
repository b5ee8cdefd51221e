// Result<T>: a value or an Error. Used wherever a failure is part of normal life: bytes from a
// peer, files, the operating system. Outcomes on the hot path are small enums of their own instead.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace fanin {

// What kind of thing went wrong; decides the exit status and the counter, never the wording.
enum class ErrorKind : std::uint8_t {
  usage, // configuration or command line: exit status 2
  not_found, // a file, node or key that is not there
  refused, // permission, port in use, peer said no
  malformed, // bytes that do not follow their format
  exhausted, // memory, disk or another limit
  disconnected, // the peer is gone
  unsupported, // not built in, or not on this host
  internal // the operating system failed in a way not expected
};

struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string text; // one line: what, where (file, key or peer) and the mend
};

template <class T = void>
using Result = std::expected<T, Error>;

// fail(ErrorKind::usage, "rate needs a unit, as in 10kHz") reads as a return statement.
[[nodiscard]] inline std::unexpected<Error> fail(ErrorKind kind, std::string text) {
  return std::unexpected(Error{kind, std::move(text)});
}

// Text for an errno value, with what was attempted: "bind tcp://[::1]:7000: Address already in
// use".
[[nodiscard]] std::unexpected<Error> fail_errno(ErrorKind kind, std::string what, int error_number);

} // namespace fanin
