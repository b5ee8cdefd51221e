#include "fanin/executive/manifest_recorder.hpp"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/source/fragment_queue.hpp"

namespace fanin::executive {

Result<std::unique_ptr<ManifestRecorder>>
ManifestRecorder::make(const std::string& folder, const builder::System& system,
                       std::uint64_t run_id, std::vector<std::string> hosts, const Clock& clock,
                       LogFunction log) {
  const std::int64_t started = unix_ns();
  auto writer = FANIN_TRY(
      storage::ManifestWriter::create(folder, {.run = system.run,
                                               .run_id = run_id,
                                               .protocol = std::string(name(system.protocol)),
                                               .integrity = system.integrity,
                                               .started_unix_ns = started}));
  return std::unique_ptr<ManifestRecorder>(new ManifestRecorder(
      std::move(writer), started, system, std::move(hosts), clock, std::move(log)));
}

ManifestRecorder::ManifestRecorder(storage::ManifestWriter writer, std::int64_t started_unix_ns,
                                   const builder::System& system, std::vector<std::string> hosts,
                                   const Clock& clock, LogFunction log)
    : writer_(std::move(writer)),
      system_(system),
      hosts_(std::move(hosts)),
      clock_(clock),
      started_unix_ns_(started_unix_ns),
      started_(clock.now()),
      log_(std::move(log)) {}

// A manifest that cannot be written does not end the run: without it, verify takes the highest
// attempt of each batch.
void ManifestRecorder::check(const Result<>& written) {
  if (!written && complete_) {
    log_(LogLevel::error,
         fmt::format("the run's manifest is not complete: {}", written.error().text));
  } else if (written && !complete_) {
    log_(LogLevel::info, "the run's manifest is complete again");
  }
  complete_ = written.has_value();
}

bool ManifestRecorder::retry() {
  if (!complete_) check(writer_.flush());
  return complete_;
}

bool ManifestRecorder::check_file() {
  if (writer_.intact()) {
    lost_ = false;
    return false;
  }
  const auto restored = writer_.restore();
  if (!restored && lost_) return false; // that was said
  lost_ = !restored;
  log_(LogLevel::error,
       fmt::format(
           "{}, the run's manifest, was removed, renamed, replaced or cut while the run went on: "
           "it {}; the run will end with exit status 1",
           path(),
           restored ? std::string("was written again")
                    : fmt::format("cannot be written again yet ({})", restored.error().text)));
  return true;
}

void ManifestRecorder::file(NodeId builder, Incarnation incarnation, const std::string& name) {
  check(writer_.add(storage::ManifestFile{.node = system_.builder_units[builder],
                                          .incarnation = incarnation,
                                          .file = std::filesystem::path(name).filename().string(),
                                          .host = hosts_[builder]}));
}

void ManifestRecorder::winner(EventRange batch, Attempt attempt, NodeId builder,
                              Incarnation incarnation) {
  check(writer_.add(storage::ManifestWinner{.events = system_.slice.detector_range(batch),
                                            .attempt = attempt,
                                            .node = system_.builder_units[builder],
                                            .incarnation = incarnation}));
}

void ManifestRecorder::summary(const builder::RunSummary& summary) {
  storage::ManifestSummary record{.built = summary.events_built,
                                  .incomplete = summary.events_incomplete,
                                  .lost = summary.events_lost,
                                  .balanced = summary.balanced,
                                  .ended_unix_ns =
                                      started_unix_ns_ + (clock_.now() - started_).count(),
                                  .gaps = summary.gaps,
                                  .gap_ranges = summary.gap_list};
  for (auto& gap : record.gap_ranges) gap = system_.slice.detector_range(gap);
  for (const auto& result : summary.sources) {
    auto& source = record.sources.emplace_back();
    source.id = result.source.id;
    source.name = result.source.name;
    source.read = result.ledger.read;
    source.built = result.ledger.built;
    source.late = result.ledger.late;
    source.dropped = result.ledger.dropped;
    source.lost = result.ledger.lost;
    source.missing = result.missing;
    source.dropped_by_reason = result.dropped_by_reason();
  }
  check(writer_.finish(record));
}

} // namespace fanin::executive
