#include "fanin/storage/run_file_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/try.hpp"
#include "fanin/storage/detail/hdf5.hpp"
#include "fanin/storage/detail/read_table.hpp"
#include "fanin/storage/run_file_writer.hpp"

namespace fanin::storage {
namespace {

constexpr std::size_t event_block = 16384; // rows read at once
constexpr std::uint32_t sources_max = 1U << 20;
constexpr std::uint64_t rows_of_event_least = 65536;
constexpr std::size_t text_size = 256;

// Of the superblock: open for writing, and in SWMR mode.
constexpr std::size_t consistency_flags_at = 11;
constexpr unsigned consistency_flags = 0x5;
constexpr unsigned open_without_swmr = 0x1; // h5py mode "a"; a writer of ours is in SWMR mode

// Null: there is none, or it is not one value. HDF5 reads as many as there are, whatever the room.
detail::Handle open_attribute(hid_t file, const char* name) {
  detail::Handle attribute{H5Aopen(file, name, H5P_DEFAULT), H5Aclose};
  if (!attribute) return attribute;
  const detail::Handle space{H5Aget_space(attribute.get()), H5Sclose};
  if (!space || H5Sget_simple_extent_npoints(space.get()) != 1) return {};
  return attribute;
}

Result<std::string> read_text(hid_t file, const char* name) {
  const auto attribute = open_attribute(file, name);
  const detail::Handle type{attribute ? H5Aget_type(attribute.get()) : H5I_INVALID_HID, H5Tclose};
  if (!type || H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0) {
    return fail(ErrorKind::malformed,
                fmt::format("attribute \"{}\" is missing or not a text", name));
  }
  std::string value(std::min<std::size_t>(H5Tget_size(type.get()), 65536), '\0');
  const auto memory_type = detail::fixed_string_type(value.size());
  if (H5Aread(attribute.get(), memory_type.get(), value.data()) < 0) {
    return fail(ErrorKind::malformed,
                fmt::format("attribute \"{}\": {}", name, detail::hdf5_error()));
  }
  value.resize(std::strlen(value.c_str()));
  return value;
}

Result<> read_value(hid_t file, const char* name, hid_t type, void* value) {
  const auto attribute = open_attribute(file, name);
  if (attribute && H5Aread(attribute.get(), type, value) >= 0) return {};
  return fail(ErrorKind::malformed,
              fmt::format("attribute \"{}\" is missing or not a number", name));
}

template <class Number>
Result<> read_number(hid_t file, const char* name, Number& number) {
  std::int64_t value = 0;
  FANIN_TRY(read_value(file, name, H5T_NATIVE_INT64, &value));
  if (!std::in_range<Number>(value)) {
    return fail(ErrorKind::malformed,
                fmt::format("attribute \"{}\" is out of range: {}", name, value));
  }
  number = static_cast<Number>(value);
  return {};
}

constexpr std::size_t configuration_max = 64U << 20;

// Those whose name begins as that of metadata does.
Result<std::vector<std::string>> metadata_keys(hid_t file) {
  std::vector<std::string> keys;
  const auto keep = [](hid_t, const char* name, const H5A_info_t*, void* to) -> herr_t {
    const std::string_view text(name);
    if (text.starts_with(metadata_prefix))
      static_cast<std::vector<std::string>*>(to)->emplace_back(
          text.substr(std::strlen(metadata_prefix)));
    return 0;
  };
  if (H5Aiterate2(file, H5_INDEX_NAME, H5_ITER_INC, nullptr, keep, &keys) < 0)
    return fail(ErrorKind::malformed, fmt::format("attributes: {}", detail::hdf5_error()));
  return keys;
}

Result<std::vector<Metadata>> read_metadata(hid_t file) {
  std::vector<Metadata> metadata;
  for (const std::string& key : FANIN_TRY(metadata_keys(file))) {
    const std::string whole = metadata_prefix + key;
    const char* const name = whole.c_str();
    const auto attribute = open_attribute(file, name);
    const detail::Handle type{attribute ? H5Aget_type(attribute.get()) : H5I_INVALID_HID, H5Tclose};
    const H5T_class_t kind = type ? H5Tget_class(type.get()) : H5T_NO_CLASS;
    std::int64_t number = 0;
    double real = 0;
    std::int8_t truth = 0;
    if (kind == H5T_STRING) {
      metadata.push_back({key, FANIN_TRY(read_text(file, name))});
    } else if (kind == H5T_FLOAT) {
      FANIN_TRY(read_value(file, name, H5T_NATIVE_DOUBLE, &real));
      metadata.push_back({key, real});
    } else if (kind == H5T_ENUM) {
      FANIN_TRY(read_value(file, name, detail::boolean_type().get(), &truth));
      metadata.push_back({key, truth != 0});
    } else {
      FANIN_TRY(read_number(file, name, number));
      metadata.push_back({key, number});
    }
  }
  return metadata;
}

Result<std::string> read_configuration(hid_t file) {
  if (H5Lexists(file, "/configuration", H5P_DEFAULT) <= 0) return {};
  const auto dataset = FANIN_TRY(detail::open_dataset(file, "/configuration"));
  const detail::Handle type{H5Dget_type(dataset.get()), H5Tclose};
  const detail::Handle space{H5Dget_space(dataset.get()), H5Sclose};
  const std::size_t size = type ? H5Tget_size(type.get()) : 0;
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 ||
      H5Sget_simple_extent_npoints(space.get()) != 1 || size > configuration_max)
    return fail(ErrorKind::malformed, "/configuration: not a text");
  std::string text(size, '\0');
  const auto memory_type = detail::fixed_string_type(size);
  if (H5Dread(dataset.get(), memory_type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0)
    return fail(ErrorKind::malformed, fmt::format("/configuration: {}", detail::hdf5_error()));
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::string text_of(const std::array<char, text_size>& field) {
  return {field.data(), ::strnlen(field.data(), field.size())};
}

// Reads all rows of a small dataset, at most `most`.
template <class Row>
Result<std::vector<Row>> read_small(hid_t file, const char* name, const detail::Handle& type,
                                    std::uint64_t most) {
  const auto dataset = detail::open_dataset(file, name);
  if (!dataset)
    return fail(dataset.error().kind, fmt::format("{}: {}", name, dataset.error().text));
  const detail::Handle space{H5Dget_space(dataset->get()), H5Sclose};
  const auto count = detail::rows_of(space.get());
  if (!count) return fail(ErrorKind::malformed, fmt::format("{}: not one-dimensional", name));
  if (*count > most)
    return fail(ErrorKind::malformed, fmt::format("{}: {} rows are too many", name, *count));
  std::vector<Row> rows(*count);
  if (*count > 0 &&
      H5Dread(dataset->get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()) < 0) {
    return fail(ErrorKind::malformed, fmt::format("{}: {}", name, detail::hdf5_error()));
  }
  return rows;
}

Result<std::vector<SourceInfo>> read_sources(hid_t file) {
  struct Row {
    std::uint32_t id;
    std::uint8_t required;
    std::array<char, text_size> name;
    std::array<char, text_size> readout_unit;
  };
  const auto text = detail::fixed_string_type(text_size);
  const auto type = detail::compound_type(
      sizeof(Row), {{"id", offsetof(Row, id), H5T_NATIVE_UINT32},
                    {"required", offsetof(Row, required), H5T_NATIVE_UINT8},
                    {"name", offsetof(Row, name), text.get()},
                    {"readout_unit", offsetof(Row, readout_unit), text.get()}});
  const auto rows = FANIN_TRY(read_small<Row>(file, "/sources", type, sources_max));
  std::vector<SourceInfo> sources;
  for (const Row& row : rows) {
    sources.push_back({.id = row.id,
                       .name = text_of(row.name),
                       .readout_unit = text_of(row.readout_unit),
                       .required = row.required != 0});
  }
  std::ranges::sort(sources, {}, &SourceInfo::id);
  return sources;
}

// None where there were no filter units.
Result<std::vector<StreamInfo>> read_streams(hid_t file) {
  std::vector<StreamInfo> streams;
  if (H5Lexists(file, "/streams", H5P_DEFAULT) <= 0) return streams;
  struct Row {
    std::uint32_t prescale;
    std::array<char, text_size> name;
  };
  const detail::Handle type{H5Tcreate(H5T_COMPOUND, sizeof(Row)), H5Tclose};
  H5Tinsert(type.get(), "prescale", offsetof(Row, prescale), H5T_NATIVE_UINT32);
  H5Tinsert(type.get(), "name", offsetof(Row, name), detail::fixed_string_type(text_size).get());
  const auto rows = FANIN_TRY(read_small<Row>(file, "/streams", type, streams_max));
  for (const Row& row : rows) streams.push_back({text_of(row.name), row.prescale, {}});
  const auto masks = FANIN_TRY(read_small<StreamSourceRow>(
      file, "/stream_sources", detail::stream_source_row_type(), streams_max * sources_max));
  for (const StreamSourceRow& row : masks) {
    if (row.stream >= streams.size())
      return fail(ErrorKind::malformed, fmt::format("/stream_sources: no stream {}", row.stream));
    streams[row.stream].sources.push_back(row.source);
  }
  for (auto& stream : streams) std::ranges::sort(stream.sources);
  return streams;
}

} // namespace

struct RunFileReader::Impl {
  Result<> open(const std::string& path);
  Result<> open_hdf5();
  Result<> read_header();
  Result<> open_tables();
  std::unexpected<Error> malformed(const std::string& what) const {
    return fail(ErrorKind::malformed, fmt::format("{}: {}", info.path, what));
  }

  RunFileInfo info;
  Descriptor descriptor;
  detail::Handle file; // closed after its tables
  detail::ReadTable events;
  detail::ReadTable fragments;
  detail::ReadTable missing;
  detail::ReadTable gaps;
  detail::ReadTable bytes;
};

Result<> RunFileReader::Impl::open(const std::string& path) {
  info.path = path;
  descriptor =
      Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); // a pipe would wait
  if (!descriptor) {
    return fail_errno(errno == ENOENT ? ErrorKind::not_found : ErrorKind::refused, path, errno);
  }
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0) return fail_errno(ErrorKind::internal, path, errno);
  if (S_ISDIR(status.st_mode))
    return fail(ErrorKind::refused, fmt::format("{} is a directory", path));
  if (!S_ISREG(status.st_mode))
    return fail(ErrorKind::refused, fmt::format("{} is not a regular file", path));
  info.file_size = static_cast<std::uint64_t>(status.st_size);
  if (info.file_size == 0) return malformed("the file is empty");

  const detail::Hdf5Guard guard;
  FANIN_TRY(open_hdf5());
  if (const auto header = read_header(); !header)
    return fail(header.error().kind, fmt::format("{}: {}", path, header.error().text));
  return open_tables();
}

Result<> RunFileReader::Impl::open_hdf5() {
  std::array<unsigned char, 12> head{};
  const auto got = ::pread(descriptor.get(), head.data(), head.size(), 0);
  constexpr std::array<unsigned char, 8> signature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  if (got != static_cast<ssize_t>(head.size()) ||
      !std::equal(signature.begin(), signature.end(), head.begin())) {
    return malformed("not an HDF5 file");
  }
  info.finished = (head[consistency_flags_at] & consistency_flags) == 0;
  const detail::Handle access{H5Pcreate(H5P_FILE_ACCESS), H5Pclose};
  // Few attempts at metadata that does not match its checksum: a writer replaces it at once, and
  // what is corrupt stays so.
  if (H5Pset_libver_bounds(access.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) < 0 ||
      H5Pset_file_locking(access.get(), false, true) < 0 ||
      H5Pset_metadata_read_attempts(access.get(), 16) < 0) {
    return malformed(detail::hdf5_error());
  }
  const auto attempt = [&](unsigned flags) {
    file = detail::Handle{H5Fopen(info.path.c_str(), flags, access.get()), H5Fclose};
    return static_cast<bool>(file);
  };
  if (info.finished) {
    if (attempt(H5F_ACC_RDONLY)) return {};
    info.damage = detail::hdf5_error(); // truncated, mostly: SWMR mode does not look at the size
  }
  if (attempt(H5F_ACC_RDONLY | H5F_ACC_SWMR_READ)) return {};
  std::string why = detail::hdf5_error();
  if ((head[consistency_flags_at] & consistency_flags) == open_without_swmr) {
    why += "; another program has opened it for writing and not closed it: close it there, or, if "
           "that program has died, run `h5clear -s` on the file";
  }
  return malformed(fmt::format("cannot be opened as HDF5: {}", why));
}

// Its errors do not name the file yet.
Result<> RunFileReader::Impl::read_header() {
  const auto id = file.get();
  const auto format = read_text(id, "format");
  if (!format || !format->starts_with("fanin run file"))
    return fail(ErrorKind::malformed, "not a run file of fanin");
  if (*format != run_file_format) {
    return fail(ErrorKind::unsupported,
                fmt::format("its format is \"{}\", and this fanin reads \"{}\": use the fanin that "
                            "wrote it (commit {})",
                            *format, run_file_format,
                            read_text(id, "fanin_commit").value_or("unknown")));
  }
  FANIN_TRY(read_number(id, "run", info.run));
  FANIN_TRY(read_number(id, "run_id", info.run_id));
  FANIN_TRY(read_number(id, "node_index", info.node_index));
  FANIN_TRY(read_number(id, "incarnation", info.incarnation));
  FANIN_TRY(read_number(id, "part", info.part));
  FANIN_TRY(read_number(id, "started_unix_ns", info.started_unix_ns));
  info.node = FANIN_TRY(read_text(id, "node"));
  const auto integrity = FANIN_TRY(read_text(id, "integrity"));
  info.started_utc = FANIN_TRY(read_text(id, "started_utc"));
  info.fanin_version = FANIN_TRY(read_text(id, "fanin_version"));
  if (H5Aexists(id, "comment") > 0) info.comment = FANIN_TRY(read_text(id, "comment"));
  info.metadata = FANIN_TRY(read_metadata(id));
  info.configuration = FANIN_TRY(read_configuration(id));
  info.integrity = integrity == "crc32c";
  if (!info.integrity && integrity != "none") // never taken for a file that has no checksums
    return fail(ErrorKind::malformed,
                fmt::format("attribute \"integrity\" is not known: {}", integrity));
  info.sources = FANIN_TRY(read_sources(id));
  info.streams = FANIN_TRY(read_streams(id));
  return {};
}

// In the order in which a live file may be read: what a row points to was there before it.
Result<> RunFileReader::Impl::open_tables() {
  const auto open_table = [&](const char* name, detail::Handle type) {
    return detail::ReadTable::open(file.get(), name, std::move(type),
                                   fmt::format("{}:{}", info.path, name), descriptor.get());
  };
  events = FANIN_TRY(open_table("/events", detail::event_row_type()));
  gaps = FANIN_TRY(open_table("/gaps", detail::gap_row_type()));
  missing = FANIN_TRY(open_table("/missing", detail::missing_row_type()));
  fragments = FANIN_TRY(open_table("/fragments", detail::fragment_row_type()));
  bytes = FANIN_TRY(open_table("/bytes", detail::Handle{H5Tcopy(H5T_STD_U8LE), H5Tclose}));
  return {};
}

RunFileReader::RunFileReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunFileReader::~RunFileReader() = default;

Result<std::unique_ptr<RunFileReader>> RunFileReader::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  FANIN_TRY(impl->open(path));
  return std::unique_ptr<RunFileReader>(new RunFileReader(std::move(impl)));
}

const RunFileInfo& RunFileReader::info() const { return impl_->info; }
std::uint64_t RunFileReader::events() const { return impl_->events.rows(); }
std::uint64_t RunFileReader::fragments() const { return impl_->fragments.rows(); }
std::uint64_t RunFileReader::missing() const { return impl_->missing.rows(); }
std::uint64_t RunFileReader::gaps() const { return impl_->gaps.rows(); }
std::uint64_t RunFileReader::bytes() const { return impl_->bytes.rows(); }

Result<> RunFileReader::refresh() {
  for (auto* table :
       {&impl_->events, &impl_->gaps, &impl_->missing, &impl_->fragments, &impl_->bytes})
    FANIN_TRY(table->refresh());
  return {};
}

Result<> RunFileReader::read_events(std::uint64_t first, std::span<EventRow> out) {
  return impl_->events.read(first, std::as_writable_bytes(out));
}
Result<> RunFileReader::read_fragments(std::uint64_t first, std::span<FragmentRow> out) {
  return impl_->fragments.read(first, std::as_writable_bytes(out));
}
Result<> RunFileReader::read_missing(std::uint64_t first, std::span<MissingRow> out) {
  return impl_->missing.read(first, std::as_writable_bytes(out));
}
Result<> RunFileReader::read_gaps(std::uint64_t first, std::span<GapRow> out) {
  return impl_->gaps.read(first, std::as_writable_bytes(out));
}
Result<> RunFileReader::read_bytes(std::uint64_t offset, std::span<std::byte> out) {
  return impl_->bytes.read(offset, out);
}

Result<> RunFileReader::for_each_event(
    const std::function<bool(std::uint64_t index, const EventRow& row)>& visit) {
  std::vector<EventRow> block(std::min<std::uint64_t>(event_block, events()));
  for (std::uint64_t first = 0; first < events(); first += block.size()) {
    block.resize(std::min<std::uint64_t>(block.size(), events() - first));
    FANIN_TRY(read_events(first, block));
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (!visit(first + i, block[i])) return {};
    }
  }
  return {};
}

Result<std::optional<EventRow>> RunFileReader::find_event(EventNumber event) {
  std::optional<EventRow> found;
  FANIN_TRY(for_each_event([&](std::uint64_t, const EventRow& row) {
    if (row.event == event) found = row;
    return true;
  }));
  return found;
}

std::uint64_t RunFileReader::rows_of_event_max() const {
  return std::max<std::uint64_t>(rows_of_event_least, impl_->info.sources.size());
}

Result<std::vector<FragmentRow>> RunFileReader::fragments_of(const EventRow& row) {
  if (row.first_fragment > fragments() || row.fragment_count > fragments() - row.first_fragment ||
      row.fragment_count > rows_of_event_max()) {
    return impl_->malformed(fmt::format("event {}: fragments {} to {} are not in the file",
                                        row.event, row.first_fragment,
                                        row.first_fragment + row.fragment_count));
  }
  std::vector<FragmentRow> rows(row.fragment_count);
  FANIN_TRY(read_fragments(row.first_fragment, rows));
  for (const auto& fragment : rows) {
    if (fragment.event == row.event) continue;
    return impl_->malformed(
        fmt::format("event {}: a fragment of event {} is in its rows", row.event, fragment.event));
  }
  return rows;
}

Result<std::vector<MissingRow>> RunFileReader::missing_of(const EventRow& row) {
  if (row.first_missing > missing() || row.missing_count > missing() - row.first_missing ||
      row.missing_count > rows_of_event_max()) {
    return impl_->malformed(
        fmt::format("event {}: its rows in /missing are not in the file", row.event));
  }
  std::vector<MissingRow> rows(row.missing_count);
  FANIN_TRY(read_missing(row.first_missing, rows));
  return rows;
}

Result<std::vector<std::byte>> RunFileReader::bytes_of(const FragmentRow& row) {
  if (row.offset > bytes() || row.size > bytes() - row.offset) {
    return impl_->malformed(
        fmt::format("event {}, source {:#x}: bytes {} to {} are not in the file", row.event,
                    row.source, row.offset, row.offset + row.size));
  }
  std::vector<std::byte> out(row.size);
  FANIN_TRY(read_bytes(row.offset, out));
  return out;
}

} // namespace fanin::storage
