// A source above another one. It logs during the run what the queue of the source drops. An
// exception becomes an error of this source alone.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "fanin/base/log.hpp"
#include "fanin/executive/call_watch.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/source/source.hpp"

namespace fanin::executive {

class WatchedSource final : public source::Source {
public:
  // `name`: human-readable. `loop` turns when the source wakes it, and outlives it.
  WatchedSource(std::unique_ptr<source::Source> inner, std::string name, net::Loop& loop,
                LogFunction log);

  [[nodiscard]] Result<> prepare() override;
  void set_wake(std::function<void()> wake) override;
  [[nodiscard]] bool ready(Time now) override;
  void joined(const RunIdentity& run) override;
  [[nodiscard]] Result<> start(EventNumber first_event, Time now) override;
  [[nodiscard]] source::ReadResult read(source::FragmentQueue& queue, Time now) override;
  void announced(EventNumber end) override;
  [[nodiscard]] bool on_demand() const override;
  [[nodiscard]] int descriptor() const override;
  [[nodiscard]] std::string listening_url() const override;
  [[nodiscard]] std::vector<source::SourceCounter> counters() const override;

  // Why all that it has sent last was dropped, where its numbers have fallen: more fragments than
  // a few wrong ones, or its counter seems to have wrapped, whose width was not given. Empty: it
  // was not.
  [[nodiscard]] std::string dropped_last() const;
  // It has given no fragment, skipped no number, and said neither that it pauses nor that it ends.
  [[nodiscard]] bool said_nothing() const { return !said_; }

private:
  // Of what was dropped since the last fragment was accepted, because its numbers have fallen.
  struct Fallen {
    std::uint64_t fragments = 0;
    std::uint64_t accepted = 0; // before
    EventNumber last_accepted = 0;
    int wrapped_bits = 0; // of its counter, if that seems to have wrapped; else 0
  };
  // The result of `call`, or `otherwise` if it throws; that is logged once.
  template <class Call, class Value>
  Value call_or(Call call, Value otherwise) const;
  void note_fallen(const source::FragmentQueue& queue);
  void log_dropped(const source::FragmentQueue& queue, wire::DropReason reason, Time now);
  void log_stuck(const source::FragmentQueue& queue);
  void log_doubt(const source::FragmentQueue& queue);
  [[nodiscard]] std::string described(const source::FragmentQueue& queue) const;

  std::unique_ptr<source::Source> inner_;
  std::string name_;
  net::Loop& loop_;
  LogFunction log_;
  CallWatch calls_;
  std::array<std::uint64_t, wire::drop_reasons> logged_{}; // of each reason
  std::array<Time, wire::drop_reasons> next_log_{}; // likewise
  std::uint64_t written_ = 0; // when it was last said that numbers fell
  bool stuck_logged_ = false;
  Fallen fallen_;
  bool said_ = false; // not said_nothing()
  bool in_doubt_ = false; // as it was logged
  mutable bool throw_logged_ = false;
};

} // namespace fanin::executive
