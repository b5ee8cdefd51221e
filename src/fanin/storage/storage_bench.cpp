// How fast run files are written, beside dd of the same amount on the same disk. Interleaved:
//   build/release/bench/fanin_storage_microbench --benchmark_enable_random_interleaving=true
// FANIN_BENCH_DIR names the directory (default: the current one), FANIN_BENCH_SIZE the bytes of
// each run (default: 2 GiB). Nothing stays behind.
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include "fanin/memory/page_pool.hpp"
#include "fanin/storage/file_sink.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::storage {
namespace {

constexpr std::uint32_t page_size = 256U << 10;
constexpr std::uint32_t pages = 256;      // 64 MiB of buffers, as a builder unit might have
constexpr std::uint32_t sources = 8;
constexpr std::uint64_t batch_bytes = 2U << 20;

std::string directory() {
  const char* const chosen = std::getenv("FANIN_BENCH_DIR");
  return chosen != nullptr ? chosen : ".";
}

std::uint64_t amount() {
  const char* const chosen = std::getenv("FANIN_BENCH_SIZE");
  return chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 2ULL << 30;
}

using Clock = std::chrono::steady_clock;

// What was written before is on the disk: each run begins with as little to write back as the
// others.
Clock::time_point start_clean() {
  ::sync();
  return Clock::now();
}

void report(benchmark::State& state, Clock::time_point start, std::uint64_t bytes) {
  state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
}

void dd(benchmark::State& state, const std::string& flags) {
  const auto file = directory() + "/fanin-bench.dd";
  const auto command = fmt::format("dd if=/dev/zero of={} bs=4M count={} {} 2>/dev/null", file,
                                   amount() >> 22, flags);
  for (auto _ : state) {
    const auto start = start_clean();
    if (std::system(command.c_str()) != 0) state.SkipWithError("dd failed");
    report(state, start, amount() >> 22 << 22);
  }
  std::filesystem::remove(file);
}

// Pages of fragments of one size, filled once; each batch takes the next ones in turn, so that the
// whole pool is the working set.
class Batches {
public:
  explicit Batches(std::uint32_t fragment_size)
      : pool_(
            memory::PagePool::make({.page_size = page_size, .pages = pages, .arena = {}}).value()) {
    const auto entry_size = static_cast<std::uint32_t>(sizeof(wire::FragmentEntry));
    count_ = page_size / (fragment_size + entry_size);
    const std::vector<wire::FragmentEntry> table(count_,
                                                 {.size_and_flags = fragment_size, .crc32c = 1});
    for (std::uint32_t i = 0; i < pages; ++i) {
      const auto loan = pool_->take();
      std::memset(loan.data(), static_cast<int>(i), page_size);
      std::memcpy(loan.data(), table.data(), count_ * entry_size);
      tables_.push_back(loan.freeze(0, count_ * entry_size));
      payloads_.push_back(loan.freeze(count_ * entry_size, count_ * fragment_size));
    }
  }
  static std::vector<SourceInfo> source_table() {
    std::vector<SourceInfo> table;
    for (SourceId id = 0; id < sources; ++id)
      table.push_back({.id = id, .name = {}, .readout_unit = {}});
    return table;
  }
  void next(BuiltBatch& batch) {
    const auto rounds =
        std::max<std::uint64_t>(1, batch_bytes / (sources * std::uint64_t{page_size}));
    batch.range = {event_, event_ + rounds * count_};
    for (SourceId source = 0; source < sources; ++source) {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const auto first = event_ + round * count_;
        batch.pieces.push_back({.source = source,
                                .range = {first, first + count_},
                                .table = tables_[page_],
                                .payload = payloads_[page_],
                                .payload_offset = 0});
        page_ = (page_ + 1) % pages;
        bytes_ += payloads_[page_].size;
      }
    }
    event_ = batch.range.end;
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

private:
  std::uint32_t count_ = 0;
  std::unique_ptr<memory::PagePool> pool_;
  std::vector<memory::View> tables_;
  std::vector<memory::View> payloads_;
  std::size_t page_ = 0;
  EventNumber event_ = 0;
  std::uint64_t bytes_ = 0;
};

void drive(FileSink& sink) {
  if (sink.poll() || !sink.arm()) return;
  pollfd waiting{.fd = sink.descriptor(), .events = POLLIN, .revents = 0};
  ::poll(&waiting, 1, -1);
}

void write_run(FileSink& sink, Batches& batches) {
  BuiltBatch batch;
  while (batches.bytes() < amount()) {
    batches.next(batch);
    while (sink.submit(batch) == SubmitOutcome::busy) drive(sink);
  }
  sink.finish();
  while (!sink.finished()) drive(sink);
}

void sink(benchmark::State& state, CommitMode commit, bool direct, bool reserve) {
  const auto place = directory() + "/fanin-bench";
  for (auto _ : state) {
    std::filesystem::create_directories(place);
    Batches batches(static_cast<std::uint32_t>(state.range(0)));
    FileSinkOptions options;
    options.file.directory = place;
    options.file.node = "bu0";
    options.file.sources = Batches::source_table();
    options.file.commit = commit;
    options.file.direct = direct;
    options.file.reserve = reserve;
    options.depth = 24; // 48 MiB of the 64
    const auto start = start_clean();
    auto made = FileSink::make(std::move(options));
    if (!made || !(*made)->start()) throw std::runtime_error("no sink");
    (*made)->on_failure([&](const Error& error, bool) { state.SkipWithError(error.text.c_str()); });
    write_run(**made, batches);
    report(state, start, batches.bytes());
    state.counters["commits"] = static_cast<double>((*made)->commits());
    made->reset();
    std::filesystem::remove_all(place);
  }
}

// From submit() to the commit callback, one event of 8 fragments of 2 KiB at a time: what storage
// adds to the latency at a low rate.
void latency(benchmark::State& state, CommitMode commit) {
  const auto place = directory() + "/fanin-bench";
  std::filesystem::create_directories(place);
  {
    constexpr std::uint32_t fragment_size = 2048;
    Batches batches(fragment_size);
    FileSinkOptions options;
    options.file.directory = place;
    options.file.node = "bu0";
    options.file.sources = Batches::source_table();
    options.file.commit = commit;
    auto made = FileSink::make(std::move(options));
    if (!made || !(*made)->start()) throw std::runtime_error("no sink");
    std::uint64_t committed = 0;
    (*made)->on_commit([&](const Committed&) { ++committed; });
    BuiltBatch batch;
    std::uint64_t submitted = 0;
    for (auto _ : state) {
      batches.next(batch);
      batch.range.end = batch.range.first + 1;
      for (auto& piece : batch.pieces) {
        piece.range = batch.range;
        piece.table = piece.table.subview(0, sizeof(wire::FragmentEntry));
        piece.payload = piece.payload.subview(0, fragment_size);
      }
      if ((*made)->submit(batch) == SubmitOutcome::accepted) ++submitted;
      while (committed < submitted) drive(**made);
    }
    (*made)->finish();
    while (!(*made)->finished()) drive(**made);
  }
  std::filesystem::remove_all(place);
}
BENCHMARK_CAPTURE(latency, written, CommitMode::written)
    ->UseRealTime()
    ->Iterations(200)
    ->Repetitions(7);
BENCHMARK_CAPTURE(latency, synced, CommitMode::synced)
    ->UseRealTime()
    ->Iterations(50)
    ->Repetitions(7);

#define FANIN_STORAGE_BENCH(benchmark_call)                                                        \
  benchmark_call->Iterations(1)->Repetitions(7)->UseManualTime()->Unit(benchmark::kMillisecond)

FANIN_STORAGE_BENCH(BENCHMARK_CAPTURE(dd, written, ""));
FANIN_STORAGE_BENCH(BENCHMARK_CAPTURE(dd, synced, "conv=fsync"));
FANIN_STORAGE_BENCH(BENCHMARK_CAPTURE(sink, written, CommitMode::written, true, true))
    ->Arg(200)
    ->Arg(16384);
FANIN_STORAGE_BENCH(BENCHMARK_CAPTURE(sink, synced, CommitMode::synced, true, true))
    ->Arg(200)
    ->Arg(16384);
FANIN_STORAGE_BENCH(BENCHMARK_CAPTURE(sink, written_gathered, CommitMode::written, false, true))
    ->Arg(16384);
FANIN_STORAGE_BENCH(BENCHMARK_CAPTURE(sink, written_not_reserved, CommitMode::written, true, false))
    ->Arg(16384);
FANIN_STORAGE_BENCH(BENCHMARK_CAPTURE(sink, synced_not_reserved, CommitMode::synced, true, false))
    ->Arg(16384);

} // namespace
} // namespace fanin::storage
