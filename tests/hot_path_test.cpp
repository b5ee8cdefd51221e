// What the hot path may not do: allocate per fragment or event. The operators that allocate are
// replaced by ones that count; runs of different length must then differ by next to nothing.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fanin/executive/plugins.hpp"
#include "fanin/executive/process.hpp"

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
};

// By a whole run on one loop that builds so many events of four fragments.
Made made_by_a_run(std::uint64_t events, std::string_view url, std::string_view protocol,
                   std::string_view output) {
  const auto configuration =
      config::parse(fmt::format(setup, output, events, url, protocol), "test.toml", {});
  EXPECT_TRUE(configuration) << configuration.error().text;
  const auto plugins = Plugins::load(*configuration);
  Made made;
  ProcessOptions options;
  for (std::size_t i = 0; i < configuration->nodes.size(); ++i) options.nodes.push_back(i);
  options.report = [&made](const json::Value&) { ++made.reports; };
  auto process = Process::make(*configuration, *plugins, std::move(options));
  EXPECT_TRUE(process) << process.error().text;
  const std::uint64_t before = allocations;
  const auto outcome = (*process)->run();
  made.allocations = allocations - before;
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

} // namespace
} // namespace fanin::executive
