#include "fanin/storage/detail/file_scan.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/core.h>

#include "fanin/base/try.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::storage::detail {
namespace {

constexpr std::uint64_t rows_at_once = 16384;
constexpr std::uint64_t fragments_at_once = 65536; // or one event
constexpr std::uint64_t window_size = 4U << 20;
constexpr std::uint32_t fragment_flags =
    event_bad_checksum | event_bad_number | event_truncated | event_in_doubt;

} // namespace

FileScan::FileScan(RunFileReader& reader, std::uint32_t file, VerifyResult& result, Lines& problems,
                   MissingRanges& missing)
    : reader_(reader), file_(file), result_(result), problems_(problems), missing_(missing) {
  required_count_ = static_cast<std::uint32_t>(
      std::ranges::count(reader.info().sources, true, &SourceInfo::required));
  for (const auto& source : reader.info().sources) counts_.push_back({.source = source.id});
}

void FileScan::problem(const std::string& text) {
  problems_.add(fmt::format("{}: {}", reader_.info().path, text));
}

void FileScan::unknown_source(EventNumber event, SourceId source) {
  problem(fmt::format("event {}: source {:#x} is not in /sources", event, source));
}

std::string FileScan::name_of(SourceId source) const {
  const auto& sources = reader_.info().sources;
  const auto at = std::ranges::lower_bound(sources, source, {}, &SourceInfo::id);
  auto id = fmt::format("{:#x}", source);
  if (at == sources.end() || at->id != source || at->name.empty() || at->name == id) return id;
  return fmt::format("{} ({})", id, at->name);
}

void FileScan::run(const std::function<void(std::uint64_t)>& checked) {
  checked_ = checked;
  Result<> done = read_gaps();
  std::vector<EventRow> rows;
  for (std::uint64_t first = 0; done && first < reader_.events(); first += rows.size()) {
    rows.resize(std::min(rows_at_once, reader_.events() - first));
    done = reader_.read_events(first, rows);
    // As many events as have a handy number of fragments between them.
    for (std::size_t begin = 0; done && begin < rows.size();) {
      auto end = begin;
      std::uint64_t fragments = 0;
      while (end < rows.size() &&
             (end == begin || fragments + rows[end].fragment_count <= fragments_at_once)) {
        fragments += rows[end++].fragment_count;
      }
      done = check_block(std::span(rows).subspan(begin, end - begin));
      begin = end;
    }
  }
  if (!done) problems_.add(done.error().text);
}

// In blocks: a table may claim any number of rows.
Result<> FileScan::read_gaps() {
  std::vector<GapRow> rows;
  for (std::uint64_t first = 0; first < reader_.gaps(); first += rows.size()) {
    rows.resize(std::min(rows_at_once, reader_.gaps() - first));
    FANIN_TRY(reader_.read_gaps(first, rows));
    std::ranges::copy_if(rows, std::back_inserter(gaps_),
                         [](const GapRow& gap) { return gap.first < gap.end; });
  }
  return {};
}

// Rows of consecutive events; their fragments are contiguous, because a writer only appends.
Result<> FileScan::check_block(std::span<const EventRow> rows) {
  std::uint64_t count = 0;
  const std::uint64_t first_missing = next_missing_;
  for (const auto& row : rows) {
    if (row.first_fragment != next_fragment_ + count || row.first_missing != next_missing_) {
      return fail(ErrorKind::malformed,
                  fmt::format("{}: event {} points to rows that are not its own; what follows was "
                              "not checked",
                              reader_.info().path, row.event));
    }
    count += row.fragment_count;
    next_missing_ += row.missing_count;
  }
  if (count > reader_.fragments() - next_fragment_ || next_missing_ > reader_.missing()) {
    return fail(ErrorKind::malformed,
                fmt::format("{}: event {} has fragments beyond the end of /fragments or /missing",
                            reader_.info().path, rows.back().event));
  }
  if (rows.size() == 1 && count > reader_.rows_of_event_max()) {
    return fail(ErrorKind::malformed, fmt::format("{}: event {} has more fragments than sources",
                                                  reader_.info().path, rows.front().event));
  }
  fragments_.resize(count);
  FANIN_TRY(reader_.read_fragments(next_fragment_, fragments_));
  next_fragment_ += count;
  FANIN_TRY(check_missing(rows, first_missing));
  auto rest = std::span<const FragmentRow>(fragments_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const EventRow& row = rows[i];
    check_event(row, rest.first(row.fragment_count), lacking_[i]);
    rest = rest.subspan(row.fragment_count);
  }
  return check_bytes();
}

// The rows in /missing of events in consecutive rows.
Result<> FileScan::check_missing(std::span<const EventRow> events, std::uint64_t first) {
  std::vector<MissingRow> rows;
  lacking_.assign(events.size(), {});
  const bool filtered = !reader_.info().streams.empty();
  auto owner = events.begin();
  std::uint64_t left = owner == events.end() ? 0 : owner->missing_count; // of its rows
  for (; first < next_missing_; first += rows.size()) {
    rows.resize(std::min(rows_at_once, next_missing_ - first));
    FANIN_TRY(reader_.read_missing(first, rows));
    for (const auto& row : rows) {
      for (; left == 0; left = owner->missing_count) ++owner;
      --left;
      if (row.event != owner->event) {
        problem(fmt::format("event {}: a row of event {} is in its rows of /missing", owner->event,
                            row.event));
      }
      const auto at = std::ranges::lower_bound(counts_, row.source, {}, &SourceCount::source);
      if (at == counts_.end() || at->source != row.source) {
        unknown_source(row.event, row.source);
        continue;
      }
      if (wire::is_missing_reason(row.reason)) {
        ++at->missing[row.reason];
      } else {
        problem(fmt::format("event {}, source {}: its reason {} is not known", row.event,
                            name_of(row.source), row.reason));
      }
      const auto source = static_cast<std::size_t>(at - counts_.begin());
      const bool withheld = filtered && !carried(owner->streams)[source];
      if (withheld) --at->withheld; // it was not there
      if (!reader_.info().sources[source].required) continue;
      Lacking& lacking = lacking_[static_cast<std::size_t>(owner - events.begin())];
      ++lacking.all;
      if (!withheld) ++lacking.carried;
    }
  }
  return {};
}

// Of each source, in the order of /sources: whether events of these streams have its fragments.
const std::vector<bool>& FileScan::carried(std::uint32_t streams) {
  const auto [at, is_new] = carried_.try_emplace(streams);
  if (!is_new) return at->second;
  for (const auto& source : reader_.info().sources)
    at->second.push_back(carries(reader_.info().streams, streams, source.id));
  return at->second;
}

// What the filter left out of an event; missing sources are counted here, too. Gives how many of
// them are required.
std::uint32_t FileScan::count_withheld(const EventRow& row) {
  if (reader_.info().streams.empty()) return 0;
  const auto& present = carried(row.streams);
  std::uint32_t required = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (present[i]) continue;
    ++counts_[i].withheld;
    if (reader_.info().sources[i].required) ++required;
  }
  return required;
}

void FileScan::check_event(const EventRow& row, std::span<const FragmentRow> fragments,
                           Lacking lacking) {
  std::uint64_t size = 0;
  std::uint32_t required = 0;
  std::uint32_t flags = 0;
  const auto& sources = reader_.info().sources;
  auto known = sources.begin();
  const FragmentRow* previous = nullptr;
  for (const auto& fragment : fragments) {
    size += fragment.size;
    flags |= fragment.flags;
    if (fragment.flags != 0) ++result_.flagged;
    check_fragment(row, fragment);
    if (previous != nullptr && fragment.source <= previous->source) {
      problem(fmt::format("event {}: source {} occurs twice, or out of order", row.event,
                          name_of(fragment.source)));
    }
    previous = &fragment;
    if (fragment.source == filter_source && !reader_.info().streams.empty()) continue;
    while (known != sources.end() && known->id < fragment.source) ++known;
    if (known == sources.end() || known->id != fragment.source) {
      unknown_source(row.event, fragment.source);
      continue;
    }
    ++counts_[static_cast<std::size_t>(known - sources.begin())].fragments;
    if (known->required) ++required;
  }
  if (size != row.size) {
    problem(fmt::format("event {}: its fragments have {} bytes, but its row says {}", row.event,
                        size, row.size));
  }
  check_row(row, flags);
  const bool filtered = !reader_.info().streams.empty();
  const std::uint32_t withheld = count_withheld(row);
  if (filtered && required + lacking.carried + withheld != required_count_) {
    problem(fmt::format("event {}: of {} required sources it has {}, lacks {}, and the filter left "
                        "out {}",
                        row.event, required_count_, required, lacking.carried, withheld));
  }
  const bool incomplete = filtered ? lacking.all != 0 : required != required_count_;
  if (incomplete != ((row.flags & event_incomplete) != 0)) {
    problem(fmt::format("event {} is marked as {}, and has {} of {} required sources", row.event,
                        incomplete ? "complete" : "incomplete", required, required_count_));
  }
  if (incomplete) note_missing(row, fragments);
  add_to_spans(row, incomplete);
}

// A fragment's row against that of its event.
void FileScan::check_fragment(const EventRow& row, const FragmentRow& fragment) {
  if (fragment.event != row.event) {
    problem(
        fmt::format("event {}: a fragment of event {} is in its rows", row.event, fragment.event));
  }
  if (fragment.attempt != row.attempt) {
    problem(fmt::format("event {} is of attempt {}, but its fragment of source {} is of attempt {}",
                        row.event, row.attempt, name_of(fragment.source), fragment.attempt));
  }
  if ((fragment.flags & ~fragment_flags) != 0) {
    problem(fmt::format("event {}, source {}: its flags {:#x} are not known", row.event,
                        name_of(fragment.source), fragment.flags));
  }
}

// What an event's row repeats: of the file's header, and of its fragments' flags. A fragment that
// is missing may have been damaged.
void FileScan::check_row(const EventRow& row, std::uint32_t flags) {
  const auto& info = reader_.info();
  if (row.node != info.node_index || row.incarnation != info.incarnation) {
    problem(fmt::format("event {}: its row is of node {}, incarnation {}, but the file is of node "
                        "{}, incarnation {}",
                        row.event, row.node, row.incarnation, info.node_index, info.incarnation));
  }
  const bool filtered = !info.streams.empty();
  if (filtered && row.streams == 0) {
    ++result_.rejected;
    flags |= event_rejected;
  }
  const std::uint32_t of_missing = row.missing_count == 0 ? 0 : fragment_flags;
  if (((row.flags ^ flags) & ~(event_incomplete | (row.flags & of_missing))) != 0) {
    problem(fmt::format("event {}: its flags are {:#x}, but those of its fragments together {:#x}",
                        row.event, row.flags & ~event_incomplete, flags));
  }
  const std::uint32_t known = filtered ? ((1U << info.streams.size()) - 1) | error_stream : 0;
  if ((row.streams & ~known) != 0) {
    problem(fmt::format("event {}: its streams are {:#x}, and the file has {} of them: the other "
                        "bits must be 0",
                        row.event, row.streams, info.streams.size()));
  }
}

void FileScan::add_to_spans(const EventRow& row, bool incomplete) {
  if (row.event == ~EventNumber{0}) return problem("an event has an impossible number");
  if (!spans_.empty()) {
    auto& last = spans_.back();
    if (last.events.end == row.event && last.attempt == row.attempt &&
        last.incomplete == incomplete) {
      ++last.events.end;
      return;
    }
  }
  spans_.push_back({.events = {row.event, row.event + 1},
                    .file = file_,
                    .attempt = row.attempt,
                    .incomplete = incomplete});
}

// The required sources that an event lacks, by name.
void FileScan::note_missing(const EventRow& row, std::span<const FragmentRow> fragments) {
  if (missing_.full()) return missing_.leave_out();
  const auto missing = reader_.missing_of(row);
  std::string names;
  for (const auto& source : reader_.info().sources) {
    const auto present = std::ranges::find(fragments, source.id, &FragmentRow::source);
    if (!source.required || present != fragments.end()) continue;
    const char* reason = "and nothing says why";
    if (missing) {
      const auto at = std::ranges::find(*missing, source.id, &MissingRow::source);
      if (at == missing->end() && !reader_.info().streams.empty()) continue; // the filter left it
      if (at != missing->end()) reason = wire::text_of_missing(at->reason).text;
    }
    names += fmt::format("{}source {}, {}", names.empty() ? "" : "; ", name_of(source.id), reason);
  }
  missing_.add(row.event, names);
}

// In the order in which they lie in the file, so that it is read from front to back.
Result<> FileScan::check_bytes() {
  const bool checksums = reader_.info().integrity;
  std::ranges::sort(fragments_, {}, &FragmentRow::offset);
  std::uint64_t checked = 0;
  for (const auto& fragment : fragments_) {
    ++result_.fragments;
    result_.bytes += fragment.size;
    if (fragment.offset > reader_.bytes() || fragment.size > reader_.bytes() - fragment.offset) {
      problem(fmt::format("event {}, source {}: bytes {} to {} are beyond the end of /bytes",
                          fragment.event, name_of(fragment.source), fragment.offset,
                          fragment.offset + fragment.size));
      continue;
    }
    const auto checksum = FANIN_TRY(checksum_of(fragment));
    if (checksums && checksum != fragment.crc32c) {
      ++result_.crc_errors;
      const bool known = (fragment.flags & event_bad_checksum) != 0;
      problem(fmt::format("event {}, source {}: checksum of its {} bytes is {:08x}, and should be "
                          "{:08x}{}",
                          fragment.event, name_of(fragment.source), fragment.size, checksum,
                          fragment.crc32c, known ? " (seen and marked when it was built)" : ""));
    }
    checked += fragment.size;
    if (checked >= window_size) checked_(std::exchange(checked, 0));
  }
  checked_(checked);
  return {};
}

Result<std::uint32_t> FileScan::checksum_of(const FragmentRow& fragment) {
  std::uint32_t checksum = 0;
  auto at = fragment.offset;
  const auto end = fragment.offset + fragment.size;
  while (at < end) {
    if (at < window_begin_ || at >= window_begin_ + window_.size()) {
      window_.resize(std::min(window_size, reader_.bytes() - at));
      window_begin_ = at;
      if (auto read = reader_.read_bytes(at, window_); !read) {
        window_.clear();
        return std::unexpected(std::move(read.error()));
      }
    }
    const auto in_window = at - window_begin_;
    const auto length = std::min(end - at, window_.size() - in_window);
    checksum = wire::crc32c(std::span(window_).subspan(in_window, length), checksum);
    at += length;
  }
  return checksum;
}

} // namespace fanin::storage::detail
