// A process on a host of a list: `fanin on-host`, which speaks lines of JSON on its standard input
// and output with the process here that started it. It ends when its standard input does.
//
// It begins with {"fanin": its version}. The first line to it says what it is to do:
//   {"start": {...}}   one process of a run (host_children.hpp)
//   {"part": {...}}    one process of a benchmark (bench/remote_process.hpp)
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/executive/host_list.hpp"

namespace fanin::executive {

inline constexpr std::string_view on_host_command = "on-host";

struct HostProcess { // of a command that was started here; the descriptors do not block
  pid_t pid = 0;
  Descriptor input;
  Descriptor output;
  Descriptor errors;
};

// It dies with the calling thread's process and has a process group of its own. Whether the command
// can be run shows in what it writes. This process ignores SIGPIPE from then on. Errors: usage (a
// path of this program that a shell would change), exhausted.
[[nodiscard]] FANIN_INTERNAL_API Result<HostProcess> start_on(const Host& host);

// {"fanin": version}.
[[nodiscard]] FANIN_INTERNAL_API json::Value greeting();
// Why this program cannot work with it; empty: it can.
[[nodiscard]] FANIN_INTERNAL_API std::string wrong_greeting(const json::Value& line);

// Why a command ended before it said anything: `last` is the last line of its standard error.
[[nodiscard]] FANIN_INTERNAL_API std::string why_unreachable(const Host& host, int wait_status,
                                                             std::string_view last);

} // namespace fanin::executive
