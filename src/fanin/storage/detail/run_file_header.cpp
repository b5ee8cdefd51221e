#include "fanin/storage/detail/run_file_header.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/core.h>

#include "fanin/base/try.hpp"
#include "fanin/version.hpp"

namespace fanin::storage::detail {
namespace {

constexpr std::size_t name_max = 255;

bool write_attribute(hid_t file, const char* name, hid_t type, const void* value) {
  const Handle space{H5Screate(H5S_SCALAR), H5Sclose};
  const Handle attribute{H5Aexists(file, name) > 0
                             ? H5Aopen(file, name, H5P_DEFAULT)
                             : H5Acreate2(file, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose};
  return attribute && H5Awrite(attribute.get(), type, value) >= 0;
}

bool write_text(hid_t file, const char* name, std::string_view text) {
  const std::string value = text.empty() ? std::string(1, '\0') : std::string(text);
  return write_attribute(file, name, fixed_string_type(value.size()).get(), value.data());
}

bool write_number(hid_t file, const char* name, std::uint32_t value) {
  return write_attribute(file, name, H5T_STD_U32LE, &value);
}

Result<> write_rows(hid_t file, const char* name, const Handle& type, hsize_t count,
                    const void* rows) {
  const Handle space{H5Screate_simple(1, &count, nullptr), H5Sclose};
  const Handle dataset{
      H5Dcreate2(file, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Dclose};
  if (!dataset) return fail_hdf5(name);
  if (count == 0) return {};
  return H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) < 0
             ? fail_hdf5(name)
             : Result<>{};
}

bool write_metadata(hid_t file, const std::vector<Metadata>& metadata) {
  const Handle truth = boolean_type();
  return std::ranges::all_of(metadata, [&](const Metadata& entry) {
    const std::string name = metadata_prefix + entry.key;
    if (const auto* text = std::get_if<std::string>(&entry.value))
      return write_text(file, name.c_str(), *text);
    if (const auto* number = std::get_if<std::int64_t>(&entry.value))
      return write_attribute(file, name.c_str(), H5T_STD_I64LE, number);
    if (const auto* real = std::get_if<double>(&entry.value))
      return write_attribute(file, name.c_str(), H5T_IEEE_F64LE, real);
    const std::int8_t value = std::get<bool>(entry.value) ? 1 : 0;
    return write_attribute(file, name.c_str(), truth.get(), &value);
  });
}

// One row: attributes have no room for so much.
Result<> write_configuration(hid_t file, const std::string& text) {
  return write_rows(file, "/configuration", fixed_string_type(text.size()), 1,
                    text.empty() ? "" : text.data());
}

Result<> write_sources(hid_t file, const std::vector<SourceInfo>& sources) {
  std::size_t name_size = 1;
  std::size_t unit_size = 1;
  for (const auto& source : sources) {
    name_size = std::max(name_size, std::min(source.name.size(), name_max));
    unit_size = std::max(unit_size, std::min(source.readout_unit.size(), name_max));
  }
  const std::size_t name_at = 5; // id u32, required u8
  const std::size_t unit_at = name_at + name_size;
  const std::size_t row_size = unit_at + unit_size;
  const Handle type{H5Tcreate(H5T_COMPOUND, row_size), H5Tclose};
  H5Tinsert(type.get(), "id", 0, H5T_STD_U32LE);
  H5Tinsert(type.get(), "required", 4, H5T_STD_U8LE);
  H5Tinsert(type.get(), "name", name_at, fixed_string_type(name_size).get());
  H5Tinsert(type.get(), "readout_unit", unit_at, fixed_string_type(unit_size).get());

  std::vector<char> rows(row_size * sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& source = sources[i];
    char* const row = rows.data() + i * row_size;
    std::memcpy(row, &source.id, sizeof source.id);
    row[4] = source.required ? 1 : 0;
    source.name.copy(row + name_at, name_size);
    source.readout_unit.copy(row + unit_at, unit_size);
  }
  return write_rows(file, "/sources", type, sources.size(), rows.data());
}

// A mask is a row for each of its sources.
Result<> write_streams(hid_t file, const std::vector<StreamInfo>& streams) {
  if (streams.empty()) return {};
  std::size_t name_size = 1;
  std::vector<StreamSourceRow> masks;
  for (std::uint32_t i = 0; i < streams.size(); ++i) {
    name_size = std::max(name_size, std::min(streams[i].name.size(), name_max));
    for (const SourceId source : streams[i].sources) masks.push_back({i, source});
  }
  const std::size_t row_size = sizeof(std::uint32_t) + name_size;
  const Handle type{H5Tcreate(H5T_COMPOUND, row_size), H5Tclose};
  H5Tinsert(type.get(), "prescale", 0, H5T_STD_U32LE);
  H5Tinsert(type.get(), "name", sizeof(std::uint32_t), fixed_string_type(name_size).get());
  std::vector<char> rows(row_size * streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    char* const row = rows.data() + i * row_size;
    std::memcpy(row, &streams[i].prescale, sizeof streams[i].prescale);
    streams[i].name.copy(row + sizeof(std::uint32_t), name_size);
  }
  FANIN_TRY(write_rows(file, "/streams", type, streams.size(), rows.data()));
  return write_rows(file, "/stream_sources", stream_source_row_type(), masks.size(), masks.data());
}

} // namespace

std::string format_utc(std::int64_t unix_ns, std::size_t decimals) {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t rest = (unix_ns % second + second) % second;
  const std::time_t seconds = (unix_ns - rest) / second;
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "unknown";
  const std::string fraction =
      decimals == 0 ? "" : fmt::format(".{:09}", rest).substr(0, decimals + 1);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     fraction);
}

bool write_started(hid_t file, std::int64_t unix_ns) {
  return write_text(file, "started_utc", format_utc(unix_ns)) &&
         write_attribute(file, "started_unix_ns", H5T_STD_I64LE, &unix_ns);
}

Result<> write_header(hid_t file, const RunFileOptions& options, std::uint32_t part) {
  const bool written =
      write_text(file, "format", run_file_format) && write_number(file, "run", options.run) &&
      write_attribute(file, "run_id", H5T_STD_U64LE, &options.run_id) &&
      write_text(file, "node", options.node) &&
      write_number(file, "node_index", options.node_index) &&
      write_number(file, "incarnation", options.incarnation) && write_number(file, "part", part) &&
      write_text(file, "integrity", options.integrity ? "crc32c" : "none") &&
      write_started(file, options.started_unix_ns) && write_text(file, "fanin_version", version) &&
      write_text(file, "fanin_commit", version_commit()) &&
      (options.comment.empty() || write_text(file, "comment", options.comment)) &&
      write_metadata(file, options.metadata);
  if (!written) return fail_hdf5("attributes");
  FANIN_TRY(write_configuration(file, options.configuration));
  FANIN_TRY(write_sources(file, options.sources));
  return write_streams(file, options.streams);
}

} // namespace fanin::storage::detail
