// Looks at events that builder units publish ([monitoring]), while somebody wants to see one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::operation {

// Where a builder unit publishes.
struct EventPlace {
  std::string builder; // its name
  std::string url;
  bool operator==(const EventPlace&) const = default;
};

// Thread: its loop, which outlives it.
class EventSampler {
public:
  EventSampler(net::Loop& loop, LogFunction log);
  ~EventSampler();

  // The latest event, or "why" there is none. From now on, and for some seconds, events are looked
  // at. `name_of`: of a source.
  [[nodiscard]] json::Value sample(const std::vector<EventPlace>& places,
                                   const std::function<std::string(SourceId)>& name_of);

private:
  class Reader;
  net::Loop& loop_;
  LogFunction log_;
  std::unique_ptr<Reader> reader_;
  net::Timer unwanted_; // nobody has asked for some time
};

} // namespace fanin::operation
