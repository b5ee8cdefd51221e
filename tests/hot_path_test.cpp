// What the hot path may not do: allocate per fragment or event. The operators that allocate are
// replaced by ones that count; runs of different length must then differ by next to nothing.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/executive/plugins.hpp"
#include "fanin/executive/process.hpp"
#include "fanin/executive/requests.hpp"

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t whole = (size + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, whole == 0 ? alignment : whole);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

} // namespace

void* operator new(std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace fanin::executive {
namespace {

constexpr const char* setup = R"(
[run]
output = "{}"
events = {}
[network]
url = "{}"
protocol = "{}"
[buffers]
readout = "8MiB"
builder = "32MiB"
huge_pages = "off"
[source]
type = "emulator"
size_mean = "200B"
size_sigma = "100B"
fragment_max = "16KiB"
[[readout]]
count = 2
source = [{{ id = 1, count = 2 }}]
[[builder]]
count = 2
)";

struct Made {
  std::uint64_t allocations = 0;
  std::uint64_t reports = 0; // two a second, however long the machine takes
  std::uint64_t calls = 0; // of read() and write()
  std::uint64_t sleeps = 0; // of the thread: each ends with a wake-up
};

// So far, by this process.
std::uint64_t reads_and_writes() {
  std::ifstream io("/proc/self/io");
  std::uint64_t sum = 0;
  std::string key;
  for (std::uint64_t value = 0; io >> key >> value;) {
    if (key == "syscr:" || key == "syscw:") sum += value;
  }
  return sum;
}

std::uint64_t sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_nvcsw);
}

// By a whole run on one loop that builds so many events of four fragments. `controlled`: run
// control has started it.
Made made_by_a_run(std::uint64_t events, std::string_view url, std::string_view protocol,
                   std::string_view output, bool controlled = false,
                   const std::vector<std::string>& overrides = {}) {
  auto configuration =
      config::parse(fmt::format(setup, output, events, url, protocol), "test.toml", overrides);
  EXPECT_TRUE(configuration) << configuration.error().text;
  configuration->run.controlled = controlled;
  const auto plugins = Plugins::load(*configuration);
  Made made;
  ProcessOptions options;
  for (std::size_t i = 0; i < configuration->nodes.size(); ++i) options.nodes.push_back(i);
  options.report = [&made](const json::Value&) { ++made.reports; };
  std::array<int, 2> requests{};
  EXPECT_EQ(pipe(requests.data()), 0);
  const Descriptor ask(requests[1]);
  const Descriptor asked(requests[0]);
  if (controlled) {
    const std::string line = to_json(Request::start).dump() + "\n";
    EXPECT_EQ(write(ask.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    options.requests = requests_from(dup(asked.get()));
  }
  auto process = Process::make(*configuration, *plugins, std::move(options));
  EXPECT_TRUE(process) << process.error().text;
  const Made before{.allocations = allocations, .calls = reads_and_writes(), .sleeps = sleeps()};
  const auto outcome = (*process)->run();
  made.allocations = allocations - before.allocations;
  made.calls = reads_and_writes() - before.calls;
  made.sleeps = sleeps() - before.sleeps;
  EXPECT_TRUE(outcome) << outcome.error().text;
  EXPECT_TRUE((*process)->succeeded());
  return made;
}

void expect_none_per_event(std::uint64_t few, std::uint64_t many, std::string_view url,
                           std::string_view protocol, std::string_view output = "discard") {
  constexpr double each_report = 100;
  SCOPED_TRACE(fmt::format("{} {} {}", url, protocol, output));
  const Made start = made_by_a_run(few, url, protocol, output);
  const Made longer = made_by_a_run(many, url, protocol, output);
  const double of_events =
      static_cast<double>(longer.allocations) - static_cast<double>(start.allocations) -
      each_report * (static_cast<double>(longer.reports) - static_cast<double>(start.reports));
  EXPECT_LT(of_events / static_cast<double>(many - few), 0.002)
      << start.allocations << " allocations and " << start.reports << " reports for " << few
      << " events, " << longer.allocations << " and " << longer.reports << " for " << many;
}

TEST(HotPath, allocates_nothing_per_fragment_or_event) {
  for (const char* url : {"inproc://", "tcp://127.0.0.1", "shm://"}) {
    for (const char* protocol : {"push", "pull"}) {
      expect_none_per_event(100'000, 500'000, url, protocol);
    }
  }
}

// What HDF5 allocates for itself, in C, is not counted: it is per chunk of a file.
TEST(HotPath, allocates_nothing_per_event_that_is_stored) {
  std::string folder = ::testing::TempDir() + "/fanin_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  expect_none_per_event(50'000, 250'000, "inproc://", "push", folder);
  std::filesystem::remove_all(folder);
}

// What a run makes more if it builds 400 000 events more, in batches of 16.
Made made_by_batches(bool controlled) {
  const auto made_by = [&](std::uint64_t events) {
    return made_by_a_run(events, "inproc://", "push", "discard", controlled,
                         {"event.batch_events=16"});
  };
  const Made few = made_by(20'000);
  const Made many = made_by(420'000);
  const auto more = [](std::uint64_t of_many, std::uint64_t of_few) {
    return of_many - std::min(of_many, of_few);
  };
  return {.allocations = more(many.allocations, few.allocations),
          .reports = more(many.reports, few.reports),
          .calls = more(many.calls, few.calls),
          .sleeps = more(many.sleeps, few.sleeps)};
}

// It costs reports, which are per second. A turn of the loop has some 15 of these batches.
TEST(HotPath, run_control_that_shows_a_run_costs_nothing_per_batch) {
  constexpr std::uint64_t few = 400'000 / 16 / 50; // compared with batches and turns
  constexpr std::uint64_t each_report = 100; // allocations, at most
  const Made plain = made_by_batches(false);
  const Made shown = made_by_batches(true);
  EXPECT_LT(shown.reports, plain.reports + few);
  EXPECT_LT(shown.allocations, plain.allocations + few + each_report * shown.reports);
  EXPECT_LT(shown.calls, plain.calls + few);
  EXPECT_LT(shown.sleeps, plain.sleeps + few);
}

} // namespace
} // namespace fanin::executive
