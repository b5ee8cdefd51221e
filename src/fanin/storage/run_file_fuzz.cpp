// A run file with any rows: verify and inspect end with a result or an error, read nothing past the
// file and allocate no more than it justifies. HDF5's own metadata stay as they are; they have
// checksums, and HDF5 is not what is tested here.
//
// The input is a list of changes: table (1 byte), place in it (2 bytes), length (1 byte), bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/descriptor.hpp"
#include "fanin/storage/inspect.hpp"
#include "fanin/storage/run_file_reader.hpp"
#include "fanin/storage/run_file_writer.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/storage/verify.hpp"

namespace fanin::storage {
namespace {

struct Table {
  std::size_t at = 0; // in the file
  std::size_t size = 0;
};

class Template {
public:
  Template() {
    const testing::TemporaryDirectory directory;
    const auto path = write(directory.path());
    std::ifstream stream(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), {});
    const auto file = RunFileReader::open(path);
    FANIN_ASSERT(file);
    auto& reader = **file;
    add<EventRow>(reader.events(), [&](auto rows) { return reader.read_events(0, rows); });
    add<FragmentRow>(reader.fragments(), [&](auto rows) { return reader.read_fragments(0, rows); });
    add<MissingRow>(reader.missing(), [&](auto rows) { return reader.read_missing(0, rows); });
    add<GapRow>(reader.gaps(), [&](auto rows) { return reader.read_gaps(0, rows); });
    add<std::byte>(reader.bytes(), [&](auto rows) { return reader.read_bytes(0, rows); });
  }
  [[nodiscard]] const std::vector<char>& bytes() const { return bytes_; }
  [[nodiscard]] std::span<const Table> tables() const { return tables_; }

private:
  static std::string write(const std::string& directory) {
    testing::BatchMaker maker(testing::make_sources(3), 64, 4096);
    auto writer = RunFileWriter::create({.directory = directory,
                                         .run = 7,
                                         .node = "bu0",
                                         .sources = maker.sources(),
                                         .started_unix_ns = 1'700'000'000'000'000'000,
                                         .bytes_chunk = 4096,
                                         .rows_chunk = 64},
                                        1);
    FANIN_ASSERT(writer);
    const auto plan = [](EventNumber event, SourceId source) {
      const bool absent = event % 8 == 7 || (event == 3 && source == 20);
      return testing::FragmentPlan{.absent = absent, .size = absent ? 0U : 40U};
    };
    auto batch = maker.make(0, {0, 24}, plan);
    batch.gaps = {{7, 8}, {15, 16}, {23, 24}};
    const std::array group = {&batch};
    FANIN_ASSERT((*writer)->append(group) && (*writer)->close());
    return (*writer)->path();
  }
  // Where a table's rows lie, by their content.
  template <class Row, class Read>
  void add(std::uint64_t count, const Read& read) {
    std::vector<Row> rows(count);
    FANIN_ASSERT(count > 0 && read(std::span(rows)));
    const auto* const begin = reinterpret_cast<const char*>(rows.data());
    const auto size = count * sizeof(Row);
    const auto found = std::search(bytes_.begin(), bytes_.end(), begin, begin + size);
    FANIN_ASSERT(found != bytes_.end());
    tables_.push_back({static_cast<std::size_t>(found - bytes_.begin()), size});
  }

  std::vector<char> bytes_;
  std::vector<Table> tables_;
};

bool write(int file, const std::vector<char>& bytes, const Table& part) {
  return ::pwrite(file, bytes.data() + part.at, part.size, static_cast<off_t>(part.at)) ==
         static_cast<ssize_t>(part.size);
}

void change(std::vector<char>& file, std::span<const Table> tables,
            std::span<const std::uint8_t> input) {
  while (input.size() > 4) {
    const auto& table = tables[input[0] % tables.size()];
    const std::size_t at = (input[1] + 256U * input[2]) % table.size;
    const std::size_t size = std::min<std::size_t>({input[3], input.size() - 4, table.size - at});
    std::memcpy(file.data() + table.at + at, input.data() + 4, size);
    input = input.subspan(4 + size);
  }
}

} // namespace
} // namespace fanin::storage

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fanin::storage;
  static const Template original;
  static const testing::TemporaryDirectory directory; // HDF5 wants a path that is real
  static const auto path = directory.path() + "/fuzz.h5";
  static const fanin::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  static const bool written = write(file.get(), original.bytes(), {0, original.bytes().size()});
  auto bytes = original.bytes();
  change(bytes, original.tables(), {data, size});
  FANIN_ASSERT(written);
  for (const auto& table : original.tables()) FANIN_ASSERT(write(file.get(), bytes, table));
  const std::array files = {path};
  const auto result = verify(files, {});
  FANIN_ASSERT(result && result->files == 1);
  FANIN_ASSERT(result->complete + result->incomplete == result->events);
  static_cast<void>(inspect_file(path));
  const fanin::EventNumber event =
      size == 0 ? 0 : data[size - 1] % 8; // with all, without one, a gap
  static_cast<void>(inspect_event(path, event, 16));
  return 0;
}
