#include "fanin/operation/event_stream.hpp"

#include <utility>

#include <fmt/format.h>

namespace fanin::operation {
namespace {

constexpr std::size_t piece_max = 64U << 10; // of many events

} // namespace

std::string EventStream::text_of(std::uint64_t id, std::string_view kind, const json::Value& data) {
  return fmt::format("id: {}\nevent: {}\ndata: {}\n\n", id, kind, data.dump());
}

void EventStream::add(std::string_view kind, const json::Value& data) {
  if (kind == "status") {
    const std::uint64_t kept = next_ - events_.size();
    if (status_ >= kept && status_ != 0) events_[status_ - kept].text.clear();
    status_ = next_;
  }
  events_.push_back({next_, text_of(next_, kind, data)});
  ++next_;
  if (events_.size() > events_max) events_.pop_front();
}

HttpStream EventStream::from(std::optional<std::uint64_t> last, const json::Value& snapshot) {
  const std::uint64_t oldest = next_ - events_.size();
  const bool continues = last && *last + 1 >= oldest && *last < next_;
  std::uint64_t at = continues ? *last + 1 : next_;
  std::string first = continues ? "" : text_of(next_ - 1, "status", snapshot);
  return [this, at, begin = std::move(first), seen = beats_]() mutable {
    std::string text = std::exchange(begin, "");
    const std::uint64_t kept = next_ - events_.size();
    if (at < kept) at = kept; // it was too slow: the next status has all that counts
    for (; at < next_ && text.size() < piece_max; ++at) text += events_[at - kept].text;
    if (text.empty() && seen != beats_) text = ": \n\n";
    seen = beats_;
    return text;
  };
}

} // namespace fanin::operation
