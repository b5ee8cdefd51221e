// A process of a benchmark on a host of a list (executive/host_process.hpp), or where
// `fanin bench ... --listen` listens (serve_ends()). There it is the one member of a ProcessGroup,
// about which questions are answered.
//
//   to it     {"part": {...}}                            once: bodies.hpp
//             {"sample": true}, {"terminate": true}      as ProcessGroup's
//   from it   {"state": "ready", "running", "ended" or "failed", "text", "remark", "latency"[]},
//             {"sample": {...}}, {"refused": why}
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/executive/host_list.hpp"
#include "fanin/executive/host_process.hpp"
#include "fanin/net/url.hpp"

namespace fanin::bench {

// The side of the measuring process. Thread: one.
class RemoteProcess {
public:
  // Errors: those of executive::start_on().
  [[nodiscard]] static Result<std::unique_ptr<RemoteProcess>> start(const executive::Host& host,
                                                                    const json::Value& task);
  // Where serve_ends() listens. Errors: refused, not_found.
  [[nodiscard]] static Result<std::unique_ptr<RemoteProcess>> connect(const net::Url& url,
                                                                      const json::Value& task);
  ~RemoteProcess(); // it ends there
  RemoteProcess(const RemoteProcess&) = delete;
  RemoteProcess& operator=(const RemoteProcess&) = delete;

  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] const std::string& host() const { return host_.name(); }
  // Takes over into `stats` what it has said. Errors: it cannot be reached, or not any more.
  [[nodiscard]] Result<> check(ProcessStats& stats);
  void ask(); // what it has counted
  // The answer to ask(). Blocks until it is there. Errors: as check().
  [[nodiscard]] Result<ProcessCounts> answer(ProcessStats& stats);
  void terminate();

private:
  RemoteProcess(executive::Host host, executive::HostProcess process)
      : host_(std::move(host)), process_(std::move(process)) {}
  void write(const json::Value& line);
  [[nodiscard]] Result<> take_lines(ProcessStats& stats);
  [[nodiscard]] Result<> take(const json::Value& line, ProcessStats& stats);
  [[nodiscard]] std::unexpected<Error> lost();
  int collect(); // how the command has ended

  executive::Host host_;
  executive::HostProcess process_; // without a process, if that is a connection
  bool alive_ = true;
  std::string text_; // of lines
  bool ended_ = false; // and has said so
  bool answered_ = false;
  ProcessCounts counts_;
};

// The other side: greets on standard output, and does what the first line of standard input says.
// False: it was refused, which it has answered, or nobody asks.
[[nodiscard]] bool serve_request(const std::function<Result<>(const json::Value& request)>& serve);
// A request's "part": returns when the process has ended or standard input does. Errors: an
// impossible task.
[[nodiscard]] Result<> serve_process(const json::Value& task);

} // namespace fanin::bench
