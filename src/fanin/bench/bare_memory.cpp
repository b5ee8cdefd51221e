#include "fanin/bench/contender_ends.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "fanin/base/try.hpp"
#include "fanin/bench/payload.hpp"
#include "fanin/bench/record.hpp"
#include "fanin/bench/roundtrip.hpp"
#include "fanin/memory/arena.hpp"

namespace fanin::bench {
namespace {

constexpr std::uint64_t slots = 4;
constexpr std::uint64_t copied_set = 1U << 20; // that memcpy goes round in
constexpr int memory_spins = 1000;                    // before giving the core away

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void spin_until(auto condition) {
  for (int i = 1; !condition(); ++i) {
    if (i % memory_spins == 0) sched_yield();
    relax();
  }
}

// Memory that the processes of a group, forked afterwards, have in common. It begins with Counts.
using Shared = std::shared_ptr<memory::Arena>;

// Counters at the start of the shared memory, each in cache lines of its own.
struct Counts {
  alignas(128) std::atomic<std::uint64_t> written{0};
  alignas(128) std::atomic<std::uint64_t> read{0};
};
constexpr std::size_t data_offset = 4096;
static_assert(sizeof(Counts) <= data_offset);

Result<Shared> make_shared_memory(std::size_t size) {
  auto arena = FANIN_TRY(memory::Arena::make(data_offset + size, {.shared = true}));
  new (arena->data()) Counts;
  return Shared(std::move(arena));
}

Counts& counts_of(const memory::Arena& shared) {
  return *std::launder(reinterpret_cast<Counts*>(shared.data()));
}

// Walks pages from now on.
Result<> walk_ring(const memory::Arena& shared, const PageLayout& layout, bool read,
                   ProcessStats& stats) {
  Counts& counts = counts_of(shared);
  for (std::uint64_t i = 0;; ++i) {
    spin_until([&] { return counts.written.load(std::memory_order_acquire) > i; });
    const std::span page{shared.data() + data_offset + i % slots * layout.page(), layout.page()};
    const std::uint32_t records = walk_records(page, false, read);
    if (records == 0) return fail(ErrorKind::malformed, "a damaged record");
    counts.read.store(i + 1, std::memory_order_release);
    stats.messages.add(records);
    stats.bytes.add(std::uint64_t{records} * layout.size);
  }
}

Result<> fill_ring(const memory::Arena& shared, const PageLayout& layout, ProcessStats& stats) {
  Counts& counts = counts_of(shared);
  const PayloadSource source(layout.size);
  stats.state = ProcessStats::State::ready;
  for (std::uint64_t i = 0;; ++i) {
    spin_until([&] { return i - counts.read.load(std::memory_order_acquire) < slots; });
    copy_records({shared.data() + data_offset + i % slots * layout.page(), layout.page()}, layout,
                 source);
    counts.written.store(i + 1, std::memory_order_release);
  }
}

// A message each way: a counter that says how many there have been, and room for one.
class MemoryPipe final : public Pipe {
public:
  MemoryPipe(Shared shared, std::size_t room, std::uint64_t pipeline, bool first)
      : shared_(std::move(shared)), room_(room), pipeline_(pipeline) {
    Counts& counts = counts_of(*shared_);
    mine_ = first ? &counts.written : &counts.read;
    theirs_ = first ? &counts.read : &counts.written;
    std::byte* const data = shared_->data() + data_offset;
    out_ = first ? data : data + room_ * pipeline_;
    in_ = first ? data + room_ * pipeline_ : data;
  }
  Result<> send(std::span<const std::byte> message) override {
    memory::copy(out_ + sent_ % pipeline_ * room_, message);
    mine_->store(++sent_, std::memory_order_release);
    return {};
  }
  Result<bool> receive(Time) override {
    for (int i = 0; theirs_->load(std::memory_order_acquire) == received_; ++i) {
      if (i == memory_spins) return false;
      relax();
    }
    touch({in_ + received_ % pipeline_ * room_, 1}, false);
    ++received_;
    return true;
  }

private:
  Shared shared_;
  std::size_t room_;
  std::uint64_t pipeline_;
  std::atomic<std::uint64_t>* mine_;
  std::atomic<std::uint64_t>* theirs_;
  std::byte* out_;
  std::byte* in_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

} // namespace

Result<Ends> shared_memory_stream(const Spec& spec) {
  const PageLayout layout{spec.size, spec.page};
  const auto made = FANIN_TRY(make_shared_memory(slots * layout.page()));
  Ends ends;
  ends.listen = [shared = made, layout, read = spec.read](std::size_t,
                                                          ProcessStats& stats) -> Result<> {
    stats.state = ProcessStats::State::ready;
    return walk_ring(*shared, layout, read, stats);
  };
  ends.connect = [shared = made, layout](std::size_t, const std::vector<std::string>&,
                                         ProcessStats& stats) {
    return fill_ring(*shared, layout, stats);
  };
  return ends;
}

Result<Ends> shared_memory_roundtrip(const Spec& spec) {
  const std::size_t room = (std::size_t{spec.size} + 127) / 128 * 128;
  const std::uint64_t pipeline = trips_max(spec);
  const auto made = FANIN_TRY(make_shared_memory(2 * room * pipeline));
  Ends ends;
  ends.latency = ends.connectors_count = true;
  ends.listen = [=, shared = made](std::size_t, ProcessStats& stats) -> Result<> {
    MemoryPipe pipe{shared, room, pipeline, false};
    stats.state = ProcessStats::State::ready;
    return send_back(pipe, spec);
  };
  ends.connect = [=, shared = made](std::size_t, const std::vector<std::string>&,
                                    ProcessStats& stats) {
    MemoryPipe pipe{shared, room, pipeline, true};
    return make_trips(pipe, spec, stats);
  };
  return ends;
}

Ends one_process_stream(const Spec& spec) {
  return in_one_process([spec](ProcessStats& stats) -> Result<> {
    const PageLayout layout{spec.size, spec.page};
    const PayloadSource source(spec.size);
    std::vector<std::byte> page(layout.page());
    stats.state = ProcessStats::State::ready;
    while (true) {
      copy_records(page, layout, source);
      const std::uint32_t records = walk_records(page, false, spec.read);
      stats.messages.add(records);
      stats.bytes.add(std::uint64_t{records} * layout.size);
    }
  });
}

Ends memcpy_stream(const Spec& spec) {
  return in_one_process([spec](ProcessStats& stats) -> Result<> {
    const PayloadSource source(spec.size);
    const std::size_t count = std::max<std::size_t>(1, copied_set / spec.size);
    std::vector<std::byte> to(count * spec.size);
    stats.state = ProcessStats::State::ready;
    while (true) {
      for (std::size_t i = 0; i < count; ++i) source.fill(to.data() + i * spec.size);
      touch(to, false);
      stats.messages.add(count);
      stats.bytes.add(to.size());
    }
  });
}

} // namespace fanin::bench
