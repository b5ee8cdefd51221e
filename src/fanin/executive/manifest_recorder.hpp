// Writes what the event manager has to say about a run into the run's manifest.
#pragma once

#include <memory>
#include <string>

#include "fanin/base/log.hpp"
#include "fanin/builder/event_manager.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/storage/manifest.hpp"

namespace fanin::executive {

// Thread: the event manager's loop.
class ManifestRecorder final : public builder::RunRecorder {
public:
  // Makes `folder` and in it a manifest for the system's run. Errors: refused (there is one
  // already, no permission), exhausted, internal. `system` outlives it.
  [[nodiscard]] static Result<std::unique_ptr<ManifestRecorder>>
  make(const std::string& folder, const builder::System& system, LogFunction log);

  void file(NodeId builder, Incarnation incarnation, const std::string& name) override;
  void winner(EventRange batch, Attempt attempt, NodeId builder, Incarnation incarnation) override;
  void summary(const builder::RunSummary& summary) override;

  [[nodiscard]] const std::string& path() const { return writer_.path(); }

private:
  ManifestRecorder(storage::ManifestWriter writer, const builder::System& system, LogFunction log);
  void check(const Result<>& written);

  storage::ManifestWriter writer_;
  const builder::System& system_;
  LogFunction log_;
  bool complained_ = false;
};

} // namespace fanin::executive
