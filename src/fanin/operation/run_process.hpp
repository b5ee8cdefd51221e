// The launcher of a run, in a process and a session of its own: it outlives run control, which
// finds it again by its socket.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/executive/child_input.hpp"
#include "fanin/executive/line_output.hpp"
#include "fanin/executive/requests.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/operation/run_files.hpp"

namespace fanin::operation {

// Thread: its loop.
class RunProcess {
public:
  struct Handlers {
    std::function<void(const json::Value&)> on_report;
    // It has ended, and its end file is there, if it has written one. `how`: if it was killed, or
    // failed; else empty. Must not destroy this.
    std::function<void(const std::string& how)> on_end;
  };

  // Starts `fanin` with these arguments, and with those that say where it listens. It gets the
  // texts of the configurations as they are recorded: files may change. The loop and `files`
  // outlive it. Errors: exhausted, refused.
  [[nodiscard]] static Result<std::unique_ptr<RunProcess>>
  start(net::Loop& loop, const RunFiles& files, RunNumber run, std::vector<std::string> arguments,
        const std::vector<UsedConfiguration>& used, Handlers handlers);
  // Finds one that was started before. Errors: not_found (it has ended), exhausted.
  [[nodiscard]] static Result<std::unique_ptr<RunProcess>>
  find(net::Loop& loop, const RunFiles& files, RunNumber run, Handlers handlers);

  ~RunProcess();
  RunProcess(const RunProcess&) = delete;
  RunProcess& operator=(const RunProcess&) = delete;

  void request(executive::Request request);

private:
  RunProcess(net::Loop& loop, const RunFiles& files, RunNumber run, Handlers handlers);
  [[nodiscard]] Result<> connect();
  void connect_again();
  void end(const std::string& how);

  net::Loop& loop_;
  const RunFiles& files_;
  RunNumber run_;
  Handlers handlers_;
  std::optional<executive::LineInput> input_;
  std::optional<executive::LineOutput> output_;
  pid_t child_ = 0; // 0: it is no child of this process
  std::unique_ptr<executive::ProcessEnd> exit_; // of the child
  bool started_ = false; // it outlives this
  bool ended_ = false;
  net::Timer connect_later_;
  net::Timer end_later_; // not in a callback of the connection or of the child
  std::string how_;
};

} // namespace fanin::operation
