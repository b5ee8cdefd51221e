// How fast fragments are made and queued on one core: `rate` is fragments per second.
#include <benchmark/benchmark.h>

#include "fanin/source/emulator.hpp"
#include "fanin/source/hld_source.hpp"
#include "fanin/source/receive_decoder.hpp"
#include "fanin/source/testing/recorded.hpp"
#include "fanin/source/testing/sender.hpp"

namespace fanin::source {
namespace {

void emulate(benchmark::State& state, const SizeDistribution& size, bool checksum) {
  auto pool = memory::PagePool::make({.page_size = 64U << 10, .pages = 64}).value();
  FragmentQueue queue({.source = 1, .window = 1U << 16, .checksum = checksum}, *pool);
  Emulator emulator({.source = 1, .size = size});
  if (!emulator.start(0, Time{})) state.SkipWithError("start");
  for (auto _ : state) {
    (void)emulator.read(queue, Time{});
    queue.release_until(queue.next_event());
  }
  const auto fragments = static_cast<double>(queue.numbers().written());
  state.counters["rate"] = benchmark::Counter(fragments, benchmark::Counter::kIsRate);
  state.counters["bytes"] =
      benchmark::Counter(static_cast<double>(queue.position(queue.next_event())),
                         benchmark::Counter::kIsRate, benchmark::Counter::OneK::kIs1000);
}

void fixed(benchmark::State& state) {
  emulate(state, FixedSize{static_cast<std::uint32_t>(state.range(0))}, state.range(1) != 0);
}
BENCHMARK(fixed)->ArgNames({"size", "crc"})->ArgsProduct({{200, 2048, 16384}, {0, 1}});

void lognormal(benchmark::State& state) {
  const auto mean = static_cast<double>(state.range(0));
  emulate(state, LogNormalSize{mean, mean / 2}, true);
}
BENCHMARK(lognormal)->ArgName("mean")->Arg(200)->Arg(2048)->Arg(16384);

void uniform(benchmark::State& state) { emulate(state, UniformSize{100, 300}, true); }
BENCHMARK(uniform);

// One of five sources of a file in memory, in a loop.
void replay_hld(benchmark::State& state) {
  testing::HldBuilder file;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    file.event(i, i, {0xe000, 0xe001, 0xe002, 0xe003, 0x8000}, 44);
  }
  testing::QueueFixture fixture({.window = 1U << 16}, {.page_size = 64U << 10, .pages = 64});
  HldSource source({.path = {}, .address = 0xe002, .replay = {.loops = 0}},
                   FileWindow("bench.hld", file.bytes()));
  if (!source.start(0, Time{})) state.SkipWithError("start");
  for (auto _ : state) {
    (void)source.read(fixture.queue, Time{});
    fixture.queue.release_until(fixture.queue.next_event());
  }
  state.counters["rate"] = benchmark::Counter(
      static_cast<double>(fixture.queue.numbers().written()), benchmark::Counter::kIsRate);
}
BENCHMARK(replay_hld);

// What a connection brings, without the socket.
void decode_received(benchmark::State& state) {
  constexpr EventNumber count = 250;
  testing::SenderBytes sender(5);
  for (EventNumber event = 0; event < count; ++event) {
    sender.fragment(event, testing::bytes_of(static_cast<std::size_t>(state.range(0)), event));
  }
  testing::SenderBytes preface(5);
  testing::QueueFixture fixture({.source = 5, .window = 1U << 16},
                                {.page_size = 64U << 10, .pages = 256});
  ReceiveDecoder decoder(5, true);
  (void)decoder.take(preface.preface().bytes(), fixture.queue);
  for (auto _ : state) {
    fixture.queue.start(0);
    const auto taken = decoder.take(sender.bytes(), fixture.queue);
    if (taken.bytes != sender.bytes().size()) state.SkipWithError("not all taken");
  }
  state.counters["rate"] = benchmark::Counter(
      static_cast<double>(fixture.queue.numbers().written()), benchmark::Counter::kIsRate);
}
BENCHMARK(decode_received)->ArgName("size")->Arg(200)->Arg(16384);

} // namespace
} // namespace fanin::source
