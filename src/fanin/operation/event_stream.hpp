// Server-sent events: what happens, for pages and for `fanin ctl --wait`, in a ring. Who was away
// for a while asks for what came after the last event that it has.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "fanin/base/json.hpp"
#include "fanin/operation/http/server.hpp"

namespace fanin::operation {

// Thread: one.
class EventStream {
public:
  static constexpr std::size_t events_max = 10'000;

  // Ids begin at `first`: another one for each process, so that those of an earlier one are known
  // to be none of these.
  explicit EventStream(std::uint64_t first) : next_(first) {}

  void add(std::string_view kind, const json::Value& data);
  // Streams that have nothing to say say that they live.
  void keep_alive() { ++beats_; }

  // A stream from after the event with that id on; of one that is no longer known, or none: from
  // now on. It begins with `snapshot`, unless it continues. This outlives it.
  [[nodiscard]] HttpStream from(std::optional<std::uint64_t> last, const json::Value& snapshot);

private:
  struct Event {
    std::uint64_t id = 0;
    std::string text;
  };
  [[nodiscard]] static std::string text_of(std::uint64_t id, std::string_view kind,
                                           const json::Value& data);

  std::deque<Event> events_; // of a kind that tells all anew only the latest one has a text
  std::uint64_t status_ = 0; // the id of that one; 0: there is none
  std::uint64_t next_;
  std::uint64_t beats_ = 0;
};

} // namespace fanin::operation
