#include "fanin/storage/verify.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "fanin/base/attempt.hpp"
#include "fanin/base/counted.hpp"
#include "fanin/storage/detail/file_scan.hpp"
#include "fanin/storage/manifest.hpp"
#include "fanin/storage/run_file_reader.hpp"

namespace fanin::storage {
namespace {

using detail::EventSpan;
using detail::Lines;
using detail::merged;

struct ScannedFile {
  RunFileInfo info;
  std::vector<EventSpan> spans;
  std::vector<GapRow> gaps;
  std::vector<detail::SourceCount> counts;
};

struct ScannedRun {
  std::vector<ScannedFile> files;
  detail::MissingRanges missing;
};

struct Manifests {
  std::vector<Manifest> given;
  std::map<std::string, Result<Manifest>> beside; // files, by path
};

// All files of one run, against each other.
class RunCheck {
public:
  RunCheck(std::vector<ScannedFile> files, VerifyResult& result, Lines& problems, Lines& notes)
      : files_(std::move(files)), result_(result), problems_(problems), notes_(notes) {}

  void run(const Manifests& manifests) {
    find_manifest(manifests);
    find_other_runs(manifests.given);
    count_events();
    count_gaps();
    compare_with_manifest();
  }

private:
  void find_manifest(const Manifests& manifests);
  void find_manifest_beside(const Manifests& manifests);
  void find_other_runs(std::span<const Manifest> given);
  void overlay(const ManifestWinner& winner);
  [[nodiscard]] std::vector<EventSpan> winning_gaps() const;
  void count_events();
  void count_segment(EventRange range, std::span<const EventSpan* const> copies);
  [[nodiscard]] const EventSpan& choose(EventRange range, std::span<const EventSpan* const> copies);
  [[nodiscard]] const ManifestWinner* winner_of(EventNumber event) const;
  [[nodiscard]] EventNumber next_winner_boundary(EventNumber event) const;
  [[nodiscard]] bool is_of(const EventSpan& span, const ManifestWinner& winner) const;
  void count_gaps();
  void compare_with_manifest();
  void compare_gaps(const ManifestSummary& summary);
  void compare_sources(const ManifestSummary& summary);
  void problem(const std::string& text) {
    problems_.add(fmt::format("run {}: {}", files_.front().info.run, text));
  }

  std::vector<ScannedFile> files_;
  VerifyResult& result_;
  Lines& problems_;
  Lines& notes_;
  std::optional<Manifest> manifest_;
  std::map<EventNumber, ManifestWinner> winners_; // by first event; not overlapping
  std::map<std::string, std::string> not_given_; // files of the manifest, with their hosts
  std::uint64_t events_ = 0;
  std::uint64_t incomplete_ = 0;
  std::uint64_t other_copies_ = 0; // that do not count
  EventNumber last_ = 0; // all events are below
  std::vector<GapRow> gaps_; // of all files
};

// Given, under any name, or beside the files.
void RunCheck::find_manifest(const Manifests& manifests) {
  const auto own = std::ranges::find(manifests.given, files_.front().info.run,
                                     [](const Manifest& one) { return one.header.run; });
  if (own != manifests.given.end()) {
    manifest_ = *own;
  } else {
    find_manifest_beside(manifests);
  }
  if (!manifest_) return;
  for (const auto& note : manifest_->notes) notes_.add(note);
  for (const auto& damage : manifest_->damage) problems_.add(damage);
  for (const auto& winner : manifest_->winners) overlay(winner);
  for (const auto& file : manifest_->files) not_given_[file.file] = file.host;
  for (const auto& file : files_) {
    if (not_given_.erase(std::filesystem::path(file.info.path).filename().string()) != 0) continue;
    notes_.add(fmt::format("{}: {} does not name it", file.info.path, manifest_->path));
  }
  for (const auto& [name, host] : not_given_) {
    notes_.add(fmt::format("{}: {}{}{} belongs to the run and was not checked", manifest_->path,
                           name, host.empty() ? "" : " of host ", host));
  }
}

void RunCheck::find_manifest_beside(const Manifests& manifests) {
  const auto run = files_.front().info.run;
  for (const auto& file : files_) {
    const auto path = std::filesystem::path(file.info.path).parent_path() / manifest_name(run);
    const auto known = manifests.beside.find(path.string());
    std::error_code ignored;
    if (known == manifests.beside.end() && !std::filesystem::exists(path, ignored)) continue;
    auto manifest = known != manifests.beside.end() ? known->second : read_manifest(path.string());
    if (!manifest) return problems_.add(manifest.error().text);
    if (manifest->header.run != run) {
      return problems_.add(fmt::format("{}: it is the manifest of run {}, beside files of run {}",
                                       manifest->path, manifest->header.run, run));
    }
    manifest_ = std::move(*manifest);
    return;
  }
}

// Another run may have had the same number.
void RunCheck::find_other_runs(std::span<const Manifest> given) {
  const auto run = files_.front().info.run;
  const auto& first = files_.front().info;
  const std::string& own = manifest_ ? manifest_->path : first.path;
  const std::uint64_t own_id = manifest_ ? manifest_->header.run_id : first.run_id;
  const auto compare = [&](const std::string& path, std::uint64_t id) {
    if (id == own_id) return;
    problems_.add(fmt::format("{}: it belongs to another run, or slice, than {}: both have the "
                              "run number {}, but another run_id. Check each run and each slice "
                              "by itself",
                              path, own, run));
  };
  for (const auto& manifest : given) {
    if (manifest.header.run == run) compare(manifest.path, manifest.header.run_id);
  }
  for (const auto& file : files_) compare(file.info.path, file.info.run_id);
}

// A later line overrules what it covers. Lines name whole batches, so a cut is the exception.
void RunCheck::overlay(const ManifestWinner& winner) {
  auto at = winners_.lower_bound(winner.events.first);
  if (at != winners_.begin() && std::prev(at)->second.events.end > winner.events.first) --at;
  while (at != winners_.end() && at->second.events.first < winner.events.end) {
    const auto old = at->second;
    at = winners_.erase(at);
    if (old.events.first < winner.events.first) {
      auto& kept = winners_[old.events.first] = old;
      kept.events.end = winner.events.first;
    }
    if (old.events.end > winner.events.end) {
      auto& kept = winners_[winner.events.end] = old;
      kept.events.first = winner.events.end;
    }
  }
  winners_[winner.events.first] = winner;
}

// The acknowledged copy of a batch may say that no source has a number, where an earlier copy has
// an event: its readout unit died between the two.
std::vector<EventSpan> RunCheck::winning_gaps() const {
  std::vector<EventSpan> spans;
  for (std::uint32_t file = 0; file < files_.size(); ++file) {
    for (const auto& gap : merged(files_[file].gaps)) {
      auto at = winners_.upper_bound(gap.first);
      if (at != winners_.begin()) --at;
      for (; at != winners_.end() && at->first < gap.end; ++at) {
        const auto& winner = at->second;
        EventSpan span{.events = {std::max(gap.first, winner.events.first),
                                  std::min(gap.end, winner.events.end)},
                       .file = file,
                       .attempt = winner.attempt,
                       .gap = true};
        if (!span.events.empty() && is_of(span, winner)) spans.push_back(span);
      }
    }
  }
  return spans;
}

const ManifestWinner* RunCheck::winner_of(EventNumber event) const {
  auto at = winners_.upper_bound(event);
  if (at == winners_.begin()) return nullptr;
  --at;
  return at->second.events.contains(event) ? &at->second : nullptr;
}

EventNumber RunCheck::next_winner_boundary(EventNumber event) const {
  if (const auto* winner = winner_of(event); winner != nullptr) return winner->events.end;
  const auto at = winners_.upper_bound(event);
  return at == winners_.end() ? ~EventNumber{0} : at->first;
}

bool RunCheck::is_of(const EventSpan& span, const ManifestWinner& winner) const {
  const auto& info = files_[span.file].info;
  return span.attempt == winner.attempt && info.node == winner.node &&
         info.incarnation == winner.incarnation;
}

// Walks along the event numbers; between two boundaries the same copies are there.
void RunCheck::count_events() {
  const auto gaps = winning_gaps();
  std::vector<const EventSpan*> spans;
  for (const auto& file : files_) {
    for (const auto& span : file.spans) spans.push_back(&span);
  }
  for (const auto& gap : gaps) spans.push_back(&gap);
  std::ranges::sort(spans, {},
                    [](const auto* span) { return std::pair(span->events.first, span->file); });
  std::vector<const EventSpan*> active;
  auto next = spans.begin();
  EventNumber at = 0;
  while (next != spans.end() || !active.empty()) {
    if (active.empty()) at = (*next)->events.first;
    while (next != spans.end() && (*next)->events.first == at) active.push_back(*next++);
    auto end = next_winner_boundary(at);
    if (next != spans.end()) end = std::min(end, (*next)->events.first);
    for (const auto* span : active) end = std::min(end, span->events.end);
    count_segment({at, end}, active);
    at = last_ = end;
    std::erase_if(active, [&](const auto* span) { return span->events.end == at; });
  }
  result_.events += events_;
  result_.incomplete += incomplete_;
  result_.complete += events_ - incomplete_;
}

void RunCheck::count_segment(EventRange range, std::span<const EventSpan* const> copies) {
  const auto& chosen = choose(range, copies);
  if (!chosen.gap) events_ += range.count();
  if (chosen.incomplete) incomplete_ += range.count();
  const auto& info = files_[chosen.file].info;
  for (const auto* copy : copies) {
    if (copy == &chosen || copy->gap) continue;
    const auto& other = files_[copy->file].info;
    other_copies_ += range.count();
    // The same attempt again in a later part: its writer had to give up a file and wrote on.
    const bool rewritten = copy->attempt == chosen.attempt && other.node == info.node &&
                           other.incarnation == info.incarnation && other.part != info.part;
    const auto* winner = winner_of(range.first);
    const bool overruled = winner != nullptr && is_of(chosen, *winner) && !is_of(*copy, *winner);
    if (rewritten || overruled || is_later(chosen.attempt, copy->attempt)) {
      result_.superseded += range.count();
    } else {
      result_.duplicates += range.count();
      problem(fmt::format("events {} to {} are in {} and in {}, both of attempt {}", range.first,
                          range.end - 1, info.path, other.path, copy->attempt));
    }
  }
}

// The copy that counts: what the manifest says, else the latest attempt; of copies by the same
// writer, the one in the last part.
const EventSpan& RunCheck::choose(EventRange range, std::span<const EventSpan* const> copies) {
  const auto* winner = winner_of(range.first);
  const auto yields = [&](const EventSpan* one, const EventSpan* other) {
    const auto wins = [&](const EventSpan* span) {
      return winner != nullptr && is_of(*span, *winner);
    };
    if (wins(one) != wins(other)) return wins(other);
    if (one->attempt != other->attempt) return is_later(other->attempt, one->attempt);
    const auto rank = [&](const EventSpan* span) {
      return std::pair(!span->gap, files_[span->file].info.part);
    };
    return rank(one) < rank(other);
  };
  const auto& chosen = **std::ranges::max_element(copies, yields);
  // Where files are left out, that has been said, and this is what follows from it.
  if (winner != nullptr && !is_of(chosen, *winner) && not_given_.empty()) {
    problem(fmt::format("events {} to {}: the copy that was acknowledged, attempt {} of {}, "
                        "incarnation {}, is in none of the files",
                        range.first, range.end - 1, winner->attempt, winner->node,
                        winner->incarnation));
  }
  return chosen;
}

void RunCheck::count_gaps() {
  std::vector<GapRow> gaps;
  for (const auto& file : files_) gaps.insert(gaps.end(), file.gaps.begin(), file.gaps.end());
  gaps_ = merged(std::move(gaps));
  for (const auto& gap : gaps_) result_.gaps += gap.end - gap.first;
}

void RunCheck::compare_with_manifest() {
  if (!manifest_) return;
  if (!manifest_->summary) {
    return notes_.add(fmt::format("{}: the run did not end in good order", manifest_->path));
  }
  if (!not_given_.empty()) return;
  const auto& summary = *manifest_->summary;
  // What was stored when the run was cut off, or its builder unit died, and never acknowledged: the
  // event manager counts it as lost.
  const auto more = events_ - std::min(events_, summary.built);
  const bool explained = events_ >= summary.built && more <= summary.lost;
  if (!explained) {
    problem(fmt::format("the manifest counts {} built, and the files hold {}",
                        counted(summary.built, "event"), events_));
  } else if (more != 0) {
    notes_.add(fmt::format("{}: {} of the {} events that it counts as lost are in the files: they "
                           "were stored and not acknowledged",
                           manifest_->path, more, summary.lost));
  } else if (summary.lost != 0) {
    notes_.add(fmt::format("{}: the run lost {} that no file has", manifest_->path,
                           counted(summary.lost, "event")));
  }
  if (incomplete_ < summary.incomplete || incomplete_ - summary.incomplete > more) {
    problem(fmt::format("the manifest counts {} incomplete events, and the files hold {}",
                        summary.incomplete, incomplete_));
  }
  if (!summary.balanced) notes_.add("the run's ledger was not balanced");
  // What was cut off is counted on one side only.
  if (summary.lost != 0 || more != 0) return;
  compare_gaps(summary);
  if (other_copies_ == 0) compare_sources(summary);
}

// No batch tells of a gap after the last event.
void RunCheck::compare_gaps(const ManifestSummary& summary) {
  std::uint64_t listed = 0;
  std::vector<GapRow> known;
  for (const EventRange& gap : summary.gap_ranges) {
    listed += gap.count();
    if (gap.first < last_) known.push_back({gap.first, std::min(gap.end, last_)});
  }
  if (listed != summary.gaps) return; // these are the first ones only
  known = merged(std::move(known));
  const auto differ = std::ranges::mismatch(known, gaps_, [](const GapRow& a, const GapRow& b) {
    return a.first == b.first && a.end == b.end;
  });
  if (differ.in1 == known.end() && differ.in2 == gaps_.end()) return;
  const auto text = [](const auto& at, const auto& end) {
    return at == end ? "none" : fmt::format("{} to {}", at->first, at->end - 1);
  };
  problem(fmt::format("gaps: the manifest's next one is {}, and that of the files is {}",
                      text(differ.in1, known.end()), text(differ.in2, gaps_.end())));
}

// The ledger and the files say the same of each source.
void RunCheck::compare_sources(const ManifestSummary& summary) {
  std::map<SourceId, detail::SourceCount> counts;
  for (const auto& file : files_) {
    for (const auto& count : file.counts) {
      auto& sum = counts[count.source];
      sum.fragments += count.fragments;
      sum.withheld += count.withheld;
      for (std::size_t i = 0; i < wire::missing_reasons; ++i) sum.missing[i] += count.missing[i];
    }
  }
  for (const auto& source : summary.sources) {
    if (!counts.contains(source.id)) continue; // merged: files have what it merges
    const auto& count = counts[source.id];
    if (count.fragments + count.withheld != source.built) {
      problem(fmt::format(
          "source {:#x}: the manifest counts {} fragments built, and the files "
          "hold {}{}",
          source.id, source.built, count.fragments,
          count.withheld == 0 ? "" : fmt::format("; the filter left out {}", count.withheld)));
    }
    for (std::size_t i = 1; i < wire::missing_reasons; ++i) {
      if (count.missing[i] == source.missing[i]) continue;
      problem(fmt::format("source {:#x}: the manifest counts {} events that lack it ({}), and the "
                          "files hold {}",
                          source.id, source.missing[i], name(static_cast<wire::MissingReason>(i)),
                          count.missing[i]));
    }
  }
}

// A file has the name that a manifest knows, and was put there from another run.
void find_files_of_other_runs(std::span<const Manifest> manifests,
                              std::span<const std::string> unnamed,
                              const std::map<RunNumber, ScannedRun>& runs, Lines& problems) {
  std::map<std::string, const RunFileInfo*> scanned; // by name
  for (const auto& [number, run] : runs) {
    for (const auto& file : run.files) {
      const auto name = std::filesystem::path(file.info.path).filename().string();
      scanned[name] = &file.info;
      const bool is_unnamed = std::ranges::find(unnamed, file.info.path) != unnamed.end();
      if (!is_unnamed || run_of(name) == number) continue;
      problems.add(fmt::format("{}: it is a file of run {}, but its name is that of another run",
                               file.info.path, number));
    }
  }
  for (const auto& manifest : manifests) {
    for (const auto& file : manifest.files) {
      const auto found = scanned.find(file.file);
      if (found == scanned.end() || found->second->run == manifest.header.run) continue;
      problems.add(fmt::format("{}: it is a file of run {}, and not of run {}, as {} says",
                               found->second->path, found->second->run, manifest.header.run,
                               manifest.path));
    }
  }
}

// Call it before the files are read: a run may go on, or end, meanwhile. A file whose name does not
// say its run has to be read first.
Manifests read_manifests(const VerifyOptions& options, const std::map<std::string, bool>& paths,
                         Lines& problems) {
  Manifests manifests;
  for (const auto& path : options.manifests) {
    auto manifest = read_manifest(path);
    if (manifest) {
      manifests.given.push_back(std::move(*manifest));
    } else {
      problems.add(manifest.error().text);
    }
  }
  for (const auto& [path, may_be_gone] : paths) {
    const std::filesystem::path file(path);
    const auto run = run_of(file.filename().string());
    if (!run) continue;
    const auto beside = (file.parent_path() / manifest_name(*run)).string();
    std::error_code ignored;
    const bool known = manifests.beside.contains(beside) ||
                       std::ranges::find(options.manifests, beside) != options.manifests.end();
    if (known || !std::filesystem::exists(beside, ignored)) continue;
    manifests.beside.emplace(beside, read_manifest(beside));
  }
  return manifests;
}

std::uint64_t file_size(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

void scan_file(const std::string& path, bool may_be_gone, std::map<RunNumber, ScannedRun>& runs,
               VerifyResult& result, Lines& problems, Lines& notes,
               const std::function<void(std::uint64_t)>& progress) {
  const auto reader = RunFileReader::open(path);
  if (!reader && may_be_gone && reader.error().kind == ErrorKind::not_found) return;
  if (!reader) return problems.add(reader.error().text);
  const auto& info = (*reader)->info();
  if (!info.damage.empty()) {
    problems.add(fmt::format("{}: {}", path, info.damage));
  } else if (!info.finished) {
    notes.add(fmt::format("{}: not closed: it is being written, or its writer was killed", path));
  }
  auto& [files, missing] = runs[info.run];
  detail::FileScan scan(**reader, static_cast<std::uint32_t>(files.size()), result, problems,
                        missing);
  scan.run(progress);
  files.push_back(
      {.info = info, .spans = scan.spans(), .gaps = scan.gaps(), .counts = scan.counts()});
  ++result.files;
}

} // namespace

Result<VerifyResult> verify(std::span<const std::string> files, const VerifyOptions& options) {
  if (files.empty() && options.manifests.empty())
    return fail(ErrorKind::usage, "no files to verify");
  VerifyResult result;
  Lines problems(result.problems, result.problems_left_out, options.lines_max);
  Lines notes(result.notes, result.notes_left_out, options.lines_max);
  Lines missing(result.missing, result.missing_left_out, options.lines_max);

  std::map<std::string, bool> paths; // whether it may be gone. A file with two names is one
  std::set<std::pair<dev_t, ino_t>> seen;
  const auto add = [&](const std::string& path, bool may_be_gone) {
    struct stat status{};
    const bool exists = ::stat(path.c_str(), &status) == 0;
    if (!exists || seen.emplace(status.st_dev, status.st_ino).second)
      paths.emplace(path, may_be_gone);
  };
  for (const auto& path : files) add(path, false);
  for (const auto& path : options.unnamed) add(path, true);
  std::uint64_t total = 0;
  for (const auto& [path, may_be_gone] : paths) total += file_size(path);
  const Manifests manifests = read_manifests(options, paths, problems);
  std::map<RunNumber, ScannedRun> runs;
  std::uint64_t before = 0;
  for (const auto& [path, may_be_gone] : paths) {
    std::uint64_t done = before;
    const auto progress = [&](std::uint64_t checked) {
      done += checked;
      if (options.progress) options.progress(std::min(done, total), total);
    };
    scan_file(path, may_be_gone, runs, result, problems, notes, progress);
    before += file_size(path);
  }
  find_files_of_other_runs(manifests.given, options.unnamed, runs, problems);
  for (auto& [number, run] : runs) {
    for (std::string& line : run.missing.lines(number)) missing.add(std::move(line));
    result.missing_left_out += run.missing.left_out();
    RunCheck(std::move(run.files), result, problems, notes).run(manifests);
  }
  return result;
}

} // namespace fanin::storage
