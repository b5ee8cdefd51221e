// What is asked of a run from outside: by its launcher, over a pipe, or by run control. One JSON
// object a line: {"request": "start"}.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

enum class Request : std::uint8_t {
  start, // a run that is held (config::Run::controlled) may begin
  stop, // in good order
  abort // at once
};
[[nodiscard]] FANIN_INTERNAL_API std::string_view name(Request request);
[[nodiscard]] FANIN_INTERNAL_API json::Value to_json(Request request);
// Nothing: it is none, or of a later fanin.
[[nodiscard]] FANIN_INTERNAL_API std::optional<Request> request_of(const json::Value& line);

// Makes what takes requests on a loop and gives them to `on_request` there. Both outlive it.
using TakeRequests = std::function<std::unique_ptr<net::Service>(
    net::Loop& loop, std::function<void(Request)> on_request)>;

// From a descriptor, which it takes over; exec() closes it.
[[nodiscard]] FANIN_INTERNAL_API TakeRequests requests_from(int descriptor);

} // namespace fanin::executive
