// The files by which run control (`fanin serve`) finds what it has started, in a folder beside its
// registry: for runs.sqlite, runs.sqlite.control/.
#pragma once

#include <string>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/operation/registry.hpp"

namespace fanin::operation {

// That folder, whatever links lead to the registry.
[[nodiscard]] std::string control_folder(const std::string& registry);

// Thread: any.
class RunFiles {
public:
  // Makes the folder, for its user alone. Errors: refused.
  [[nodiscard]] static Result<RunFiles> beside(const std::string& registry);

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string path(std::string_view name) const;
  // How a run ended: its launcher writes it, run control takes it into the registry.
  [[nodiscard]] std::string end_file(RunNumber run) const;
  // What the launcher and its nodes write on standard error.
  [[nodiscard]] std::string error_file(RunNumber run) const;

  // Where a launcher is reached. A socket exists as long as somebody holds what listen_for() gave:
  // that is the launcher, which has inherited it. Errors: exhausted, refused.
  [[nodiscard]] Result<Descriptor> listen_for(RunNumber run) const;
  // Errors: not_found (there is no launcher of this run), exhausted.
  [[nodiscard]] Result<Descriptor> connect_to(RunNumber run) const;
  // The same under other names. `name` may be longer than a socket's path can be.
  [[nodiscard]] Result<Descriptor> listen_at(const std::string& name) const;
  [[nodiscard]] Result<Descriptor> connect_at(const std::string& name) const;

  // Of an ended run. Errors: not_found (it has written none), malformed.
  [[nodiscard]] Result<RunEnd> read_end(RunNumber run) const;
  // All of a run.
  void remove(RunNumber run) const;

private:
  RunFiles(std::string folder, Descriptor descriptor)
      : folder_(std::move(folder)), descriptor_(std::move(descriptor)) {}
  [[nodiscard]] std::string socket_name(RunNumber run) const;

  std::string folder_;
  Descriptor descriptor_; // of the folder: a socket's path is short with it
};

[[nodiscard]] json::Value to_json(const RunEnd& end);
[[nodiscard]] RunEnd end_of(const json::Value& value);

// Durably: it is whole or not there. Errors: refused, exhausted.
[[nodiscard]] Result<> write_end(const std::string& path, const RunEnd& end);

} // namespace fanin::operation
