// The listeners of a measurement for a process on another host.
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/bare_socket.hpp"
#include "fanin/bench/bodies.hpp"
#include "fanin/bench/contenders.hpp"
#include "fanin/bench/remote_process.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::bench {
namespace {

// It listens at the address at which its peer has reached this host.
Result<> serve_listener(json::Value task, const std::string& host, const Progress& progress) {
  if (task.find("listen") == nullptr) return fail(ErrorKind::malformed, "no listener");
  auto spec = FANIN_TRY(Spec::from_json(task.at("ends")));
  const auto ends = FANIN_TRY(make_ends(spec));
  say(progress, fmt::format("{} {} {} B", name(spec.pattern), spec.peer, spec.size));
  keep_to_core(ends, task.at("listen").natural());
  spec.url.host = host;
  spec.url.port = 0;
  task["ends"] = spec.to_json();
  return serve_process(task);
}

// In a process of its own.
[[noreturn]] void serve_connection(const Descriptor& socket, const Progress& progress) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGCHLD, SIG_DFL);
  const std::string host = net::local_address(socket.get()).host();
  dup2(socket.get(), STDIN_FILENO);
  dup2(socket.get(), STDOUT_FILENO);
  const bool served = serve_request([&](const json::Value& request) {
    return serve_listener(request.at("part"), host, progress);
  });
  _exit(served ? 0 : 1);
}

} // namespace

Result<> serve_ends(const net::Url& url, const Progress& progress) {
  if (url.scheme != "tcp")
    return fail(ErrorKind::usage, fmt::format("--listen {}: tcp only", url.text()));
  const auto listener = FANIN_TRY(listen_at(url, ""));
  say(progress, "listens at " + listening_address(listener));
  std::signal(SIGCHLD, SIG_IGN); // nobody waits for these processes
  while (true) {
    const auto socket = FANIN_TRY(accept_one(listener));
    const pid_t pid = fork();
    if (pid == 0) serve_connection(socket, progress);
    if (pid < 0) return fail_errno(ErrorKind::exhausted, "fork", errno);
  }
}

Result<Sample> run_with_other_host(const net::Url& url, const Spec& spec, const Ends& ends,
                                   const Window& window) {
  ProcessGroup group;
  return run_ends(
      group, ends, window, [&](std::size_t index, const auto* addresses) -> Result<std::size_t> {
        if (addresses != nullptr) return start_here(group, ends, index, addresses);
        auto there = FANIN_TRY(RemoteProcess::connect(url, end_task(spec, index, addresses)));
        return group.start_there(fmt::format("listener{}", index), std::move(there));
      });
}

} // namespace fanin::bench
