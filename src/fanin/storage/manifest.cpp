#include "fanin/storage/manifest.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/core.h>

#include "fanin/base/json.hpp"
#include "fanin/version.hpp"

namespace fanin::storage {
namespace {

constexpr std::uint64_t manifest_version = 1;

// Reads the members of one line; remembers the first that is not as it should be.
class Members {
public:
  explicit Members(const json::Value& object) : object_(object) {}

  template <class T>
  T number(const char* key) {
    const json::Value& value = object_.at(key);
    if (!value.is_natural() || !std::in_range<T>(value.natural())) return complain(key), 0;
    return static_cast<T>(value.natural());
  }
  std::string text(const char* key) {
    const json::Value& value = object_.at(key);
    if (!value.is_text()) complain(key);
    return value.text();
  }
  bool boolean(const char* key) {
    const json::Value& value = object_.at(key);
    if (!value.is_boolean()) complain(key);
    return value.boolean();
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }

private:
  void complain(const char* key) {
    if (problem_.empty()) problem_ = fmt::format("\"{}\" is missing or not as it should be", key);
  }

  const json::Value& object_;
  std::string problem_;
};

std::string parse_header(const json::Value& line, Manifest& manifest) {
  const json::Value& written = line.at("manifest");
  if (written.is_null()) return "not the manifest of a run";
  if (written.natural() != manifest_version) {
    return fmt::format("version {} of the manifest, and this fanin reads version {}",
                       written.dump(), manifest_version);
  }
  Members members(line);
  manifest.header.run = members.number<RunNumber>("run");
  manifest.header.protocol = members.text("protocol");
  manifest.header.integrity = members.text("integrity") == "crc32c";
  manifest.header.started_unix_ns = members.number<std::int64_t>("started_unix_ns");
  return members.problem();
}

std::string parse_summary(const json::Value& line, Manifest& manifest) {
  if (!line.is_object()) return "\"summary\" is no object";
  Members members(line);
  ManifestSummary summary;
  summary.built = members.number<std::uint64_t>("built");
  summary.incomplete = members.number<std::uint64_t>("incomplete");
  summary.lost = members.number<std::uint64_t>("lost");
  summary.balanced = members.boolean("balanced");
  summary.ended_unix_ns = members.number<std::int64_t>("ended_unix_ns");
  if (members.problem().empty()) manifest.summary = summary;
  return members.problem();
}

// Empty, or what is wrong.
std::string parse_line(const json::Value& line, Manifest& manifest) {
  if (!line.is_object()) return "not an object";
  if (const json::Value* summary = line.find("summary")) return parse_summary(*summary, manifest);
  Members members(line);
  if (line.find("file") != nullptr) {
    ManifestFile file;
    file.file = members.text("file");
    file.node = members.text("node");
    file.incarnation = members.number<Incarnation>("incarnation");
    if (members.problem().empty()) manifest.files.push_back(std::move(file));
    return members.problem();
  }
  ManifestWinner winner;
  winner.events.first = members.number<std::uint64_t>("first");
  winner.events.end = members.number<std::uint64_t>("end");
  winner.attempt = members.number<Attempt>("attempt");
  winner.node = members.text("node");
  winner.incarnation = members.number<Incarnation>("incarnation");
  if (!members.problem().empty()) return members.problem();
  if (winner.events.empty()) return "\"end\" is not after \"first\"";
  manifest.winners.push_back(std::move(winner));
  return {};
}

} // namespace

std::string manifest_name(RunNumber run) { return fmt::format("run{:06}.manifest.json", run); }

ManifestWriter::ManifestWriter(std::string path, Descriptor descriptor)
    : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

Result<ManifestWriter> ManifestWriter::create(const std::string& directory,
                                              const ManifestHeader& header) {
  auto path = fmt::format("{}/{}", directory, manifest_name(header.run));
  Descriptor descriptor(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  if (!descriptor) {
    const auto kind = errno == ENOENT   ? ErrorKind::not_found
                      : errno == ENOSPC ? ErrorKind::exhausted
                                        : ErrorKind::refused;
    if (errno == EEXIST) {
      return fail(kind, fmt::format("{} exists, and runs are never overwritten: take another run "
                                    "number or directory, or move it away",
                                    path));
    }
    return fail_errno(kind, fmt::format("create {}", path), errno);
  }
  ManifestWriter writer(std::move(path), std::move(descriptor));
  const json::Value line = json::Object{{"manifest", manifest_version},
                                        {"run", header.run},
                                        {"protocol", header.protocol},
                                        {"integrity", header.integrity ? "crc32c" : "none"},
                                        {"started_unix_ns", header.started_unix_ns},
                                        {"fanin", version}};
  if (auto written = writer.write_line(line.dump()); !written) {
    return std::unexpected(std::move(written.error()));
  }
  return writer;
}

Result<> ManifestWriter::write_line(std::string line) {
  line += '\n';
  if (torn_) line.insert(0, 1, '\n');
  ssize_t written = 0;
  do {
    written = ::write(descriptor_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) {
    size_ += written;
    torn_ = false;
    return {};
  }
  const int error_number = written < 0 ? errno : ENOSPC;
  if (written > 0 &&
      ::ftruncate(descriptor_.get(), size_) != 0) { // a torn line stays in the middle
    size_ += written;
    torn_ = true;
  }
  return fail_errno(error_number == ENOSPC ? ErrorKind::exhausted : ErrorKind::internal,
                    fmt::format("write {}", path_), error_number);
}

Result<> ManifestWriter::add(const ManifestFile& file) {
  const json::Value line =
      json::Object{{"file", file.file}, {"node", file.node}, {"incarnation", file.incarnation}};
  return write_line(line.dump());
}

Result<> ManifestWriter::add(const ManifestWinner& winner) {
  const json::Value line = json::Object{{"first", winner.events.first},
                                        {"end", winner.events.end},
                                        {"attempt", winner.attempt},
                                        {"node", winner.node},
                                        {"incarnation", winner.incarnation}};
  return write_line(line.dump());
}

Result<> ManifestWriter::finish(const ManifestSummary& summary) {
  json::Value line;
  line["summary"] = json::Object{{"built", summary.built},
                                 {"incomplete", summary.incomplete},
                                 {"lost", summary.lost},
                                 {"balanced", summary.balanced},
                                 {"ended_unix_ns", summary.ended_unix_ns}};
  if (auto written = write_line(line.dump()); !written) return written;
  if (::fdatasync(descriptor_.get()) == 0) return {};
  return fail_errno(ErrorKind::internal, fmt::format("fdatasync {}", path_), errno);
}

Result<Manifest> read_manifest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorKind::not_found, fmt::format("{} cannot be opened", path));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  Manifest manifest;
  manifest.path = path;
  std::size_t number = 0;
  std::size_t begin = 0;
  // What follows the last end of line is torn: its writer was killed.
  for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const auto line = json::Value::parse(std::string_view{text}.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (!line && number > 1) { // torn by a full disk
      manifest.notes.push_back(fmt::format("{}:{}: not JSON, left out", path, number));
      continue;
    }
    const std::string problem = !line         ? "not JSON"
                                : number == 1 ? parse_header(*line, manifest)
                                              : parse_line(*line, manifest);
    if (problem.empty()) continue;
    return fail(ErrorKind::malformed, fmt::format("{}:{}: {}", path, number, problem));
  }
  if (number > 0) return manifest;
  return fail(ErrorKind::malformed, fmt::format("{}: the file is empty", path));
}

bool is_manifest(const std::string& path) { return path.ends_with(".manifest.json"); }

Result<std::vector<std::string>> run_files(const std::string& path) {
  if (!is_manifest(path)) return std::vector{path};
  const auto manifest = read_manifest(path);
  if (!manifest) return std::unexpected(manifest.error());
  if (manifest->files.empty()) {
    return fail(ErrorKind::not_found, fmt::format("{}: the run has no files", path));
  }
  std::vector<std::string> files;
  const auto folder = std::filesystem::path(path).parent_path();
  for (const auto& file : manifest->files) files.push_back((folder / file.file).string());
  return files;
}

} // namespace fanin::storage
