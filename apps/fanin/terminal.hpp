// Standard error as a place for a log and, below it, one line that changes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"

namespace fanin::command {

// A pipe that nobody reads any more, though its reader lives, stops nothing: lines are left out.
class Terminal {
public:
  // Messages below `level` are left out.
  explicit Terminal(LogLevel level);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void log(LogLevel level, std::string_view text);
  // On a terminal the line is replaced in place; elsewhere it is written now and then, or each time
  // with the level debug.
  void progress(const std::string& line);
  void end_progress();
  void show(std::string_view lines); // as they are

private:
  void clear_line();
  [[nodiscard]] bool takes_line(); // if not, it counts as left out

  struct Logger;
  std::unique_ptr<Logger> logger_;
  bool is_terminal_;
  bool is_pipe_;
  std::uint64_t left_out_ = 0; // since the pipe is full
  std::string line_; // that is shown
  int skipped_ = 0;
};

// On standard error. Nothing is said where nobody listens any more: a closed terminal ends no run.
// All that goes to a terminal goes through these two and the class above, since it may have text
// from outside in it (base/printable.hpp).
void say(std::string_view text);
void print(std::string_view text); // on standard output
void clear_screen(); // of a terminal on standard output

// main() opens /dev/null in place of standard descriptors that are closed: standard output for
// reading only, so that what is written to it is an error.
[[nodiscard]] bool is_output_closed();

// Where a result goes to: a file, standard output for "-", or nowhere.
class OutputFile {
public:
  // Makes the file that an option names; an empty `path` is nowhere. Errors: usage, naming both,
  // also where standard output is closed.
  [[nodiscard]] static Result<OutputFile> open(std::string option, const std::string& path);
  // That no two of them go to one place, where the one would mix with the other or replace it.
  // Errors: usage, naming both.
  [[nodiscard]] static Result<> check_apart(std::initializer_list<const OutputFile*> outputs);
  [[nodiscard]] Result<> write(std::string_view text);
  [[nodiscard]] Result<> write_json(const json::Value& value) {
    return write(value.dump(2) + "\n");
  }

private:
  OutputFile(std::string option, std::string path)
      : option_(std::move(option)), path_(std::move(path)) {}
  [[nodiscard]] std::optional<int> descriptor() const; // nullopt: nowhere

  struct Close {
    void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
  };
  std::string option_;
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_; // null: standard output, or nowhere
};

// "fanin: TEXT" on standard error, in one line; gives the exit status for that kind of error.
int complain(const Error& error);
// If there is one.
void complain_of(const Result<>& result);
// The exit status of a command; an error is complained of.
int status_of(const Result<int>& status);

} // namespace fanin::command
