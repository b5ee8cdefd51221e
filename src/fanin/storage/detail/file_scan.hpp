// Checks one run file by itself, and tells which events it holds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/storage/detail/missing_ranges.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/run_file_reader.hpp"
#include "fanin/storage/verify.hpp"

namespace fanin::storage::detail {

// Consecutive events in consecutive rows, alike in what follows.
struct EventSpan {
  EventRange events;
  std::uint32_t file = 0; // index of the caller's
  Attempt attempt = 0;
  bool incomplete = false;
  bool gap = false; // no events: numbers that no source has
};

// Of one source, in all copies of a file.
struct SourceCount {
  SourceId source = 0;
  std::uint64_t fragments = 0;
  std::uint64_t withheld = 0; // by the filter: of rejected events, or masked in all their streams
  wire::MissingCounts missing{};
};

// Collects lines up to a limit and counts the rest.
class Lines {
public:
  Lines(std::vector<std::string>& lines, std::uint64_t& left_out, std::size_t max)
      : lines_(lines), left_out_(left_out), max_(max) {}
  void add(std::string line) {
    if (lines_.size() >= max_)
      ++left_out_;
    else
      lines_.push_back(std::move(line));
  }

private:
  std::vector<std::string>& lines_;
  std::uint64_t& left_out_;
  std::size_t max_;
};

// Thread: one.
class FileScan {
public:
  // All references must outlive the scan. `file` is put into the spans.
  FileScan(RunFileReader& reader, std::uint32_t file, VerifyResult& result, Lines& problems,
           MissingRanges& missing);

  // `checked` is called with the bytes of payload just checked. A file that turns out to be corrupt
  // halfway is a problem; what was found before counts.
  void run(const std::function<void(std::uint64_t)>& checked);
  [[nodiscard]] const std::vector<EventSpan>& spans() const { return spans_; }
  [[nodiscard]] const std::vector<GapRow>& gaps() const { return gaps_; }
  [[nodiscard]] const std::vector<SourceCount>& counts() const { return counts_; }

private:
  struct Lacking { // required sources that have a row in /missing
    std::uint32_t all = 0;
    std::uint32_t carried = 0; // without those that the filter would have left out
  };
  [[nodiscard]] Result<> read_gaps();
  [[nodiscard]] Result<> check_block(std::span<const EventRow> rows);
  [[nodiscard]] Result<> check_missing(std::span<const EventRow> events, std::uint64_t first);
  void check_event(const EventRow& row, std::span<const FragmentRow> fragments, Lacking lacking);
  void check_fragment(const EventRow& row, const FragmentRow& fragment);
  void check_row(const EventRow& row, std::uint32_t flags);
  [[nodiscard]] const std::vector<bool>& carried(std::uint32_t streams);
  std::uint32_t count_withheld(const EventRow& row);
  void add_to_spans(const EventRow& row, bool incomplete);
  void note_missing(const EventRow& row, std::span<const FragmentRow> fragments);
  [[nodiscard]] Result<> check_bytes();
  [[nodiscard]] Result<std::uint32_t> checksum_of(const FragmentRow& fragment);
  void problem(const std::string& text);
  void unknown_source(EventNumber event, SourceId source);
  [[nodiscard]] std::string name_of(SourceId source) const;

  RunFileReader& reader_;
  std::uint32_t file_;
  VerifyResult& result_;
  Lines& problems_;
  MissingRanges& missing_;
  std::function<void(std::uint64_t)> checked_;

  std::uint32_t required_count_ = 0;
  std::uint64_t next_fragment_ = 0; // rows of /fragments that event rows have accounted for
  std::uint64_t next_missing_ = 0;
  std::vector<SourceCount> counts_; // as the file's sources
  std::vector<Lacking> lacking_; // of each event of the block at hand
  std::map<std::uint32_t, std::vector<bool>> carried_; // by stream bits: of each source
  std::vector<FragmentRow> fragments_;
  std::vector<std::byte> window_; // of /bytes, from window_begin_
  std::uint64_t window_begin_ = 0;
  std::vector<EventSpan> spans_;
  std::vector<GapRow> gaps_;
};

} // namespace fanin::storage::detail
