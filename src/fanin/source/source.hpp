/// \file
/// A source of fragments: an emulator, a recorded file, a socket, or your own hardware. This is all
/// that a plug-in has to implement (docs/plugins.md).
///
/// ```cpp
/// #include <fanin/executive/plugin.hpp>
///
/// using namespace fanin;
///
/// class Counter final : public source::Source { // each fragment is its event number
///   Result<> start(EventNumber first_event, Time) override {
///     next_ = first_event;
///     return {};
///   }
///   source::ReadResult read(source::FragmentQueue& queue, Time) override {
///     for (int i = 0; i < 100; ++i, ++next_) {
///       const auto fragment = std::as_bytes(std::span(&next_, 1));
///       if (queue.write(next_, fragment) == source::WriteOutcome::full) return {}; // it waits
///     }
///     return {.state = source::ReadState::more};
///   }
///   EventNumber next_ = 0;
/// };
///
/// FANIN_PLUGIN_ABI
///
/// extern "C" void fanin_register(executive::PluginRegistry& registry) {
///   registry.add_source("counter", [](const source::SourceSettings&)
///                                      -> Result<std::unique_ptr<source::Source>> {
///     return std::make_unique<Counter>();
///   });
/// }
/// ```
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/source/fragment_queue.hpp"

namespace fanin::source {

/// The result of a call of read().
enum class ReadState : std::uint8_t {
  more, ///< there is more to read at once: call again in this or the next turn
  waiting, ///< nothing now: call again at `wake`, or when descriptor() becomes readable, or when
           ///< the source has woken its readout unit, or when the queue has room again, or when
           ///< more numbers are wanted; after a read of less than 32 KiB the call comes up to an
           ///< eighth of event.latency later
  paused, ///< like `waiting`; and nothing comes for now, so events wait for this source only for
          ///< event.latency to twice that, until it writes again
  finished, ///< the data have ended; all numbers have been answered
  failed ///< the source cannot continue; `error` says why; it is reported and treated as finished
};

struct ReadResult {
  ReadState state = ReadState::waiting;
  Time wake = never;
  Error error{};
};

/// A counter of the source itself, in addition to those of its queue.
struct SourceCounter {
  std::string_view name; ///< of static storage
  std::uint64_t value = 0;
};

class Source {
public:
  virtual ~Source() = default;

  /// Called once, before the readout unit connects to anything. Everything that may block, such as
  /// the look-up of a host name, belongs here and not into start(). An error ends the process.
  [[nodiscard]] virtual Result<> prepare() { return {}; }

  /// Called once, after prepare(). Whenever there may be more data, the source may call `wake`,
  /// from any thread and until it is destroyed. Then ready() or read() is called soon.
  virtual void set_wake(std::function<void()> /*wake*/) {}

  /// Called until the run begins, before start() and after it: whether the run may begin now. It
  /// must not block. It is called again when the source wakes, when descriptor() becomes readable,
  /// and four times a second. While one source of the readout unit is not ready, none is read.
  [[nodiscard]] virtual bool ready(Time /*now*/) { return true; }

  /// The readout unit has joined this run. Called before start(), each time.
  virtual void joined(const RunIdentity& /*run*/) {}

  /// Called before the first read() of a run, when all sources of the readout unit are ready(), and
  /// again each time the readout unit joins a run that is under way. `first_event` is the first
  /// number that is wanted; 0 at the start of a run, where the source may begin with any number.
  [[nodiscard]] virtual Result<> start(EventNumber first_event, Time now) = 0;

  /// Writes what is there into the queue, until the queue is full or a bounded amount (some hundred
  /// KiB) is written. It must not block. Event numbers must rise. Thread: the loop of the readout
  /// unit.
  [[nodiscard]] virtual ReadResult read(FragmentQueue& queue, Time now) = 0;

  /// All events below `end` are in the ledger of the run: if one of them is lost from now on, the
  /// ledger says so. `end` is a number as the source sends it. Called when `end` may have grown. It
  /// must not block.
  virtual void announced(EventNumber /*end*/) {}

  /// True if the data can wait (a file, an emulator without a rate) and do not pile up in a
  /// detector. Then the source is read only as far ahead as builder units take events, which keeps
  /// the data in cache.
  [[nodiscard]] virtual bool on_demand() const { return false; }

  /// A descriptor that is readable when there may be more data; -1: none. It must exist after
  /// prepare() and stay the same.
  [[nodiscard]] virtual int descriptor() const { return -1; }

  /// The address at which it listens, with the real port, after prepare(); empty: none.
  [[nodiscard]] virtual std::string listening_url() const { return {}; }
  /// Counters for the result; called from time to time.
  [[nodiscard]] virtual std::vector<SourceCounter> counters() const { return {}; }
};

} // namespace fanin::source
