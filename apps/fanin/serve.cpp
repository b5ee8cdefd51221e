// fanin serve CONFIG...: run control, with its API and page.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/home.hpp"
#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/executive/process.hpp"
#include "fanin/executive/report.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/executive/signals.hpp"
#include "fanin/operation/api.hpp"
#include "fanin/operation/reserve_run.hpp"
#include "fanin/operation/run_control.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

constexpr std::uint16_t usual_port = 7080;
constexpr Duration patience = std::chrono::milliseconds{500}; // with another process that writes

struct ServeArguments {
  std::string program;
  std::vector<std::string> configurations;
  std::string hosts;
  bool testbed = false;
  std::string listen;
  std::string registry;
  std::vector<std::string> host_names;
  bool repeat = false;
  std::vector<std::string> hooks; // MOMENT=PROGRAM
  std::string hook_limit = "30s";
  std::string log = "info";
};

// --- where it listens ----------------------------------------------------------------------------

struct Listening {
  Descriptor socket;
  std::uint16_t port = 0;
};

Result<Listening> listen_on_loopback(std::uint16_t port) {
  Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return fail_errno(ErrorKind::exhausted, "socket", errno);
  const int on = 1;
  setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(made.get(), generic, size) != 0 || ::listen(made.get(), 128) != 0 ||
      getsockname(made.get(), generic, &size) != 0)
    return fail_errno(ErrorKind::usage, fmt::format("--listen 127.0.0.1:{}", port), errno);
  return Listening{std::move(made), ntohs(address.sin_port)};
}

// Without --listen: the usual port, or any, if another program has it.
Result<Listening> open_port(const std::string& text) {
  if (text.empty()) {
    auto usual = listen_on_loopback(usual_port);
    return usual ? std::move(usual) : listen_on_loopback(0);
  }
  const auto colon = text.rfind(':');
  const std::string host = text.substr(0, colon);
  const auto port = colon == std::string::npos
                        ? std::nullopt
                        : parse_number<std::uint16_t>(text.substr(colon + 1));
  if (!port)
    return fail(ErrorKind::usage,
                fmt::format("--listen {}: is not of the form 127.0.0.1:PORT", text));
  if (host != "127.0.0.1" && host != "localhost")
    return fail(
        ErrorKind::usage,
        fmt::format("--listen {}: only this host can be listened on (127.0.0.1:{}), since "
                    "HTTP is not encrypted: from elsewhere use ssh -L {}:localhost:{}, or a "
                    "reverse proxy with TLS (docs/operations.md)",
                    text, *port, *port, *port));
  return listen_on_loopback(*port);
}

// --- run control ---------------------------------------------------------------------------------

// One for each registry.
Result<Descriptor> lock_registry(const operation::RunFiles& files, const std::string& registry) {
  const std::string path = files.path("serve.lock");
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return fail_errno(ErrorKind::refused, path, errno);
  if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  return fail(ErrorKind::usage,
              fmt::format("another `fanin serve` has the registry {}: end it, or give another "
                          "registry (--registry)",
                          registry));
}

Result<std::string> registry_path(const ServeArguments& arguments,
                                  const std::vector<operation::ConfigurationSet>& sets) {
  if (!arguments.registry.empty()) return expand_home(arguments.registry);
  std::vector<config::Configuration> all;
  for (const operation::ConfigurationSet& set : sets) {
    for (const std::string& file : set.files) all.push_back(FANIN_TRY(config::load(file, {})));
  }
  const std::string given = FANIN_TRY(operation::registry_of(all));
  return given.empty() ? operation::Registry::usual_path() : given;
}

std::vector<std::string> host_options(const ServeArguments& arguments) {
  if (arguments.testbed) return {"--testbed"};
  if (arguments.hosts.empty()) return {};
  return {"--hosts", std::filesystem::absolute(expand_home(arguments.hosts)).string()};
}

Result<std::map<operation::HookMoment, std::string>>
hooks_of(const std::vector<std::string>& texts) {
  std::map<operation::HookMoment, std::string> hooks;
  for (const std::string& text : texts) {
    const auto equals = text.find('=');
    const auto moment = operation::hook_moment_named(text.substr(0, equals));
    if (!moment || equals == std::string::npos)
      return fail(ErrorKind::usage,
                  fmt::format("--hook {}: is not of the form MOMENT=PROGRAM, with before-start, "
                              "after-start, before-stop, after-stop or unplanned-end",
                              text));
    const std::string program =
        std::filesystem::absolute(expand_home(text.substr(equals + 1))).string();
    if (access(program.c_str(), X_OK) != 0)
      return fail_errno(ErrorKind::usage, fmt::format("--hook {}: {}", text, program), errno);
    if (!hooks.emplace(*moment, program).second)
      return fail(ErrorKind::usage,
                  fmt::format("--hook {}: there is one for this moment already: call both from a "
                              "program of yours",
                              text));
  }
  return hooks;
}

Result<int> serve_runs(const ServeArguments& arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto sets = FANIN_TRY(operation::make_sets(arguments.configurations));
  const bool hosts = arguments.testbed || !arguments.hosts.empty();
  if (hosts && (sets.size() > 1 || sets.front().files.size() > 1))
    return fail(ErrorKind::usage, "--hosts and --testbed are for one configuration: give one, or "
                                  "leave the option out");
  const std::string path = FANIN_TRY(registry_path(arguments, sets));
  const auto files = FANIN_TRY(operation::RunFiles::beside(path));
  const Descriptor locked = FANIN_TRY(lock_registry(files, path));
  auto registry =
      FANIN_TRY(operation::Registry::open(path, operation::Database::Access::write, patience));
  const auto tokens = FANIN_TRY(operation::Tokens::read_or_make(files.path("tokens")));

  const MonotonicClock clock;
  net::Loop loop(clock);
  Terminal terminal(executive::log_level(arguments.log));
  operation::Api* api = nullptr;
  operation::RunControl control(
      loop, registry, files,
      {.sets = sets,
       .program = arguments.program,
       .hosts = host_options(arguments),
       .repeat = arguments.repeat,
       .hooks = FANIN_TRY(hooks_of(arguments.hooks)),
       .hook_limit = FANIN_TRY(parse_duration(arguments.hook_limit)),
       .unix_ns = executive::unix_ns,
       .on_change =
           [&api] {
             if (api != nullptr) api->on_change();
           },
       .on_line =
           [&](const operation::ShownLine& line) {
             terminal.log(executive::log_level(line.level),
                          line.node.empty() ? line.text
                                            : fmt::format("{:<8} {}", line.node, line.text));
             if (api != nullptr) api->on_line(line);
           },
       .on_ended = [&loop] { loop.stop(); }});
  operation::Api made(loop, control, registry, tokens,
                      {.host_names = arguments.host_names,
                       .first_event = executive::new_run_id() >> 8U,
                       .unix_ns = executive::unix_ns});
  api = &made;
  auto port = FANIN_TRY(open_port(arguments.listen));
  const auto server = FANIN_TRY(operation::make_http_server(
      loop, [&made](const operation::HttpRequest& request) { return made.answer(request); }));
  auto local = FANIN_TRY(files.listen_at("serve.socket"));
  FANIN_TRY(server->listen(std::move(local)));
  FANIN_TRY(server->listen(std::move(port.socket)));
  made.set_server(*server);
  const auto signals =
      FANIN_TRY(executive::Signals::make(loop, {.on_signal =
                                                    [&](const executive::StopSignal& signal) {
                                                      if (!signal.interrupt) return loop.stop();
                                                      control.end_with_run();
                                                    },
                                                .on_death = {}}));
  FANIN_TRY(control.take_over());
  print(fmt::format("run control: http://127.0.0.1:{}/#token={}\nregistry:    {}\n", port.port,
                    tokens.of(operation::AccessRole::operate), path));
  std::fflush(stdout);
  loop.run();
  return status_done;
}

} // namespace

void add_serve(CLI::App& app, const std::string& program, int& status) {
  auto arguments = std::make_shared<ServeArguments>();
  arguments->program = program;
  CLI::App* command = app.add_subcommand("serve", "Run control, with a page for a browser");
  command
      ->add_option("CONFIG", arguments->configurations,
                   "Configurations (TOML) that can be run; those of two stages run together")
      ->required();
  auto* hosts = command->add_option("--hosts", arguments->hosts,
                                    "List of hosts: runs a process on each, in their order");
  command->add_flag("--testbed", arguments->testbed, "The same on the hosts of ./dev testbed")
      ->excludes(hosts);
  command->add_option("--listen", arguments->listen,
                      "127.0.0.1:PORT, where the page is; else port 7080, or any free one");
  command->add_option("--registry", arguments->registry,
                      "File of the runs; else run.registry, or the user's own one");
  command->add_option("--host-name", arguments->host_names,
                      "A name by which browsers reach this host, through a reverse proxy");
  command->add_flag("--repeat", arguments->repeat, "When a run has stopped, start the next one");
  command
      ->add_option("--hook", arguments->hooks,
                   "MOMENT=PROGRAM: run it before-start, after-start, before-stop, after-stop "
                   "or at an unplanned-end")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--hook-limit", arguments->hook_limit, "After this time a hook is killed")
      ->capture_default_str();
  command->add_option("--log", arguments->log, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  command->callback([arguments, &status] { status = status_of(serve_runs(*arguments)); });
}

} // namespace fanin::command
