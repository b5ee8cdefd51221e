// What a run file holds, byte for byte, as written by RunFileWriter and read by RunFileReader.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/storage/detail/hdf5.hpp"
#include "fanin/storage/detail/run_file_header.hpp"
#include "fanin/storage/run_file_reader.hpp"
#include "fanin/storage/run_file_writer.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::storage {
namespace {

using testing::BatchMaker;
using testing::FragmentPlan;
using ::testing::HasSubstr;
using testing::make_sources;
using testing::payload_of;
using testing::TemporaryDirectory;
using testing::varied_plan;

class RunFile : public ::testing::Test {
protected:
  RunFileOptions options() const {
    return {.directory = directory.path(),
            .run = 42,
            .node = "bu0",
            .node_index = 7,
            .incarnation = 3,
            .sources = maker.sources(),
            .started_unix_ns = 1'763'712'098'000'000'000,
            .bytes_chunk = 65536, // many chunks
            .rows_chunk = 64};
  }
  std::unique_ptr<RunFileWriter> create(const RunFileOptions& chosen) {
    auto writer = RunFileWriter::create(chosen, 1);
    if (!writer) {
      ADD_FAILURE() << writer.error().text;
      return nullptr;
    }
    return std::move(*writer);
  }
  static void append(RunFileWriter& writer, const BuiltBatch& batch) {
    const std::array group = {&batch};
    const auto done = writer.append(group);
    ASSERT_TRUE(done) << done.error().text;
  }
  static std::unique_ptr<RunFileReader> open(const std::string& path) {
    auto reader = RunFileReader::open(path);
    if (!reader) {
      ADD_FAILURE() << reader.error().text;
      return nullptr;
    }
    return std::move(*reader);
  }
  // Every fragment of every event as planned.
  void expect_all(RunFileReader& reader, EventNumber first, EventNumber end,
                  const testing::Plan& plan = varied_plan) {
    ASSERT_EQ(reader.events(), end - first);
    std::uint64_t fragment = 0;
    const auto read = reader.for_each_event([&](std::uint64_t index, const EventRow& row) {
      EXPECT_EQ(row.event, first + index);
      EXPECT_EQ(row.first_fragment, fragment);
      EXPECT_EQ(row.fragment_count, maker.sources().size());
      EXPECT_EQ(row.flags, 0U);
      EXPECT_EQ(row.node, 7);
      EXPECT_EQ(row.incarnation, 3U);
      fragment += row.fragment_count;
      const auto fragments = reader.fragments_of(row);
      if (!fragments) ADD_FAILURE() << fragments.error().text;
      if (!fragments) return false;
      std::uint64_t size = 0;
      for (std::size_t i = 0; i < fragments->size(); ++i) {
        const auto& own = (*fragments)[i];
        EXPECT_EQ(own.source, maker.sources()[i].id);
        const auto expected = payload_of(row.event, own.source, plan(row.event, own.source).size);
        EXPECT_EQ(own.size, expected.size());
        EXPECT_EQ(own.crc32c, wire::crc32c(expected));
        const auto bytes = reader.bytes_of(own);
        EXPECT_TRUE(bytes && *bytes == expected) << row.event << " " << own.source;
        size += own.size;
      }
      EXPECT_EQ(row.size, size);
      return !HasFailure();
    });
    EXPECT_TRUE(read) << read.error().text;
  }

  TemporaryDirectory directory;
  BatchMaker maker{make_sources(3)};
};

TEST_F(RunFile, keeps_every_fragment_byte_for_byte) {
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  for (EventNumber first = 0; first < 1000; first += 100) {
    append(*writer, maker.make(first, {first, first + 100}));
  }
  ASSERT_TRUE(writer->close());
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader);
  EXPECT_TRUE(reader->info().finished);
  expect_all(*reader, 0, 1000);
}

TEST_F(RunFile, through_hdf5_holds_the_same_as_directly) {
  auto chosen = options();
  chosen.direct = false;
  const auto writer = create(chosen);
  ASSERT_TRUE(writer);
  for (EventNumber first = 0; first < 300; first += 100) {
    append(*writer, maker.make(first, {first, first + 100}));
  }
  ASSERT_TRUE(writer->close());
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader);
  expect_all(*reader, 0, 300);
}

TEST_F(RunFile, commits_several_batches_together) {
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  const auto a = maker.make(1, {0, 50});
  const auto b = maker.make(2, {50, 51});
  const auto c = maker.make(3, {51, 120});
  const std::array group = {&a, &b, &c};
  ASSERT_TRUE(writer->append(group));
  ASSERT_TRUE(writer->close());
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader);
  expect_all(*reader, 0, 120);
}

TEST_F(RunFile, keeps_fragments_that_span_many_pages) {
  const auto plan = [](EventNumber event, SourceId source) {
    return FragmentPlan{.absent = false,
                        .size = source == 20 ? 150'000U : 17U + static_cast<std::uint32_t>(event)};
  };
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  append(*writer, maker.make(0, {0, 4}, plan));
  ASSERT_TRUE(writer->close());
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader);
  expect_all(*reader, 0, 4, plan);
}

TEST_F(RunFile, says_what_it_is) {
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  EXPECT_EQ(std::filesystem::path(writer->path()).filename(), "run000042_bu0_i3_0001.h5");
  ASSERT_TRUE(writer->close());
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader);
  const auto& info = reader->info();
  EXPECT_EQ(info.run, 42U);
  EXPECT_EQ(info.node, "bu0");
  EXPECT_EQ(info.node_index, 7);
  EXPECT_EQ(info.incarnation, 3U);
  EXPECT_EQ(info.part, 1U);
  EXPECT_TRUE(info.integrity);
  EXPECT_EQ(info.started_utc, "2025-11-21T08:01:38Z");
  ASSERT_EQ(info.sources.size(), 3U);
  EXPECT_EQ(info.sources[1].id, 20U);
  EXPECT_EQ(info.sources[1].name, "source-20");
  EXPECT_EQ(info.sources[1].readout_unit, "ru1");
  EXPECT_TRUE(info.sources[1].required);
}

TEST_F(RunFile, says_when_the_run_began_which_is_known_later_and_when_its_events_were) {
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->set_started(1'763'712'100'500'000'000));
  auto first = maker.make(1, {0, 4});
  auto second = maker.make(2, {4, 8});
  first.time_unix_ns = 1'763'712'100'600'000'001;
  second.time_unix_ns = -5;
  append(*writer, first);
  append(*writer, second);
  const auto check = [&](const char* when) {
    SCOPED_TRACE(when);
    const auto reader = open(writer->path());
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->info().started_unix_ns, 1'763'712'100'500'000'000);
    EXPECT_EQ(reader->info().started_utc, "2025-11-21T08:01:40Z");
    std::vector<std::int64_t> times;
    ASSERT_TRUE(reader->for_each_event([&](std::uint64_t, const EventRow& row) {
      times.push_back(row.time_unix_ns);
      return true;
    }));
    ASSERT_EQ(times.size(), 8U);
    EXPECT_EQ(times[3], first.time_unix_ns);
    EXPECT_EQ(times[4], second.time_unix_ns);
  };
  check("while it is written");
  ASSERT_TRUE(writer->close());
  check("closed");
  EXPECT_EQ(detail::format_utc(-5, 9), "1969-12-31T23:59:59.999999995Z");
}

TEST_F(RunFile, keeps_what_the_run_was) {
  auto chosen = options();
  chosen.configuration = "[run]\nseed = 1\n" + std::string(100'000, '#') + "\n";
  chosen.comment = "beam at 150 GeV, \u00b5 only";
  chosen.metadata = {
      {"crew", std::string("Ana, Bo")}, {"empty", std::string()}, {"hv on", true}, {"off", false},
      {"shift", std::int64_t{-3}},      {"temperature", 21.5}};
  const auto writer = create(chosen);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->close());
  const auto info = open(writer->path())->info();
  EXPECT_EQ(info.configuration, chosen.configuration);
  EXPECT_EQ(info.comment, chosen.comment);
  ASSERT_EQ(info.metadata.size(), chosen.metadata.size());
  for (std::size_t i = 0; i < info.metadata.size(); ++i) {
    EXPECT_EQ(info.metadata[i].key, chosen.metadata[i].key);
    EXPECT_EQ(info.metadata[i].value, chosen.metadata[i].value) << info.metadata[i].key;
  }
}

// Of an HDF5 file: its attributes are replaced, its tables taken out.
class Header {
public:
  explicit Header(const std::string& path) {
    const detail::Handle access{H5Pcreate(H5P_FILE_ACCESS), H5Pclose};
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    file_ = detail::Handle{H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()), H5Fclose};
  }
  void remove(const char* attribute) { EXPECT_GE(H5Adelete(file_.get(), attribute), 0); }
  void unlink(const char* table) { EXPECT_GE(H5Ldelete(file_.get(), table, H5P_DEFAULT), 0); }
  void make(const char* table, hid_t type, int dimensions) {
    unlink(table);
    std::array<hsize_t, H5S_MAX_RANK> size{};
    size.fill(1);
    const detail::Handle space{H5Screate_simple(dimensions, size.data(), nullptr), H5Sclose};
    const detail::Handle made{
        H5Dcreate2(file_.get(), table, type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
        H5Dclose};
    EXPECT_TRUE(made);
  }
  // Big-endian, and the end before the beginning.
  void make_chunked(const char* table, const std::vector<GapRow>& rows) {
    unlink(table);
    const detail::Handle type{H5Tcreate(H5T_COMPOUND, sizeof(GapRow)), H5Tclose};
    H5Tinsert(type.get(), "end", 0, H5T_STD_U64BE);
    H5Tinsert(type.get(), "first", 8, H5T_STD_U64BE);
    const hsize_t count = rows.size();
    const detail::Handle space{H5Screate_simple(1, &count, nullptr), H5Sclose};
    const detail::Handle layout{H5Pcreate(H5P_DATASET_CREATE), H5Pclose};
    H5Pset_chunk(layout.get(), 1, &count);
    const detail::Handle made{H5Dcreate2(file_.get(), table, type.get(), space.get(), H5P_DEFAULT,
                                         layout.get(), H5P_DEFAULT),
                              H5Dclose};
    EXPECT_GE(H5Dwrite(made.get(), detail::gap_row_type().get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                       rows.data()),
              0);
  }
  void set(const char* attribute, std::int64_t value) {
    replace(attribute, H5T_NATIVE_INT64, &value);
  }
  void set(const char* attribute, const std::string& value) {
    replace(attribute, detail::fixed_string_type(value.size()).get(), value.data());
  }
  void link_elsewhere(const char* table) {
    unlink(table);
    EXPECT_GE(H5Lcreate_external("other.h5", table, file_.get(), table, H5P_DEFAULT, H5P_DEFAULT),
              0);
  }
  void store_elsewhere(const char* table) {
    unlink(table);
    const hsize_t count = 4;
    const detail::Handle space{H5Screate_simple(1, &count, nullptr), H5Sclose};
    const detail::Handle layout{H5Pcreate(H5P_DATASET_CREATE), H5Pclose};
    H5Pset_external(layout.get(), "/etc/passwd", 0, count);
    const detail::Handle made{H5Dcreate2(file_.get(), table, H5T_STD_U8LE, space.get(), H5P_DEFAULT,
                                         layout.get(), H5P_DEFAULT),
                              H5Dclose};
    EXPECT_TRUE(made);
  }
  // As many values as overwrite whatever lies behind room for one.
  void set_many_numbers(const char* attribute) {
    const std::vector<std::int64_t> values(4096, 1);
    replace(attribute, H5T_NATIVE_INT64, values.data(), values.size());
  }
  void set_many_texts(const char* attribute) {
    const std::vector<char> values(65536, 'x');
    replace(attribute, detail::fixed_string_type(16).get(), values.data(), values.size() / 16);
  }
  void set_variable(const char* attribute, const char* value) {
    const detail::Handle type{H5Tcopy(H5T_C_S1), H5Tclose};
    H5Tset_size(type.get(), H5T_VARIABLE);
    replace(attribute, type.get(), static_cast<const void*>(&value));
  }

private:
  void replace(const char* attribute, hid_t type, const void* value, hsize_t count = 1) {
    remove(attribute);
    const detail::Handle space{
        count == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr), H5Sclose};
    const detail::Handle made{
        H5Acreate2(file_.get(), attribute, type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose};
    EXPECT_GE(H5Awrite(made.get(), type, value), 0);
  }
  detail::Handle file_;
};

TEST_F(RunFile, whose_header_is_not_as_it_should_be_is_refused_by_name) {
  const auto writer = create(options());
  ASSERT_TRUE(writer && writer->close());
  const auto odd = directory.path() + "/odd.h5";
  const auto opened = [&](const std::function<void(Header&)>& change) {
    std::filesystem::copy_file(writer->path(), odd,
                               std::filesystem::copy_options::overwrite_existing);
    {
      const detail::Hdf5Guard guard;
      Header header(odd);
      change(header);
    }
    return RunFileReader::open(odd);
  };
  const auto expect = [&](const char* what, const std::function<void(Header&)>& change,
                          ErrorKind kind = ErrorKind::malformed) {
    const auto file = opened(change);
    ASSERT_FALSE(file) << what;
    EXPECT_THAT(file.error().text, HasSubstr(what));
    EXPECT_THAT(file.error().text, HasSubstr(odd));
    EXPECT_EQ(file.error().kind, kind) << what;
  };
  EXPECT_TRUE(opened([](Header&) {}));
  expect("not a run file", [](Header& header) { header.remove("format"); });
  expect("not a run file", [](Header& header) { header.set("format", "another file"); });
  expect("not a run file", [](Header& header) { header.set("format", 17); });
  expect(
      "its format is \"fanin run file\", and this fanin reads \"fanin run file, version 1\": use "
      "the "
      "fanin that wrote it (commit ",
      [](Header& header) { header.set("format", "fanin run file"); }, ErrorKind::unsupported);
  for (const char* const number :
       {"run", "run_id", "node_index", "incarnation", "part", "started_unix_ns"}) {
    const auto missing = fmt::format("\"{}\" is missing or not a number", number);
    expect(missing.c_str(), [&](Header& header) { header.remove(number); });
    expect(missing.c_str(), [&](Header& header) { header.set(number, "four"); });
    expect(missing.c_str(), [&](Header& header) { header.set_many_numbers(number); });
  }
  for (const char* const number : {"run", "node_index", "incarnation", "part"}) {
    const auto range = fmt::format("\"{}\" is out of range: ", number);
    expect(range.c_str(), [&](Header& header) { header.set(number, -1); });
    expect(range.c_str(), [&](Header& header) { header.set(number, std::int64_t{1} << 32); });
  }
  for (const char* const text : {"node", "integrity", "started_utc", "fanin_version"}) {
    const auto missing = fmt::format("\"{}\" is missing or not a text", text);
    expect(missing.c_str(), [&](Header& header) { header.remove(text); });
    expect(missing.c_str(), [&](Header& header) { header.set(text, 17); });
    expect(missing.c_str(), [&](Header& header) { header.set_variable(text, "long"); });
    expect(missing.c_str(), [&](Header& header) { header.set_many_texts(text); });
  }
  expect("\"integrity\" is not known: crc32d",
         [](Header& header) { header.set("integrity", "crc32d"); });
  for (const char* const table :
       {"/sources", "/events", "/gaps", "/missing", "/fragments", "/bytes"})
    expect(table, [&](Header& header) { header.unlink(table); });
  expect("/bytes: not one-dimensional",
         [](Header& header) { header.make("/bytes", H5T_STD_U8LE, 2); });
  expect("/events: rows are of another type",
         [](Header& header) { header.make("/events", H5T_STD_U64LE, 1); });
  expect("/sources", [](Header& header) { header.make("/sources", H5T_STD_U64LE, 1); });
  expect("/sources: not one-dimensional",
         [](Header& header) { header.make("/sources", H5T_STD_U64LE, 32); });
  for (const char* const table : {"/sources", "/bytes"}) {
    const auto elsewhere = fmt::format("{}: its bytes are in another file", table);
    expect(elsewhere.c_str(), [&](Header& header) { header.link_elsewhere(table); });
    expect(elsewhere.c_str(), [&](Header& header) { header.store_elsewhere(table); });
  }
  const auto unchecked = opened([](Header& header) { header.set("integrity", "none"); });
  ASSERT_TRUE(unchecked);
  EXPECT_FALSE((*unchecked)->info().integrity);
}

TEST_F(RunFile, whose_rows_lie_otherwise_is_read_all_the_same) {
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  append(*writer, maker.make(0, {0, 3}));
  ASSERT_TRUE(writer->close());
  const std::vector<GapRow> gaps{{.first = 5, .end = 7}, {.first = 9, .end = 1U << 20}};
  {
    const detail::Hdf5Guard guard;
    Header(writer->path()).make_chunked("/gaps", gaps);
  }
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader && reader->gaps() == 2);
  std::vector<GapRow> read(2);
  ASSERT_TRUE(reader->read_gaps(0, read));
  EXPECT_EQ(read[0].first, 5U);
  EXPECT_EQ(read[0].end, 7U);
  EXPECT_EQ(read[1].end, 1U << 20);
  GapRow more;
  EXPECT_FALSE(reader->read_gaps(2, {&more, 1}));
  EXPECT_FALSE(reader->read_gaps(~std::uint64_t{0}, {&more, 1}));
  EXPECT_FALSE(reader->read_gaps(1, read));
}

TEST_F(RunFile, is_read_while_it_is_written) {
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  append(*writer, maker.make(0, {0, 10}));
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader);
  EXPECT_FALSE(reader->info().finished);
  expect_all(*reader, 0, 10);
  for (EventNumber first = 10; first < 900; first += 89) {
    append(*writer, maker.make(first, {first, first + 89}));
    ASSERT_TRUE(reader->refresh());
    expect_all(*reader, 0, first + 89);
  }
}

TEST_F(RunFile, names_the_missing_and_skips_the_gaps) {
  auto sources = make_sources(3);
  sources[2].required = false;
  auto chosen = options();
  chosen.sources = sources;
  const auto plan = [](EventNumber event, SourceId source) {
    const bool absent =
        event == 4 || event == 5 || (event == 2 && source == 20) || (event == 3 && source == 30);
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 10U};
  };
  auto batch = maker.make(0, {0, 8}, plan);
  batch.gaps.push_back({4, 6});
  batch.missing.push_back({.events = {2, 3}, .source = 20, .reason = wire::MissingReason::lost});
  const auto writer = create(chosen);
  ASSERT_TRUE(writer);
  append(*writer, batch);
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader);
  ASSERT_EQ(reader->events(), 6U);
  std::vector<EventRow> rows(6);
  ASSERT_TRUE(reader->read_events(0, rows));
  EXPECT_EQ(rows[2].event, 2U);
  EXPECT_EQ(rows[2].flags, event_incomplete);
  EXPECT_EQ(rows[2].fragment_count, 2U);
  EXPECT_EQ(rows[3].flags, 0U); // only an optional source lacks
  EXPECT_EQ(rows[3].missing_count, 1U);
  EXPECT_EQ(rows[4].event, 6U);
  const auto lost = reader->missing_of(rows[2]);
  ASSERT_TRUE(lost && lost->size() == 1);
  EXPECT_EQ((*lost)[0].source, 20U);
  EXPECT_EQ((*lost)[0].reason, static_cast<std::uint32_t>(wire::MissingReason::lost));
  const auto optional = reader->missing_of(rows[3]);
  ASSERT_TRUE(optional && optional->size() == 1);
  EXPECT_EQ((*optional)[0].source, 30U);
  EXPECT_EQ((*optional)[0].reason, static_cast<std::uint32_t>(wire::MissingReason::absent));
  ASSERT_EQ(reader->gaps(), 1U);
  GapRow gap;
  ASSERT_TRUE(reader->read_gaps(0, {&gap, 1}));
  EXPECT_EQ(gap.first, 4U);
  EXPECT_EQ(gap.end, 6U);
}

TEST_F(RunFile, names_each_source_that_an_event_lacks_and_none_in_a_gap) {
  const auto plan = [](EventNumber event, SourceId source) {
    const bool absent = event == 2 || (event == 1 && source != 30);
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 10U};
  };
  auto batch = maker.make(0, {0, 4}, plan);
  batch.gaps.push_back({2, 3});
  batch.missing.push_back({.events = {1, 3}, .source = 20, .reason = wire::MissingReason::lost});
  batch.bad.push_back({.event = 1, .source = 20, .flags = wire::fragment_bad_number});
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  append(*writer, batch);
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader && reader->events() == 3);
  std::vector<EventRow> rows(3);
  ASSERT_TRUE(reader->read_events(0, rows));
  const auto missing = reader->missing_of(rows[1]);
  ASSERT_TRUE(missing && missing->size() == 2);
  EXPECT_EQ((*missing)[0].source, 10U);
  EXPECT_EQ((*missing)[1].source, 20U);
  EXPECT_EQ((*missing)[1].reason, static_cast<std::uint32_t>(wire::MissingReason::lost));
  EXPECT_EQ(rows[1].flags, std::uint32_t{event_incomplete} | event_bad_number);
  const auto fragments = reader->fragments_of(rows[1]);
  ASSERT_TRUE(fragments && fragments->size() == 1);
  EXPECT_EQ((*fragments)[0].flags, 0); // the other one is not there to be flagged
  EXPECT_EQ(reader->missing(), 2U);
}

TEST_F(RunFile, flags_what_the_builder_unit_found_bad) {
  auto batch = maker.make(0, {0, 4});
  batch.bad.push_back({.event = 1, .source = 20, .flags = wire::fragment_bad_checksum});
  batch.bad.push_back({.event = 3, .source = 30, .flags = wire::fragment_bad_number});
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  append(*writer, batch);
  const auto reader = open(writer->path());
  ASSERT_TRUE(reader);
  std::vector<EventRow> rows(4);
  ASSERT_TRUE(reader->read_events(0, rows));
  EXPECT_EQ(rows[0].flags, 0U);
  EXPECT_EQ(rows[1].flags, event_bad_checksum);
  EXPECT_EQ(rows[3].flags, event_bad_number);
  const auto fragments = reader->fragments_of(rows[1]);
  ASSERT_TRUE(fragments);
  EXPECT_EQ((*fragments)[0].flags, 0);
  EXPECT_EQ((*fragments)[1].flags, event_bad_checksum);
}

TEST_F(RunFile, never_writes_over_another) {
  const auto path = directory.path() + "/run000042_bu0_i3_0001.h5";
  std::ofstream(path) << "precious";
  const auto writer = RunFileWriter::create(options(), 1);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().kind, ErrorKind::refused);
  EXPECT_THAT(writer.error().text, HasSubstr(path));
  EXPECT_THAT(writer.error().text, HasSubstr("never overwritten"));
  std::string content;
  std::ifstream(path) >> content;
  EXPECT_EQ(content, "precious");
}

TEST_F(RunFile, leaves_nothing_behind_where_it_cannot_be_made) {
  auto chosen = options();
  chosen.directory += "/nowhere";
  auto writer = RunFileWriter::create(chosen, 1);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().kind, ErrorKind::not_found);
  EXPECT_THAT(writer.error().text, HasSubstr(chosen.directory));
  chosen = options();
  chosen.node = "../bu0";
  writer = RunFileWriter::create(chosen, 1);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().kind, ErrorKind::usage);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST_F(RunFile, is_whole_when_its_writer_goes_away_without_closing) {
  std::string path;
  {
    const auto writer = create(options());
    ASSERT_TRUE(writer);
    path = writer->path();
    append(*writer, maker.make(0, {0, 100}));
  }
  const auto reader = open(path);
  ASSERT_TRUE(reader);
  EXPECT_FALSE(reader->info().finished);
  expect_all(*reader, 0, 100);
}

// h5py is how most people will read a run: live, in SWMR mode.
TEST_F(RunFile, of_a_small_run_is_small_while_it_is_written_and_after_a_kill) {
  struct Plan {
    EventNumber events;
    std::uint32_t fragment; // bytes
  };
  RunFileOptions chosen = options();
  chosen.bytes_chunk = chosen.rows_chunk = 0;
  for (const auto [events, fragment] :
       {Plan{1, 10}, Plan{250, 200}, Plan{3000, 20}, Plan{40, 20000}}) {
    ++chosen.run;
    const auto writer = create(chosen);
    ASSERT_TRUE(writer);
    for (EventNumber event = 0; event < events; event += 10) {
      append(*writer, maker.make(event, {event, std::min(events, event + 10)},
                                 [size = fragment](EventNumber, SourceId) {
                                   return FragmentPlan{.size = size};
                                 }));
      struct stat status{};
      ASSERT_EQ(::stat(writer->path().c_str(), &status), 0);
      const auto most = 2 * writer->size() + (256U << 10);
      ASSERT_LE(static_cast<std::uint64_t>(status.st_size), most) << writer->size();
      ASSERT_LE(static_cast<std::uint64_t>(status.st_blocks) * 512, most) << writer->size();
    }
    ASSERT_TRUE(writer->close());
  }
}

TEST_F(RunFile, is_read_live_by_h5py) {
  const auto python = testing::python_with_h5py();
  if (python.empty()) GTEST_SKIP() << "python3-h5py is not installed";
  const auto writer = create(options());
  ASSERT_TRUE(writer);
  append(*writer, maker.make(0, {0, 100}));
  std::array<int, 2> to_script{};
  std::array<int, 2> from_script{};
  ASSERT_EQ(::pipe2(to_script.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(from_script.data(), O_CLOEXEC), 0);
  const auto script = fmt::format("{}/src/fanin/storage/testing/read_live.py", FANIN_SOURCE_DIR);
  const auto child = ::fork();
  if (child == 0) {
    ::dup2(to_script[0], 0);
    ::dup2(from_script[1], 1);
    ::execlp(python.c_str(), python.c_str(), script.c_str(), writer->path().c_str(), nullptr);
    ::_exit(127);
  }
  ::close(to_script[0]);
  ::close(from_script[1]);
  FILE* const answers = ::fdopen(from_script[0], "r");
  // After each commit the script is asked how many good events it sees.
  EventNumber end = 100;
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(::write(to_script[1], "?\n", 2), 2);
    std::array<char, 256> answer{};
    ASSERT_NE(std::fgets(answer.data(), answer.size(), answers), nullptr) << "the script ended";
    EXPECT_EQ(std::string(answer.data()), fmt::format("{} good of {}\n", end, end));
    append(*writer, maker.make(0, {end, end + 77}));
    end += 77;
  }
  ::close(to_script[1]);
  std::fclose(answers);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

} // namespace
} // namespace fanin::storage
