// fanin on-host: one process of a run or a benchmark, for a launcher on another host. Not for
// users.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "fanin/bench/remote_process.hpp"
#include "fanin/executive/host_children.hpp"
#include "fanin/executive/host_process.hpp"
#include "plugin_end_report.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

constexpr std::size_t request_max = 64U << 20;

// Byte by byte: what follows it stays in the pipe.
std::string read_request() {
  std::string line;
  char character = 0;
  while (line.size() < request_max) {
    const ssize_t count = read(STDIN_FILENO, &character, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {};
    if (character == '\n') return line;
    line += character;
  }
  return {};
}

int serve() {
  std::signal(SIGPIPE, SIG_IGN);
  const PluginEndReport end_report;
  print(executive::greeting().dump() + "\n");
  std::fflush(stdout);
  const auto request = json::Value::parse(read_request());
  if (!request) return status_failed; // the launcher is gone
  const auto served = request->find("part") != nullptr
                          ? bench::serve_process(request->at("part"))
                          : executive::serve_process(request->at("start"));
  if (served) return status_done;
  print(json::Value(json::Object{{"refused", served.error().text}}).dump() + "\n");
  return status_failed;
}

} // namespace

void add_on_host(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(std::string(executive::on_host_command));
  command->group(""); // of the launcher's
  command->callback([&status] { status = serve(); });
}

} // namespace fanin::command
