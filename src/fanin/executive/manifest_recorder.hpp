// Writes what the event manager has to say about a run into the run's manifest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/log.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/storage/manifest_writer.hpp"

namespace fanin::executive {

// Thread: the event manager's loop.
class ManifestRecorder final : public RunRecord {
public:
  // Makes a manifest for the system's run. Errors: refused (there is one already, no permission),
  // not_found (`folder`), exhausted, internal. `hosts` are those of the builder units; empty:
  // they are on this one. `clock` measures the run, since the host's own may be set meanwhile.
  // `system` and `clock` outlive it.
  [[nodiscard]] static Result<std::unique_ptr<ManifestRecorder>>
  make(const std::string& folder, const builder::System& system, std::uint64_t run_id,
       std::vector<std::string> hosts, const Clock& clock, LogFunction log);

  void file(NodeId builder, Incarnation incarnation, const std::string& name) override;
  void winner(EventRange batch, Attempt attempt, NodeId builder, Incarnation incarnation) override;
  void summary(const builder::RunSummary& summary) override;

  // What a full disk has refused.
  bool retry() override;
  // Somebody else may have removed, renamed, replaced or cut the file; then it is written again at
  // its name.
  [[nodiscard]] bool check_file() override;
  [[nodiscard]] const std::string& path() const override { return writer_.path(); }

private:
  ManifestRecorder(storage::ManifestWriter writer, std::int64_t started_unix_ns,
                   const builder::System& system, std::vector<std::string> hosts,
                   const Clock& clock, LogFunction log);
  void check(const Result<>& written);

  storage::ManifestWriter writer_;
  const builder::System& system_;
  std::vector<std::string> hosts_;
  const Clock& clock_;
  std::int64_t started_unix_ns_;
  Time started_;
  LogFunction log_;
  bool complete_ = true; // nothing is waiting to be written
  bool lost_ = false; // and could not be written again
};

} // namespace fanin::executive
