#include "fanin/operation/run_files.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"

namespace fanin::operation {
json::Value to_json(const RunEnd& end) {
  json::Value value;
  value["begun_ns"] = end.begun_ns;
  value["ended_ns"] = end.ended_ns;
  value["reason"] = end.reason;
  value["result"] = end.result;
  value["log"] = json::List{};
  for (const LogLine& line : end.log)
    value["log"].append(
        json::Object{{"unix_ns", line.unix_ns}, {"level", line.level}, {"text", line.text}});
  return value;
}

RunEnd end_of(const json::Value& value) {
  RunEnd end{.begun_ns = value.at("begun_ns").integer().value_or(0),
             .ended_ns = value.at("ended_ns").integer().value_or(0),
             .reason = value.at("reason").text(),
             .result = value.at("result"),
             .log = {}};
  for (const json::Value& line : value.at("log").list())
    end.log.push_back({line.at("unix_ns").integer().value_or(0), line.at("level").text(),
                       line.at("text").text()});
  return end;
}

namespace {

Result<Descriptor> make_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return fail_errno(ErrorKind::exhausted, "socket", errno);
  return made;
}

} // namespace

std::string control_folder(const std::string& registry) {
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(registry, error);
  return (error ? std::filesystem::absolute(registry) : path).string() + ".control";
}

Result<RunFiles> RunFiles::beside(const std::string& registry) {
  const std::filesystem::path path = control_folder(registry);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno(ErrorKind::refused, fmt::format("folder {}", path.string()), errno);
  Descriptor descriptor(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor)
    return fail_errno(ErrorKind::refused, fmt::format("folder {}", path.string()), errno);
  struct stat status{};
  if (fstat(descriptor.get(), &status) == 0 && status.st_uid != geteuid())
    return fail(ErrorKind::refused,
                fmt::format("{}: belongs to another user: set a registry of your own (--registry)",
                            path.string()));
  if ((status.st_mode & 0077) != 0)
    return fail(ErrorKind::refused, fmt::format("{}: others may use this folder: chmod 700 {}",
                                                path.string(), path.string()));
  return RunFiles(path.string(), std::move(descriptor));
}

std::string RunFiles::path(std::string_view name) const {
  return fmt::format("{}/{}", folder_, name);
}
std::string RunFiles::socket_name(RunNumber run) const { return fmt::format("run{}.socket", run); }
std::string RunFiles::end_file(RunNumber run) const {
  return path(fmt::format("run{}.end.json", run));
}
std::string RunFiles::error_file(RunNumber run) const {
  return path(fmt::format("run{}.stderr", run));
}

Result<Descriptor> RunFiles::listen_for(RunNumber run) const { return listen_at(socket_name(run)); }
Result<Descriptor> RunFiles::connect_to(RunNumber run) const {
  return connect_at(socket_name(run));
}

Result<Descriptor> RunFiles::listen_at(const std::string& name) const {
  auto made = FANIN_TRY(make_socket());
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string short_path = fmt::format("/proc/self/fd/{}/{}", descriptor_.get(), name);
  short_path.copy(address.sun_path, sizeof address.sun_path - 1);
  unlinkat(descriptor_.get(), name.c_str(), 0); // of one that was killed
  if (bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      fchmodat(descriptor_.get(), name.c_str(), 0600, 0) != 0 || listen(made.get(), SOMAXCONN) != 0)
    return fail_errno(ErrorKind::refused, path(name), errno);
  return made;
}

Result<Descriptor> RunFiles::connect_at(const std::string& name) const {
  auto made = FANIN_TRY(make_socket());
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string short_path = fmt::format("/proc/self/fd/{}/{}", descriptor_.get(), name);
  short_path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return made;
  const bool gone = errno == ENOENT || errno == ECONNREFUSED;
  return fail_errno(gone ? ErrorKind::not_found : ErrorKind::exhausted, path(name), errno);
}

Result<RunEnd> RunFiles::read_end(RunNumber run) const {
  std::error_code ignored;
  const bool regular = std::filesystem::is_regular_file(end_file(run), ignored);
  std::ifstream file(end_file(run));
  if (!regular || !file) return fail_errno(ErrorKind::not_found, end_file(run), errno);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto value = json::Value::parse(text);
  if (!value || value->at("ended_ns").integer().value_or(0) == 0)
    return fail(ErrorKind::malformed, fmt::format("{}: is no end of a run", end_file(run)));
  return end_of(*value);
}

void RunFiles::remove(RunNumber run) const {
  for (const std::string& file : {end_file(run), error_file(run), path(socket_name(run))})
    unlink(file.c_str());
}

Result<> write_end(const std::string& path, const RunEnd& end) {
  const std::string text = to_json(end).dump();
  const std::string made = path + ".new";
  const auto failed = [&](const std::string& what) {
    const int number = errno;
    unlink(made.c_str());
    return fail_errno(number == ENOSPC || number == EDQUOT ? ErrorKind::exhausted
                                                           : ErrorKind::refused,
                      what, number);
  };
  {
    const Descriptor file(open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file) return failed(made);
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t written = write(file.get(), text.data() + at, text.size() - at);
      if (written <= 0) return failed(made);
      at += static_cast<std::size_t>(written);
    }
    if (fsync(file.get()) != 0) return failed(made);
  }
  if (std::rename(made.c_str(), path.c_str()) != 0) return failed(path);
  const std::string folder = std::filesystem::path(path).parent_path();
  const Descriptor directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || fsync(directory.get()) != 0) return failed(folder);
  return {};
}

} // namespace fanin::operation
