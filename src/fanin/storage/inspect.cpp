#include "fanin/storage/inspect.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/attempt.hpp"
#include "fanin/base/counted.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/storage/detail/run_file_header.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/manifest.hpp"
#include "fanin/storage/run_file_reader.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::storage {
namespace {

constexpr std::uint64_t rows_at_once = 65536;

struct Tally {
  std::uint64_t fragments = 0;
  std::uint64_t bytes = 0;
  std::uint64_t flagged = 0;
  std::uint64_t missing = 0;
  std::uint32_t smallest = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t largest = 0;
};

struct Summary {
  std::uint64_t incomplete = 0;
  std::uint64_t flagged = 0;
  std::uint64_t rejected = 0;
  std::uint64_t undecided = 0;
  std::vector<std::uint64_t> streams; // events in each
  EventNumber first = std::numeric_limits<EventNumber>::max();
  EventNumber last = 0;
  std::int64_t first_unix_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t last_unix_ns = std::numeric_limits<std::int64_t>::min();
  std::uint64_t gap_numbers = 0;
  std::map<SourceId, Tally> sources;
};

std::string text_of(std::uint32_t reason) {
  const wire::MissingReasonText& text = wire::text_of_missing(reason);
  const bool more = *text.detail != '\0';
  return fmt::format("{}{}{}", text.text, more ? ": " : "", text.detail);
}

std::string text_of_flags(std::uint32_t flags) {
  std::string text;
  const auto add = [&](std::uint32_t flag, const char* name) {
    if ((flags & flag) != 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  };
  add(event_incomplete, "incomplete");
  add(event_bad_checksum, "bad checksum");
  add(event_bad_number, "bad event number");
  add(event_truncated, "truncated");
  add(event_in_doubt, "number in doubt");
  add(event_rejected, "rejected by the filter");
  return text;
}

// Calls `visit` with all rows of one table, block by block.
template <class Row, class Read, class Visit>
Result<> for_each_row(std::uint64_t count, const Read& read, const Visit& visit) {
  std::vector<Row> rows;
  for (std::uint64_t first = 0; first < count; first += rows.size()) {
    rows.resize(std::min(rows_at_once, count - first));
    FANIN_TRY(read(first, std::span(rows)));
    for (const auto& row : rows) visit(row);
  }
  return {};
}

Result<Summary> summarize(RunFileReader& file) {
  Summary summary;
  for (const auto& source : file.info().sources) summary.sources[source.id];
  summary.streams.resize(file.info().streams.size());
  FANIN_TRY(file.for_each_event([&](std::uint64_t, const EventRow& row) {
    summary.first = std::min(summary.first, row.event);
    summary.last = std::max(summary.last, row.event);
    summary.first_unix_ns = std::min(summary.first_unix_ns, row.time_unix_ns);
    summary.last_unix_ns = std::max(summary.last_unix_ns, row.time_unix_ns);
    if ((row.flags & event_incomplete) != 0) ++summary.incomplete;
    constexpr std::uint32_t no_fault = event_incomplete | event_rejected;
    if ((row.flags & event_rejected) != 0) ++summary.rejected;
    if ((row.flags & ~no_fault) != 0) ++summary.flagged;
    for (std::size_t i = 0; i < file.info().streams.size(); ++i)
      summary.streams[i] += row.streams >> i & 1U;
    if ((row.streams & error_stream) != 0) ++summary.undecided;
    return true;
  }));
  FANIN_TRY(for_each_row<FragmentRow>(
      file.fragments(), [&](auto first, auto rows) { return file.read_fragments(first, rows); },
      [&](const FragmentRow& row) {
        auto& tally = summary.sources[row.source];
        ++tally.fragments;
        tally.bytes += row.size;
        if (row.flags != 0) ++tally.flagged;
        tally.smallest = std::min(tally.smallest, row.size);
        tally.largest = std::max(tally.largest, row.size);
      }));
  FANIN_TRY(for_each_row<MissingRow>(
      file.missing(), [&](auto first, auto rows) { return file.read_missing(first, rows); },
      [&](const MissingRow& row) { ++summary.sources[row.source].missing; }));
  FANIN_TRY(for_each_row<GapRow>(
      file.gaps(), [&](auto first, auto rows) { return file.read_gaps(first, rows); },
      [&](const GapRow& row) { summary.gap_numbers += row.end - row.first; }));
  return summary;
}

std::string name_of(const RunFileInfo& info, SourceId id) {
  if (id == filter_source && !info.streams.empty()) return "(of the filter)";
  const auto at = std::ranges::lower_bound(info.sources, id, {}, &SourceInfo::id);
  return at == info.sources.end() || at->id != id ? "(not in /sources)" : printable(at->name);
}

std::string unit_of(const RunFileInfo& info, SourceId id) {
  const auto at = std::ranges::lower_bound(info.sources, id, {}, &SourceInfo::id);
  return at == info.sources.end() || at->id != id ? "" : printable(at->readout_unit);
}

// "physics, calibration"; empty: it is in none.
std::string streams_of(const RunFileInfo& info, std::uint32_t streams) {
  std::string text;
  const auto add = [&](std::string_view name) {
    text += (text.empty() ? "" : ", ") + printable(name);
  };
  for (std::size_t i = 0; i < info.streams.size(); ++i)
    if ((streams >> i & 1U) != 0) add(info.streams[i].name);
  if ((streams & error_stream) != 0) add("error");
  return text;
}

const char* state_of(const RunFileInfo& info) {
  if (!info.damage.empty()) return "damaged";
  return info.finished ? "closed" : "not closed: being written, or its writer was killed";
}

// Another run may have had the same number.
bool is_of(const RunFileInfo& file, const ManifestHeader& run) {
  return file.run == run.run && file.run_id == run.run_id;
}

// From the begin of the run to its end, as its manifest says; 0: there is none beside the file.
double seconds_of_run(const RunFileInfo& info) {
  const auto path = std::filesystem::path(info.path).parent_path() / manifest_name(info.run);
  const auto manifest = read_manifest(path.string());
  if (!manifest || !manifest->summary || !is_of(info, manifest->header)) return 0;
  const auto begin = static_cast<double>(info.started_unix_ns);
  const auto end = static_cast<double>(manifest->summary->ended_unix_ns);
  return std::max(0.0, 1e-9 * (end - begin));
}

void append_dump(std::string& text, std::span<const std::byte> bytes) {
  constexpr std::size_t width = 16;
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    const auto row = bytes.subspan(at, std::min(width, bytes.size() - at));
    std::string hex;
    std::string plain;
    for (const auto byte : row) {
      const auto value = std::to_integer<unsigned>(byte);
      hex += fmt::format("{:02x} ", value);
      plain += value >= 0x20 && value < 0x7f ? static_cast<char>(value) : '.';
    }
    fmt::format_to(std::back_inserter(text), "      {:08x}  {:<48} {}\n", at, hex, plain);
  }
}

Result<> append_fragment(std::string& text, RunFileReader& file, const FragmentRow& fragment,
                         std::size_t dump_bytes) {
  const auto bytes = FANIN_TRY(file.bytes_of(fragment));
  std::string verdict = "no checksum";
  if (file.info().integrity) {
    const auto checksum = wire::crc32c(bytes);
    verdict = checksum == fragment.crc32c
                  ? fmt::format("crc32c {:08x} good", checksum)
                  : fmt::format("crc32c {:08x} BAD, should be {:08x}", checksum, fragment.crc32c);
  }
  const auto flags = text_of_flags(fragment.flags);
  fmt::format_to(std::back_inserter(text), "  source {:<#10x} {:<20} {:>10} B  {}{}{}\n",
                 fragment.source, name_of(file.info(), fragment.source), fragment.size, verdict,
                 flags.empty() ? "" : "; ", flags);
  append_dump(text, std::span(bytes).first(std::min(dump_bytes, bytes.size())));
  if (bytes.size() > dump_bytes && dump_bytes > 0) {
    fmt::format_to(std::back_inserter(text), "      and {} bytes more\n",
                   bytes.size() - dump_bytes);
  }
  return {};
}

bool is_gap(RunFileReader& file, EventNumber event) {
  bool found = false;
  const auto read = for_each_row<GapRow>(
      file.gaps(), [&](auto first, auto rows) { return file.read_gaps(first, rows); },
      [&](const GapRow& row) { found = found || (row.first <= event && event < row.end); });
  return read && found;
}

// The file with the copy that counts, as fanin verify counts: what the manifest says, else the
// latest attempt, and of one writer's copies the last part.
Result<std::string> file_with(EventNumber event, const std::string& manifest_path) {
  const auto manifest = FANIN_TRY(read_manifest(manifest_path));
  const auto found = FANIN_TRY(find_run_files({manifest_path}, [](const auto&) { return false; }));
  const std::vector<std::string> files = found.all();
  const auto last = std::ranges::find_if(
      manifest.winners.rbegin(), manifest.winners.rend(),
      [event](const ManifestWinner& winner) { return winner.events.contains(event); });
  std::string best;
  std::string unreadable;
  struct Rank {
    bool wins = false;
    Attempt attempt = 0;
    std::uint32_t part = 0;
    [[nodiscard]] bool yields_to(const Rank& other) const {
      if (wins != other.wins) return other.wins;
      if (attempt != other.attempt) return is_later(other.attempt, attempt);
      return part <= other.part;
    }
  };
  Rank best_rank;
  for (const auto& path : files) {
    const auto file = RunFileReader::open(path);
    if (file && !is_of((*file)->info(), manifest.header)) continue;
    const auto row = file ? (*file)->find_event(event) : std::unexpected(file.error());
    if (!row) {
      unreadable += fmt::format("; {}", row.error().text);
      continue;
    }
    const auto& info = (*file)->info();
    const bool writer = last != manifest.winners.rend() && last->node == info.node &&
                        last->incarnation == info.incarnation;
    if (!*row && writer && is_gap(**file, event)) {
      return fail(ErrorKind::not_found, fmt::format("{}: no source has event {}", path, event));
    }
    if (!*row) continue;
    const bool wins = writer && last->attempt == (*row)->attempt;
    const Rank rank{wins, (*row)->attempt, info.part};
    if (!best.empty() && !best_rank.yields_to(rank)) continue;
    best = path;
    best_rank = rank;
  }
  if (!best.empty()) return best;
  return fail(ErrorKind::not_found,
              fmt::format("{}: none of the run's {} has an event {}{}", manifest_path,
                          counted(files.size(), "file"), event, unreadable));
}

} // namespace

Result<std::string> inspect_file(const std::string& path) {
  const auto opened = FANIN_TRY(RunFileReader::open(path));
  auto& file = *opened;
  const auto& info = file.info();
  const auto summary = FANIN_TRY(summarize(file));

  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{}\n", printable(path));
  fmt::format_to(out, "  run {}, started {}, {}, incarnation {}, part {}\n", info.run,
                 printable(info.started_utc), printable(info.node), info.incarnation, info.part);
  fmt::format_to(out, "  {}; {}; written by fanin {}\n", state_of(info),
                 info.integrity ? "CRC32C checksums" : "no checksums",
                 printable(info.fanin_version));
  if (!info.damage.empty()) fmt::format_to(out, "  damage: {}\n", printable(info.damage));
  if (!info.comment.empty()) fmt::format_to(out, "  comment: {}\n", printable(info.comment));
  const json::Value metadata = metadata_json(info.metadata);
  for (const auto& [key, value] : metadata.object())
    fmt::format_to(out, "  {} = {}\n", printable(key), value.dump());
  fmt::format_to(out, "  {}", counted(file.events(), "event"));
  if (file.events() > 0) fmt::format_to(out, " from {} to {}", summary.first, summary.last);
  fmt::format_to(out, ": {} complete, {} incomplete; {} with a fault; {} in gaps\n",
                 file.events() - summary.incomplete, summary.incomplete, summary.flagged,
                 counted(summary.gap_numbers, "number"));
  if (file.events() > 0) {
    fmt::format_to(out, "  their times: {} to {}\n", detail::format_utc(summary.first_unix_ns, 3),
                   detail::format_utc(summary.last_unix_ns, 3));
  }
  fmt::format_to(out, "  {}, {} of payload", counted(file.fragments(), "fragment"),
                 format_size(file.bytes()));
  if (file.events() > 0) {
    fmt::format_to(out, ", {} an event", format_size(file.bytes() / file.events()));
  }
  fmt::format_to(out, "; {} in the file\n", format_size(info.file_size));
  if (const auto seconds = seconds_of_run(info); seconds > 0 && file.events() > 0) {
    fmt::format_to(out, "  event rate {}: the events of this file over the {:.1f} s of the run\n",
                   format_rate(static_cast<double>(file.events()) / seconds), seconds);
  }
  if (!info.streams.empty()) {
    fmt::format_to(out, "  filter: {} rejected", summary.rejected);
    for (std::size_t i = 0; i < info.streams.size(); ++i) {
      fmt::format_to(out, "; {} in {}", summary.streams[i], printable(info.streams[i].name));
      if (info.streams[i].prescale > 1) fmt::format_to(out, " (1 of {})", info.streams[i].prescale);
    }
    fmt::format_to(out, "; {} undecided, in error\n", summary.undecided);
  }
  text += '\n';
  fmt::format_to(out, "  {:>10}  {:<20} {:<12} {:>12} {:>10} {:>9} {:>9} {:>9} {:>7}\n", "source",
                 "name", "readout unit", "fragments", "bytes", "smallest", "largest", "missing",
                 "faults");
  for (const auto& [source, tally] : summary.sources) {
    fmt::format_to(out, "  {:>#10x}  {:<20} {:<12} {:>12} {:>10} {:>9} {:>9} {:>9} {:>7}\n", source,
                   name_of(info, source), unit_of(info, source), tally.fragments,
                   format_size(tally.bytes), tally.fragments == 0 ? 0 : tally.smallest,
                   tally.largest, tally.missing, tally.flagged);
  }
  return text;
}

json::Value metadata_json(std::span<const Metadata> metadata) {
  json::Value all{json::Object{}};
  for (const auto& [key, value] : metadata)
    all[key] = std::visit([](const auto& held) { return json::Value(held); }, value);
  return all;
}

Result<json::Value> describe_file(const std::string& path) {
  const auto opened = FANIN_TRY(RunFileReader::open(path));
  auto& file = *opened;
  const auto& info = file.info();
  const auto summary = FANIN_TRY(summarize(file));
  json::Value described = json::Object{{"file", path},
                                       {"run", info.run},
                                       {"run_id", info.run_id},
                                       {"node", info.node},
                                       {"incarnation", info.incarnation},
                                       {"part", info.part},
                                       {"closed", info.finished},
                                       {"fanin", info.fanin_version},
                                       {"started_unix_ns", info.started_unix_ns},
                                       {"comment", info.comment},
                                       {"metadata", metadata_json(info.metadata)},
                                       {"configuration", info.configuration},
                                       {"events", file.events()},
                                       {"incomplete", summary.incomplete},
                                       {"fragments", file.fragments()},
                                       {"bytes", file.bytes()}};
  if (file.events() > 0) {
    described["events_range"] = json::List{summary.first, summary.last};
    described["times_unix_ns"] = json::List{summary.first_unix_ns, summary.last_unix_ns};
  }
  return described;
}

Result<std::string> inspect_event(const std::string& path, EventNumber event,
                                  std::size_t dump_bytes) {
  if (is_manifest(path)) {
    const auto file = FANIN_TRY(file_with(event, path));
    return inspect_event(file, event, dump_bytes);
  }
  const auto opened = FANIN_TRY(RunFileReader::open(path));
  auto& file = *opened;
  const auto found = FANIN_TRY(file.find_event(event));
  if (!found) {
    return fail(ErrorKind::not_found, fmt::format("{} has no event {}", path, event));
  }
  const auto& row = *found;
  const auto fragments = FANIN_TRY(file.fragments_of(row));
  const auto missing = FANIN_TRY(file.missing_of(row));

  std::string text;
  const auto flags = text_of_flags(row.flags);
  fmt::format_to(std::back_inserter(text),
                 "event {} of run {}: {}, {} B, {}; attempt {}, incarnation {} of {}; {}\n",
                 row.event, file.info().run, counted(row.fragment_count, "fragment"), row.size,
                 flags.empty() ? "complete" : flags, row.attempt, row.incarnation,
                 printable(file.info().node), detail::format_utc(row.time_unix_ns, 9));
  if (const auto streams = streams_of(file.info(), row.streams); !streams.empty())
    fmt::format_to(std::back_inserter(text), "  in {}\n", streams);
  for (const auto& fragment : fragments)
    FANIN_TRY(append_fragment(text, file, fragment, dump_bytes));
  for (const auto& lacking : missing) {
    fmt::format_to(std::back_inserter(text), "  source {:<#10x} {:<20}    missing  {}\n",
                   lacking.source, name_of(file.info(), lacking.source), text_of(lacking.reason));
  }
  return text;
}

} // namespace fanin::storage
