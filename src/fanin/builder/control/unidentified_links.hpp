// Connections that were accepted and have not said hello. Whoever connects and says nothing may
// not stay for ever.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "fanin/net/link.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::builder {

// Thread: the loop's.
class UnidentifiedLinks {
public:
  // `on_silent` gets each connection that has said no hello for `deadline`, to close it. It is
  // removed before.
  UnidentifiedLinks(net::Loop& loop, Duration deadline, std::function<void(net::Link)> on_silent)
      : loop_(loop),
        deadline_(deadline),
        on_silent_(std::move(on_silent)),
        tick_([this] { check(); }) {}

  void add(net::Link link) {
    const Time now = loop_.now();
    if (entries_.empty()) tick_.start(loop_, now + deadline_);
    entries_.push_back({link, now});
  }
  // It has said hello, or is closed. No effect if it is not here.
  void remove(net::Link link) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.link == link; });
  }
  void close_all() {
    for (Entry& entry : std::exchange(entries_, {})) entry.link.close(true);
  }

private:
  struct Entry {
    net::Link link;
    Time since;
  };

  void check() {
    const Time now = loop_.now();
    while (!entries_.empty() && now - entries_.front().since >= deadline_) {
      const net::Link link = entries_.front().link;
      entries_.pop_front();
      on_silent_(link);
    }
    if (!entries_.empty()) tick_.start(loop_, entries_.front().since + deadline_);
  }

  net::Loop& loop_;
  Duration deadline_;
  std::function<void(net::Link)> on_silent_;
  net::Timer tick_; // runs while there are some, or there were
  std::deque<Entry> entries_; // oldest first
};

} // namespace fanin::builder
