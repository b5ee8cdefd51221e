#include "fanin/storage/run_numbers.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/try.hpp"
#include "fanin/storage/detail/synchronize.hpp"
#include "fanin/storage/manifest.hpp"

namespace fanin::storage {
namespace {

std::string number_file(const std::string& folder) { return folder + "/last_run_number"; }

std::unexpected<Error> no_number(std::string_view path, std::string_view failed, int error_number) {
  return fail(error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG
                  ? ErrorKind::exhausted
                  : ErrorKind::refused,
              fmt::format("{} cannot be {}: {}: a run needs it for its number; correct this, or "
                          "set run.output to another folder",
                          path, failed, std::strerror(error_number)));
}

// What is wrong with the first line; empty if it is a number and nothing else.
std::string damage(std::string_view text, std::from_chars_result parsed) {
  const std::size_t digits = static_cast<std::size_t>(parsed.ptr - text.data());
  if (text.empty()) return "is empty";
  if (parsed.ec == std::errc::result_out_of_range)
    return fmt::format("begins with a number above {}", run_number_max);
  if (parsed.ec != std::errc{}) return "does not begin with a number";
  if (digits == text.size()) return "ends within its first line";
  return text[digits] == '\n' ? "" : "has more than a number in its first line";
}

// 0: there is no file. Its first line is the number; the others are for readers.
Result<RunNumber> number_in_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return 0;
  std::array<char, 32> bytes; // more than the first line has
  const ssize_t size = file ? ::read(file.get(), bytes.data(), bytes.size()) : -1;
  if (size < 0) return no_number(path, "read", errno);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(size));
  RunNumber number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string damaged = damage(text, parsed);
  if (damaged.empty()) return number;
  return fail(ErrorKind::malformed,
              fmt::format("{} {}: write the highest run number that was given into its first line, "
                          "or delete it if that is the highest of the run files beside it",
                          path, damaged));
}

// 0: there are none.
Result<RunNumber> number_of_run_files(const std::string& folder) {
  RunNumber highest = 0;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at(folder, error); at != end; at.increment(error)) {
    if (const auto run = run_of(at->path().filename().string())) highest = std::max(highest, *run);
  }
  if (!error || error == std::errc::no_such_file_or_directory) return highest;
  return no_number(folder, "read", error.value());
}

Result<> write_number(const std::string& folder, RunNumber number) {
  const std::string path = number_file(folder);
  const std::string hidden = folder + "/.last_run_number.new";
  const std::string text = fmt::format("{}\nThe highest run number that was given in this folder. "
                                       "fanin run goes on above it.\n",
                                       number);
  ::unlink(hidden.c_str()); // of a process that was killed
  const Descriptor file(::open(hidden.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) return no_number(path, "written", errno);
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written >= 0 && static_cast<std::size_t>(written) < text.size()) errno = ENOSPC;
  if (written != static_cast<ssize_t>(text.size()) || ::fsync(file.get()) != 0 ||
      ::rename(hidden.c_str(), path.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(hidden.c_str());
    return no_number(path, "written", error_number);
  }
  const int error_number = detail::synchronize_folder(folder);
  if (error_number != 0) return no_number(folder, "synchronized", error_number);
  return {};
}

// Waits for the processes that have it. It asks again and again: a call that waits would not end
// with a signal.
Result<Descriptor> lock(const std::string& folder, const LogFunction& log,
                        const std::function<bool()>& is_to_end) {
  const std::string path = folder + "/.last_run_number.lock";
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file && errno == EACCES) { // another user's
    file = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) errno = EACCES;
  }
  for (bool said = false; file;) {
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    // A file system without locks. If two runs get one number in the same instant, the manifest,
    // whose name must be free, refuses one of them.
    if (errno == ENOSYS || errno == EOPNOTSUPP) return file;
    if (errno != EWOULDBLOCK) break;
    if (!std::exchange(said, true) && log) {
      log(LogLevel::info, fmt::format("waits for another process that takes a run number: it has "
                                      "locked {} (fuser shows which one)",
                                      path));
    }
    if (is_to_end && is_to_end()) {
      return fail(ErrorKind::refused, fmt::format("stopped while another process had locked {}: "
                                                  "fuser shows which one",
                                                  path));
    }
    constexpr timespec pause{.tv_sec = 0, .tv_nsec = 50'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return no_number(path, "locked", errno);
}

// Each folder once and in an order that is the same in all processes: two that take the locks of
// several do not wait for each other.
Result<std::vector<Descriptor>> lock_all(const std::vector<std::string>& folders,
                                         const LogFunction& log,
                                         const std::function<bool()>& is_to_end) {
  std::map<std::pair<ino_t, dev_t>, std::string> ordered;
  for (const std::string& folder : folders) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    struct stat status{};
    if (!error && ::stat(folder.c_str(), &status) != 0) error.assign(errno, std::system_category());
    if (error) return no_number(folder, "made", error.value());
    ordered.emplace(std::pair{status.st_ino, status.st_dev}, folder);
  }
  std::vector<Descriptor> locks;
  for (const auto& [ignored, folder] : ordered) {
    auto locked = FANIN_TRY(lock(folder, log, is_to_end));
    locks.push_back(std::move(locked));
  }
  return locks;
}

} // namespace

Result<RunNumber> RunNumbers::next(std::optional<RunNumber> wanted) const {
  RunNumber highest = 0;
  std::string where;
  for (const std::string& folder : folders_) {
    for (const auto& given : {number_in_file(number_file(folder)), number_of_run_files(folder)}) {
      if (!given) return given;
      if (*given <= highest) continue;
      highest = *given;
      where = folder;
    }
  }
  if (wanted && *wanted <= highest) {
    return fail(ErrorKind::usage,
                fmt::format("run number {} is not free: {} is the highest one given in {}; set a "
                            "higher one, or leave run.number out",
                            *wanted, highest, where));
  }
  if (wanted || highest < run_number_max) return wanted.value_or(highest + 1);
  return fail(ErrorKind::exhausted,
              fmt::format("{} has given the last run number, {}: set run.output to another folder",
                          where, highest));
}

Result<RunNumber> RunNumbers::reserve(std::optional<RunNumber> wanted) const {
  const auto locks = FANIN_TRY(lock_all(folders_, log_, is_to_end_));
  auto number = next(wanted);
  for (const std::string& folder : folders_) {
    if (!number) break;
    if (auto written = write_number(folder, *number); !written)
      number = std::unexpected(written.error());
  }
  return number;
}

} // namespace fanin::storage
