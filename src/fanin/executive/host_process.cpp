#include "fanin/executive/host_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/child_input.hpp"
#include "fanin/version.hpp"

namespace fanin::executive {
namespace {

constexpr std::size_t shown_max = 300; // of a line of another host

// In the child: only calls that are safe after fork.
[[noreturn]] void exec_child(const std::vector<char*>& arguments, int input, int output, int errors,
                             pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1); // it died in between
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr); // ssh wants its signals
  std::signal(SIGPIPE, SIG_DFL);
  // Else a signal to all processes would cut the connections. (ssh goes on to ignore these.)
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_IGN);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execvp(arguments.front(), arguments.data());
  const char* const why = std::strerror(errno);
  for (const char* const text : {static_cast<const char*>(arguments.front()), ": ", why, "\n"})
    (void)!write(STDERR_FILENO, text, std::strlen(text));
  _exit(127);
}

// Where every host has it. ssh hands its words to a shell, other commands do not: what a shell
// leaves as it is suits both.
Result<std::string> own_program() {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return fail(ErrorKind::unsupported, "/proc/self/exe: " + error.message());
  if (shell_word(path) == path) return path;
  return fail(ErrorKind::usage,
              fmt::format("{}: a shell of another host would change this name of the program: "
                          "install it where the path has only letters, digits and _-+=.,:/@%",
                          path));
}

} // namespace

Result<HostProcess> start_on(const Host& host) {
  const auto program = FANIN_TRY(own_program());
  std::vector<std::string> words = host.words;
  words.push_back(program);
  words.emplace_back(on_host_command);
  const auto pointers = pointers_to(words);
  std::signal(SIGPIPE, SIG_IGN); // a host may go while it is written to
  auto input = make_pipe();
  auto output = make_pipe();
  auto errors = make_pipe();
  for (const auto* made : {&input, &output, &errors})
    if (!*made) return std::unexpected(made->error());
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0)
    exec_child(pointers, input->read.get(), output->write.get(), errors->write.get(), parent);
  if (pid < 0) return fail_errno(ErrorKind::exhausted, "fork", errno);
  HostProcess process{pid, std::move(input->write), std::move(output->read),
                      std::move(errors->read)};
  for (const auto* descriptor : {&process.input, &process.output, &process.errors})
    fcntl(descriptor->get(), F_SETFL, O_NONBLOCK);
  return process;
}

json::Value greeting() { return json::Object{{"fanin", version}}; }

std::string wrong_greeting(const json::Value& line) {
  const std::string theirs = line.at("fanin").text();
  if (theirs == version) return {};
  return fmt::format("has fanin {}, and this is fanin {}: install the same one on each host",
                     printable(theirs, shown_max), version);
}

std::string why_unreachable(const Host& host, int wait_status, std::string_view last) {
  std::string why = printable(last, shown_max);
  if (why.empty() && WIFSIGNALED(wait_status))
    why = fmt::format("{} was ended by signal {}", host.words.front(), WTERMSIG(wait_status));
  if (why.empty())
    why = fmt::format("{} ended with status {}", host.words.front(), WEXITSTATUS(wait_status));
  return fmt::format("{}: {}", host.text(), why);
}

} // namespace fanin::executive
