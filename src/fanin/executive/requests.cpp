#include "fanin/executive/requests.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fanin/base/descriptor.hpp"
#include "fanin/executive/child_input.hpp"

namespace fanin::executive {
namespace {

constexpr std::array request_names{std::pair{Request::start, "start"},
                                   std::pair{Request::stop, "stop"},
                                   std::pair{Request::abort, "abort"}};

} // namespace

std::string_view name(Request request) {
  return std::ranges::find(request_names, request, &decltype(request_names)::value_type::first)
      ->second;
}

json::Value to_json(Request request) { return json::Object{{"request", name(request)}}; }

std::optional<Request> request_of(const json::Value& line) {
  const std::string wanted = line.at("request").text();
  for (const auto& [request, its_name] : request_names) {
    if (wanted == its_name) return request;
  }
  return std::nullopt;
}

TakeRequests requests_from(int descriptor) {
  return [descriptor](net::Loop& loop, std::function<void(Request)> on_request) {
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
    return std::make_unique<LineInput>(
        loop, Descriptor(descriptor), [on = std::move(on_request)](std::string_view text) {
          const auto line = json::Value::parse(text);
          if (const auto request = line ? request_of(*line) : std::nullopt) on(*request);
        });
  };
}

} // namespace fanin::executive
