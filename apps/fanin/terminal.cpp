#include "terminal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <stdio_ext.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "commands.hpp"
#include "fanin/base/counted.hpp"
#include "fanin/base/home.hpp"
#include "fanin/base/log_stamp.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/settings/tree.hpp"

namespace fanin::command {
namespace {

constexpr int lines_between = 10; // progress lines left out where there is no terminal
constexpr int reader_patience_ms = 1000; // of a pipe that is full, the first time

spdlog::level::level_enum level_of(LogLevel level) {
  constexpr std::array levels{spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                              spdlog::level::err};
  return levels[static_cast<std::size_t>(level)];
}

void write_error(std::string_view text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

bool is_pipe(int descriptor) {
  struct stat status{};
  return fstat(descriptor, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

// Where two writers would mix: a file, a pipe, a terminal; /dev/null takes all.
bool same_place(std::optional<int> one, std::optional<int> other) {
  struct stat first{};
  struct stat second{};
  if (!one || !other) return false;
  if (*one == *other) return true;
  return fstat(*one, &first) == 0 && fstat(*other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino && (!S_ISCHR(first.st_mode) || isatty(*one) == 1);
}

std::size_t width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

class StampFlag final : public spdlog::custom_flag_formatter {
public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    fmt::format_to(std::back_inserter(out), "{}", stamp_.text(message.time));
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<StampFlag>(*this);
  }

private:
  LogStamp stamp_;
};

} // namespace

struct Terminal::Logger {
  spdlog::logger log{"fanin", std::make_shared<spdlog::sinks::stderr_color_sink_st>()};
};

Terminal::Terminal(LogLevel level)
    : logger_(std::make_unique<Logger>()),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      is_pipe_(is_pipe(STDERR_FILENO)) {
  logger_->log.set_level(level_of(level));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<StampFlag>('*').set_pattern("%* %^%-7l%$ %v");
  logger_->log.set_formatter(std::move(formatter));
}

Terminal::~Terminal() { end_progress(); }

void Terminal::clear_line() {
  if (is_terminal_ && !line_.empty()) write_error("\r\033[K");
}

// Who waits for the reader of its log neither hears ^C nor reads out a detector.
bool Terminal::takes_line() {
  if (!is_pipe_) return true;
  pollfd pipe{STDERR_FILENO, POLLOUT, 0};
  if (poll(&pipe, 1, left_out_ == 0 ? reader_patience_ms : 0) <= 0) {
    ++left_out_;
    return false;
  }
  if (const std::uint64_t lines = std::exchange(left_out_, 0); lines > 0)
    log(LogLevel::warning, fmt::format("{} left out here: nobody read the log",
                                       counted(lines, "line is", "lines are")));
  return true;
}

void Terminal::show(std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    if (takes_line()) say(lines.substr(0, end));
    lines.remove_prefix(end);
  }
}

void Terminal::log(LogLevel level, std::string_view text) {
  if (!logger_->log.should_log(level_of(level)) || !takes_line()) return;
  clear_line();
  logger_->log.log(level_of(level), printable(text));
  logger_->log.flush();
  if (is_terminal_) write_error(line_);
}

void Terminal::progress(const std::string& line) {
  if (line.empty()) return;
  if (is_terminal_) {
    clear_line();
    line_ = printable(line, width() - 1); // a line that wraps could not be replaced
    write_error(line_);
  } else if (logger_->log.should_log(spdlog::level::debug) || skipped_++ % lines_between == 0) {
    show(printable(line) + "\n");
  }
}

void Terminal::end_progress() {
  if (is_terminal_ && !line_.empty()) say("\n");
  line_.clear();
}

void say(std::string_view text) { write_error(printable_lines(text)); }

void print(std::string_view text) { fmt::print("{}", printable_lines(text)); }

void clear_screen() { fmt::print("\033[H\033[2J"); }

bool is_output_closed() { return (fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY; }

Result<OutputFile> OutputFile::open(std::string option, const std::string& given) {
  const std::string path = expand_home(given);
  OutputFile output(std::move(option), path);
  if (path == "-" && is_output_closed())
    return fail(ErrorKind::usage, fmt::format("{} -: standard output is closed", output.option_));
  if (path.empty() || path == "-") return output;
  // What is there stays until there is a result. A pipe that nobody reads is an error, and is not
  // waited for.
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file < 0)
    return fail_errno(ErrorKind::usage, fmt::format("{} {}", output.option_, path), errno);
  (void)::fcntl(file, F_SETFL, O_APPEND); // a slow reader is waited for
  output.file_.reset(::fdopen(file, "a"));
  if (output.file_ != nullptr) return output;
  ::close(file);
  return fail(ErrorKind::exhausted, fmt::format("{} {}: no memory", output.option_, path));
}

std::optional<int> OutputFile::descriptor() const {
  if (path_.empty()) return std::nullopt;
  return file_ ? fileno(file_.get()) : STDOUT_FILENO;
}

Result<> OutputFile::check_apart(std::initializer_list<const OutputFile*> outputs) {
  for (const auto* one = outputs.begin(); one != outputs.end(); ++one) {
    for (const auto* other = outputs.begin(); other != one; ++other) {
      if (!same_place((*other)->descriptor(), (*one)->descriptor())) continue;
      return fail(ErrorKind::usage,
                  fmt::format("{} {} and {} {} are one place: each needs its own",
                              (*other)->option_, (*other)->path_, (*one)->option_, (*one)->path_));
    }
  }
  return {};
}

Result<> OutputFile::write(std::string_view text) {
  if (path_.empty()) return {};
  std::FILE* const file = file_ ? file_.get() : stdout;
  // A pipe or a terminal has nothing to cut off.
  const bool ready = !file_ || ftruncate(fileno(file), 0) == 0 || errno == EINVAL;
  if (ready && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
      std::fflush(file) == 0) {
    return {};
  }
  const int error = errno;
  if (!file_) { // said here, once
    __fpurge(stdout);
    std::clearerr(stdout);
  }
  return fail_errno(ErrorKind::refused, fmt::format("{} {}", option_, path_), error);
}

int complain(const Error& error) {
  say(settings::one_line(error.text) + "\n");
  return error.kind == ErrorKind::usage || error.kind == ErrorKind::not_found ? status_usage
                                                                              : status_failed;
}

void complain_of(const Result<>& result) {
  if (!result) complain(result.error());
}

int status_of(const Result<int>& status) { return status ? *status : complain(status.error()); }

} // namespace fanin::command
