// fanin on-host: one process of a run or a benchmark, for a launcher on another host. Not for
// users.
#include <csignal>
#include <string>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "fanin/bench/remote_process.hpp"
#include "fanin/executive/host_children.hpp"
#include "fanin/executive/host_process.hpp"
#include "plugin_end_report.hpp"

namespace fanin::command {
namespace {

int serve() {
  std::signal(SIGPIPE, SIG_IGN);
  const PluginEndReport end_report;
  const bool served = bench::serve_request([](const json::Value& request) {
    return request.find("part") != nullptr ? bench::serve_process(request.at("part"))
                                           : executive::serve_process(request.at("start"));
  });
  return served ? status_done : status_failed;
}

} // namespace

void add_on_host(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(std::string(executive::on_host_command));
  command->group(""); // of the launcher's
  command->callback([&status] { status = serve(); });
}

} // namespace fanin::command
