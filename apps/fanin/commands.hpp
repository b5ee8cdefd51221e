// The subcommands, each in a file of its own: adds its options to the application and, when it was
// chosen, runs and sets the exit status. Names and options are kept stable (docs/command.md).
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace fanin::command {

enum Status : int {
  status_done = 0,
  status_failed = 1, // the run failed or a check found something
  status_usage = 2   // bad usage or configuration
};

// `program` as main() got it.
void add_run(CLI::App& app, const std::string& program, int& status);
void add_check(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_verify(CLI::App& app, int& status);
void add_runs(CLI::App& app, int& status);
void add_serve(CLI::App& app, const std::string& program, int& status);
#if FANIN_HAVE_CURL
void add_ctl(CLI::App& app, int& status);
#endif
void add_inspect(CLI::App& app, int& status);
void add_send(CLI::App& app, int& status);
void add_receive(CLI::App& app, int& status);
void add_publish(CLI::App& app, int& status);
void add_subscribe(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_sim(CLI::App& app, int& status);
void add_on_host(CLI::App& app, int& status);

} // namespace fanin::command
