// How fast fragments are made and queued on one core: `rate` is fragments per second.
#include <benchmark/benchmark.h>

#include "fanin/source/emulator.hpp"

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
  const auto fragments = static_cast<double>(queue.written());
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

} // namespace
} // namespace fanin::source
