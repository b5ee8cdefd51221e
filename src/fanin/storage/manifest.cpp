#include "fanin/storage/manifest.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/json.hpp"
#include "fanin/version.hpp"

namespace fanin::storage {
namespace {

constexpr std::uint64_t manifest_version = 1;
constexpr std::size_t damaged_max = 100; // lines; with more of them it is no manifest

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
    if (problem_.empty()) problem_ = fmt::format("\"{}\" is missing or invalid", key);
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

json::Value to_json(const ManifestSource& source) {
  json::Value reasons{json::Object{}};
  for (const auto& [reason, count] : source.dropped_by_reason) reasons[reason] = count;
  json::Value missing{json::Object{}};
  for (std::size_t i = 1; i < wire::missing_reasons; ++i) {
    if (source.missing[i] != 0)
      missing[name(static_cast<wire::MissingReason>(i))] = source.missing[i];
  }
  return json::Object{{"id", source.id},
                      {"name", source.name},
                      {"read", source.read},
                      {"built", source.built},
                      {"late", source.late},
                      {"dropped", source.dropped},
                      {"lost", source.lost},
                      {"dropped_by_reason", std::move(reasons)},
                      {"missing", std::move(missing)}};
}

std::string parse_source(const json::Value& value, ManifestSource& source) {
  if (!value.is_object()) return "a source is no object";
  Members members(value);
  source.id = members.number<SourceId>("id");
  source.name = members.text("name");
  source.read = members.number<std::uint64_t>("read");
  source.built = members.number<std::uint64_t>("built");
  source.late = members.number<std::uint64_t>("late");
  source.dropped = members.number<std::uint64_t>("dropped");
  source.lost = members.number<std::uint64_t>("lost");
  if (!members.problem().empty()) return members.problem();
  const json::Value& reasons = value.at("dropped_by_reason");
  const json::Value& missing = value.at("missing");
  if (!reasons.is_object() || !missing.is_object()) return "a source's reasons are no objects";
  for (const auto& [reason, count] : reasons.object()) {
    if (!count.is_natural()) return fmt::format("\"{}\" is no number", reason);
    source.dropped_by_reason[reason] = count.natural();
  }
  Members counts(missing);
  for (std::size_t i = 1; i < wire::missing_reasons; ++i) {
    const char* const reason = name(static_cast<wire::MissingReason>(i));
    if (missing.find(reason) != nullptr) source.missing[i] = counts.number<std::uint64_t>(reason);
  }
  return counts.problem();
}

std::string parse_gaps(const json::Value& value, ManifestSummary& summary) {
  if (!value.is_object() || !value.at("ranges").is_list()) return "\"gaps\" is not as it should be";
  Members members(value);
  summary.gaps = members.number<std::uint64_t>("count");
  for (const json::Value& pair : value.at("ranges").list()) {
    const bool good = pair.is_list() && pair.list().size() == 2 && pair.list()[0].is_natural() &&
                      pair.list()[1].is_natural();
    const EventRange gap =
        good ? EventRange{pair.list()[0].natural(), pair.list()[1].natural()} : EventRange{};
    const EventNumber before = summary.gap_ranges.empty() ? 0 : summary.gap_ranges.back().end;
    if (gap.empty() || gap.first < before) return "\"ranges\" of gaps are not as they should be";
    summary.gap_ranges.push_back(gap);
  }
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
  std::string problem = members.problem();
  if (const json::Value* gaps = line.find("gaps"); gaps != nullptr && problem.empty()) {
    problem = parse_gaps(*gaps, summary);
  }
  if (const json::Value* sources = line.find("sources"); sources != nullptr && problem.empty()) {
    if (!sources->is_list()) return "\"sources\" is no list";
    for (const json::Value& source : sources->list()) {
      problem = parse_source(source, summary.sources.emplace_back());
      if (!problem.empty()) return problem;
    }
  }
  if (problem.empty()) manifest.summary = std::move(summary);
  return problem;
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
    if (line.find("host") != nullptr) file.host = members.text("host");
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

// A line that a full disk has torn is written again: it is the beginning of a later one, and
// nothing is missing. Any other line that is not JSON was damaged after it had been written.
void judge_damaged(std::span<const std::string_view> lines, std::span<const std::size_t> damaged,
                   Manifest& manifest) {
  std::set<std::string_view> later;
  std::size_t end = lines.size();
  for (auto at = damaged.rbegin(); at != damaged.rend(); ++at) {
    while (end > *at + 1) later.insert(lines[--end]);
    const auto repeated = later.lower_bound(lines[*at]);
    if (repeated != later.end() && repeated->starts_with(lines[*at])) {
      manifest.notes.push_back(
          fmt::format("{}:{}: torn, and written again below", manifest.path, *at + 1));
    } else {
      manifest.damage.push_back(
          fmt::format("{}:{}: the line is damaged (not JSON) and was left out, so it is not known "
                      "which copies of its events count, or what the run's sums are: restore the "
                      "manifest from a copy, and check the disk",
                      manifest.path, *at + 1));
    }
  }
  std::ranges::reverse(manifest.notes);
  std::ranges::reverse(manifest.damage);
}

ErrorKind manifest_error(int error_number) {
  return error_number == ENOENT   ? ErrorKind::not_found
         : error_number == ENOSPC ? ErrorKind::exhausted
                                  : ErrorKind::refused;
}

std::unexpected<Error> no_name(const std::string& path, int error_number) {
  if (error_number != EEXIST) {
    return fail_errno(manifest_error(error_number), fmt::format("create {}", path), error_number);
  }
  return fail(ErrorKind::refused, fmt::format("{} exists, and runs are never overwritten: take "
                                              "another run number or directory, or move it away",
                                              path));
}

} // namespace

std::string manifest_name(RunNumber run) { return fmt::format("run{:06}.manifest.json", run); }

// Without a name until `fill` has written what it needs: a full disk or a kill leaves no empty
// manifest. The name must be free.
Result<> ManifestWriter::make_file(const std::function<Result<>(Descriptor&)>& fill) {
  const std::filesystem::path path(path_);
  const auto hidden = (path.parent_path() / fmt::format(".{}.{}", path.filename().string(),
                                                        static_cast<int>(::getpid())))
                          .string();
  Descriptor file(::open(hidden.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (!file) return fail_errno(manifest_error(errno), fmt::format("create {}", path_), errno);
  auto done = fill(file);
  if (done && ::link(hidden.c_str(), path_.c_str()) != 0) done = no_name(path_, errno);
  ::unlink(hidden.c_str());
  return done;
}

Result<ManifestWriter> ManifestWriter::create(const std::string& directory,
                                              const ManifestHeader& header) {
  ManifestWriter writer(fmt::format("{}/{}", directory, manifest_name(header.run)));
  const json::Value line = json::Object{{"manifest", manifest_version},
                                        {"run", header.run},
                                        {"protocol", header.protocol},
                                        {"integrity", header.integrity ? "crc32c" : "none"},
                                        {"started_unix_ns", header.started_unix_ns},
                                        {"fanin", version}};
  auto done = writer.make_file([&](Descriptor& file) {
    writer.descriptor_ = std::move(file);
    return writer.write_line(line.dump());
  });
  if (!done) return std::unexpected(std::move(done.error()));
  writer.file_ = NamedFile(writer.path_, writer.descriptor_.get());
  return writer;
}

Result<> ManifestWriter::copy_to(const Descriptor& file) const {
  std::vector<char> block(64U << 10);
  for (std::int64_t at = 0; at < size_;) {
    const auto most = static_cast<std::size_t>(
        std::min<std::int64_t>(size_ - at, static_cast<std::int64_t>(block.size())));
    const ssize_t got = ::pread(descriptor_.get(), block.data(), most, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail_errno(ErrorKind::internal, fmt::format("read {}", path_), errno);
    if (::write(file.get(), block.data(), static_cast<std::size_t>(got)) != got)
      return fail_errno(ErrorKind::exhausted, fmt::format("write {}", path_), ENOSPC);
    at += got;
  }
  return {};
}

// The lines are still in the file that has lost its name.
Result<> ManifestWriter::restore() {
  std::error_code ignored; // making the file says it
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  Descriptor copy;
  auto done = make_file([&](Descriptor& file) {
    copy = std::move(file);
    return copy_to(copy);
  });
  if (!done) return done;
  descriptor_ = std::move(copy);
  file_ = NamedFile(path_, descriptor_.get());
  return flush();
}

Result<> ManifestWriter::write_line(const std::string& line) {
  if (kept_.size() + line.size() < kept_max) {
    kept_ += line;
    kept_ += '\n';
  } else {
    ++left_out_;
  }
  return flush();
}

Result<> ManifestWriter::flush() {
  while (!kept_.empty()) {
    const ssize_t written = ::write(descriptor_.get(), kept_.data(), kept_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == static_cast<ssize_t>(kept_.size())) {
      size_ += written;
      kept_.clear();
      break;
    }
    const int error_number = written < 0 ? errno : ENOSPC;
    if (written > 0 &&
        ::ftruncate(descriptor_.get(), size_) != 0) { // a torn line stays in the middle
      size_ += written;
      if (kept_.front() != '\n') kept_.insert(0, 1, '\n');
    }
    return fail_errno(error_number == ENOSPC ? ErrorKind::exhausted : ErrorKind::internal,
                      fmt::format("write {}", path_), error_number);
  }
  if (finished_ && ::fdatasync(descriptor_.get()) != 0) {
    return fail_errno(ErrorKind::internal, fmt::format("fdatasync {}", path_), errno);
  }
  if (left_out_ == 0) return {};
  return fail(ErrorKind::exhausted, fmt::format("{}: {} lines were left out", path_, left_out_));
}

Result<> ManifestWriter::add(const ManifestFile& file) {
  json::Value line =
      json::Object{{"file", file.file}, {"node", file.node}, {"incarnation", file.incarnation}};
  if (!file.host.empty()) line["host"] = file.host;
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
  if (summary.gaps) {
    json::Value ranges{json::List{}};
    for (const EventRange& gap : summary.gap_ranges) ranges.append(json::List{gap.first, gap.end});
    line["summary"]["gaps"] = json::Object{{"count", *summary.gaps}, {"ranges", std::move(ranges)}};
    json::Value sources{json::List{}};
    for (const auto& source : summary.sources) sources.append(to_json(source));
    line["summary"]["sources"] = std::move(sources);
  }
  finished_ = true;
  return write_line(line.dump());
}

Result<Manifest> read_manifest(const std::string& path) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind != std::filesystem::file_type::regular && std::filesystem::exists(path, ignored))
    return fail(ErrorKind::refused, fmt::format("{} is not a regular file", path));
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorKind::not_found, fmt::format("{} cannot be opened", path));
  return parse_manifest(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path) {
  Manifest manifest;
  manifest.path = path;
  std::vector<std::string_view> lines;
  std::vector<std::size_t> damaged; // indices of lines
  std::size_t begin = 0;
  // What follows the last end of line is torn: its writer was killed.
  for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
    const auto line = json::Value::parse(lines.back());
    if (!line && lines.size() > 1 && damaged.size() < damaged_max) {
      damaged.push_back(lines.size() - 1);
      continue;
    }
    const std::string problem = !line               ? "not JSON"
                                : lines.size() == 1 ? parse_header(*line, manifest)
                                                    : parse_line(*line, manifest);
    if (problem.empty()) continue;
    return fail(ErrorKind::malformed, fmt::format("{}:{}: {}", path, lines.size(), problem));
  }
  if (lines.empty()) return fail(ErrorKind::malformed, fmt::format("{}: the file is empty", path));
  judge_damaged(lines, damaged, manifest);
  return manifest;
}

std::optional<RunNumber> run_of(std::string_view name) {
  constexpr std::string_view digits = "0123456789";
  RunNumber run = 0;
  const auto* const end = name.data() + name.size();
  if (!name.starts_with("run")) return std::nullopt;
  if (std::from_chars(name.data() + 3, end, run).ec != std::errc{}) return std::nullopt;
  if (name == manifest_name(run)) return run;
  // run000042_bu0_i1_0001.h5, from its end: what is between may be any node's name
  const auto prefix = fmt::format("run{:06}_", run);
  if (!name.starts_with(prefix) || !name.ends_with(".h5")) return std::nullopt;
  name.remove_suffix(3);
  for (const std::string_view mark : {"_", "_i"}) {
    const auto number = name.find_last_not_of(digits) + 1;
    if (number == name.size() || !name.substr(0, number).ends_with(mark)) return std::nullopt;
    name = name.substr(0, number - mark.size());
  }
  if (name.size() <= prefix.size()) return std::nullopt;
  return run;
}

bool is_manifest(const std::string& path) { return path.ends_with(".manifest.json"); }

Result<RunFiles> find_run_files(const std::vector<std::string>& paths,
                                const std::function<bool(const std::string& host)>& is_this_host) {
  RunFiles found;
  std::set<std::string> names;
  for (const auto& path : paths) {
    if (is_manifest(path)) continue;
    found.files.push_back(path);
    names.insert(std::filesystem::path(path).filename().string());
  }
  for (const auto& path : paths) {
    if (!is_manifest(path)) continue;
    const auto manifest = read_manifest(path);
    if (!manifest) return std::unexpected(manifest.error());
    found.manifests.push_back(path);
    std::set<std::string> hosts;
    for (const auto& file : manifest->files) {
      if (names.contains(file.file)) continue;
      auto there = (std::filesystem::path(path).parent_path() / file.file).string();
      std::error_code ignored;
      if (!file.host.empty() && !std::filesystem::exists(there, ignored) &&
          !is_this_host(file.host)) {
        hosts.insert(file.host);
      } else {
        found.files.push_back(std::move(there));
      }
    }
    const bool empty_run = manifest->summary && manifest->summary->built == 0;
    if (manifest->files.empty() && !empty_run)
      return fail(ErrorKind::not_found, fmt::format("{}: the run has no files", path));
    if (found.files.empty() && !manifest->files.empty()) {
      return fail(ErrorKind::not_found, fmt::format("{}: the files of the run are on {}: run this "
                                                    "there, or give the paths of the files as well",
                                                    path, fmt::join(hosts, ", ")));
    }
  }
  return found;
}

} // namespace fanin::storage
