#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/version.hpp"
#include "terminal.hpp"

namespace {

using namespace fanin::command;

// Who starts fanin may have closed its standard descriptors. The next file or socket would get
// their numbers, and with them what is printed.
void fill_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    const int access = descriptor == STDOUT_FILENO ? O_RDONLY : O_RDWR; // is_output_closed()
    if (open("/dev/null", access) != descriptor) _exit(status_failed);
  }
}

// A connection needs a descriptor, and the usual limit of 1024 is low for a readout unit with many
// senders. The hard limit may be a billion: programs that fanin starts would inherit it, and some
// close every possible descriptor one by one.
void raise_descriptor_limit() {
  constexpr rlim_t wanted = 65'536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

// The exit status: what was not printed is a failure too.
int printed(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  say(fmt::format("fanin: not all of the output could be written: {}\n",
                  is_output_closed() ? "standard output is closed" : "is the disk full?"));
  return status_failed;
}

} // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  raise_descriptor_limit();
  CLI::App app{"fanin builds events from the fragments of many sources."};
  app.name("fanin");
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("fanin {} (commit {})\n{}", fanin::version,
                                                fanin::version_commit(), fanin::version_build()));
  int status = status_done;
  add_run(app, argv[0], status);
  add_check(app, status);
  add_doctor(app, status);
  add_verify(app, status);
  add_inspect(app, status);
  add_serve(app, argv[0], status);
#if FANIN_HAVE_CURL
  add_ctl(app, status);
#endif
  add_runs(app, status);
  add_send(app, status);
  add_receive(app, status);
  add_publish(app, status);
  add_subscribe(app, status);
  add_bench(app, status);
  add_sim(app, status);
  add_on_host(app, status);
  const auto commands = app.get_subcommands([](CLI::App*) { return true; });
  if (argc > 1 && argv[1][0] != '-' &&
      std::ranges::none_of(commands, [&](const auto* c) { return c->check_name(argv[1]); })) {
    say(fmt::format("fanin: there is no command '{}'; fanin --help lists the commands\n", argv[1]));
    return status_usage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) { // --help, --version
    return printed(app.exit(success));
  } catch (const CLI::ParseError& error) {
    say(fmt::format("fanin: {}; fanin --help lists the commands\n", error.what()));
    return status_usage;
  } catch (const std::exception& error) {
    say(fmt::format("fanin: {}\n", error.what()));
    return status_failed;
  }
  return printed(status);
}
