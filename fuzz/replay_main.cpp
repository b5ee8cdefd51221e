// The main of a fuzz target in a build without libFuzzer: replays the corpus, and for each entry
// every shorter beginning and a few hundred copies with changed bytes. The changes depend on
// nothing but the entry, so that a failure repeats; the last line printed names the entry that
// ended the process.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t mutations_per_entry = 300;
constexpr std::size_t truncations_per_entry_max = 512;

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::uint64_t next_random(std::uint64_t& state) { // splitmix64
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

// A copy on the heap of exactly this size, so that AddressSanitizer or valgrind sees a read past
// the end.
void run(std::span<const std::uint8_t> input) {
  const Bytes exact(input.begin(), input.end());
  (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void mutate(Bytes& bytes, std::uint64_t& random) {
  const std::size_t changes = 1 + next_random(random) % 4;
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = next_random(random) % bytes.size();
    constexpr std::uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    const std::uint64_t choice = next_random(random);
    if (choice % 3 == 0) {
      bytes[at] = edges[(choice >> 8U) % std::size(edges)];
    } else if (choice % 3 == 1) {
      bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1U << ((choice >> 8U) % 8U)));
    } else {
      bytes[at] = static_cast<std::uint8_t>(choice >> 8U);
    }
  }
}

std::size_t replay(const Bytes& entry) {
  std::size_t inputs = 1;
  run(entry);
  const std::size_t step = std::max<std::size_t>(1, entry.size() / truncations_per_entry_max);
  for (std::size_t size = 0; size < entry.size(); size += step, ++inputs) {
    run(std::span(entry).first(size));
  }
  std::uint64_t random = entry.size();
  for (std::size_t i = 0; i < mutations_per_entry && !entry.empty(); ++i, ++inputs) {
    Bytes changed = entry;
    mutate(changed, random);
    run(changed);
  }
  return inputs;
}

} // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> entries;
  for (const char* argument : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    if (std::filesystem::is_directory(argument)) {
      for (const auto& file : std::filesystem::recursive_directory_iterator(argument)) {
        if (file.is_regular_file()) entries.push_back(file.path());
      }
    } else {
      entries.emplace_back(argument);
    }
  }
  std::sort(entries.begin(), entries.end());
  run({});
  std::size_t inputs = 1;
  for (const auto& path : entries) {
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    inputs += replay(read_file(path));
  }
  std::printf("%zu entries, %zu inputs\n", entries.size(), inputs);
  return entries.empty() ? 1 : 0;
}
