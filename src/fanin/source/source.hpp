// A source of fragments: an emulator, a recorded file, a socket, or one's own hardware. The
// smallest interface that a plug-in has to implement.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/source/fragment_queue.hpp"

namespace fanin::source {

// What a call of read() leaves behind.
enum class ReadState : std::uint8_t {
  more,     // there is more to read at once: call again in this or the next turn
  waiting, // nothing now: call again at `wake`, or when descriptor() becomes readable, or when the
           // queue has room again
  finished, // the data have come to their end; all numbers have been answered
  failed // cannot go on; `error` says why; treated as finished and reported
};

struct ReadResult {
  ReadState state = ReadState::waiting;
  Time wake = never;
  Error error{};
};

// Something that a source counts, besides what its queue counts.
struct SourceCounter {
  std::string_view name; // of static storage
  std::uint64_t value = 0;
};

class Source {
public:
  virtual ~Source() = default;

  // Before the first read(), once per run and after every rejoin. `first_event` is the first number
  // that is wanted: 0 at the start of a run, where the source may begin with any number; later ones
  // when the readout unit joins a run that is under way.
  [[nodiscard]] virtual Result<> start(EventNumber first_event, Time now) = 0;

  // Writes what is there into the queue, until the queue is full or a bounded amount (some hundred
  // KiB) is done. Never blocks. Thread: the loop of the readout unit.
  [[nodiscard]] virtual ReadResult read(FragmentQueue& queue, Time now) = 0;

  // True if its data wait for us (a file, an emulator without a rate) rather than pile up in a
  // detector: then it is read no further ahead than the builder units take, which keeps what is
  // under way in cache.
  [[nodiscard]] virtual bool on_demand() const { return false; }

  // Readable when there may be more; -1: none.
  [[nodiscard]] virtual int descriptor() const { return -1; }

  // Where it listens, with the real port, after start(); empty: nowhere.
  [[nodiscard]] virtual std::string listening_url() const { return {}; }
  // For the progress line and the ledger's remarks; called now and then.
  [[nodiscard]] virtual std::vector<SourceCounter> counters() const { return {}; }
};

} // namespace fanin::source
