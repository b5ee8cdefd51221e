#include "fanin/storage/manifest.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/json.hpp"
#include "fanin/base/try.hpp"

namespace fanin::storage {
namespace {

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
  std::int64_t integer(const char* key) { // may be negative
    const auto value = object_.at(key).integer();
    if (!value) complain(key);
    return value.value_or(0);
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
  if (written.text() != manifest_version) {
    return fmt::format("a manifest of format {}, and this fanin reads \"{}\": use the fanin that "
                       "wrote it",
                       written.dump(), manifest_version);
  }
  Members members(line);
  manifest.header.run = members.number<RunNumber>("run");
  manifest.header.run_id = members.number<std::uint64_t>("run_id");
  manifest.header.protocol = members.text("protocol");
  const std::string integrity = members.text("integrity");
  manifest.header.integrity = integrity == "crc32c";
  manifest.header.started_unix_ns = members.integer("started_unix_ns");
  if (!members.problem().empty() || manifest.header.integrity || integrity == "none")
    return members.problem();
  return fmt::format("\"integrity\" is not known: {}", integrity);
}

std::string parse_source(const json::Value& value, ManifestSource& source) {
  if (!value.is_object()) return "a source is not an object";
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
  if (!reasons.is_object() || !missing.is_object())
    return "the reasons of a source are not objects";
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
  if (!value.is_object() || !value.at("ranges").is_list()) return "\"gaps\" has no list of ranges";
  Members members(value);
  summary.gaps = members.number<std::uint64_t>("count");
  for (const json::Value& pair : value.at("ranges").list()) {
    const bool good = pair.is_list() && pair.list().size() == 2 && pair.list()[0].is_natural() &&
                      pair.list()[1].is_natural();
    const EventRange gap =
        good ? EventRange{pair.list()[0].natural(), pair.list()[1].natural()} : EventRange{};
    const EventNumber before = summary.gap_ranges.empty() ? 0 : summary.gap_ranges.back().end;
    if (gap.empty() || gap.first < before) return "\"ranges\" of gaps are empty, or not in order";
    summary.gap_ranges.push_back(gap);
  }
  return members.problem();
}

std::string parse_summary(const json::Value& line, Manifest& manifest) {
  if (!line.is_object()) return "\"summary\" is not an object";
  Members members(line);
  ManifestSummary summary;
  summary.built = members.number<std::uint64_t>("built");
  summary.incomplete = members.number<std::uint64_t>("incomplete");
  summary.lost = members.number<std::uint64_t>("lost");
  summary.balanced = members.boolean("balanced");
  summary.ended_unix_ns = members.integer("ended_unix_ns");
  std::string problem = members.problem();
  if (problem.empty()) problem = parse_gaps(line.at("gaps"), summary);
  if (problem.empty() && !line.at("sources").is_list()) problem = "\"sources\" is no list";
  if (!problem.empty()) return problem;
  for (const json::Value& source : line.at("sources").list()) {
    problem = parse_source(source, summary.sources.emplace_back());
    if (!problem.empty()) return problem;
  }
  manifest.summary = std::move(summary);
  return {};
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

} // namespace

std::string manifest_name(RunNumber run) { return fmt::format("run{:06}.manifest.json", run); }

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

std::vector<std::string> run_files_beside(const std::string& manifest, RunNumber run) {
  const std::string folder = manifest.substr(0, manifest.rfind('/') + 1);
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder.empty() ? "." : folder, error), end;
       !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (run_of(name) == run && !is_manifest(name)) found.push_back(folder + name);
  }
  std::ranges::sort(found);
  return found;
}

namespace {

Result<std::vector<std::string>> with_folders_opened(const std::vector<std::string>& paths) {
  std::vector<std::string> opened;
  for (const auto& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      opened.push_back(path);
      continue;
    }
    std::vector<std::string> manifests;
    for (const auto& entry : std::filesystem::directory_iterator(path, error))
      if (is_manifest(entry.path())) manifests.push_back(entry.path());
    if (manifests.empty()) {
      return fail(ErrorKind::not_found, fmt::format("{}: there is no manifest in this folder: "
                                                    "give run files, or the folder of a run",
                                                    path));
    }
    std::ranges::sort(manifests);
    opened.insert(opened.end(), manifests.begin(), manifests.end());
  }
  return opened;
}

} // namespace

Result<std::vector<std::vector<std::string>>>
split_into_runs(const std::vector<std::string>& paths) {
  auto rest = FANIN_TRY(with_folders_opened(paths));
  if (std::ranges::count_if(rest, is_manifest) < 2)
    return std::vector<std::vector<std::string>>{std::move(rest)};
  std::vector<std::vector<std::string>> runs;
  for (const auto& path : rest)
    if (is_manifest(path)) runs.push_back({path});
  std::erase_if(rest, is_manifest);
  for (auto& run : runs) {
    const auto manifest = read_manifest(run.front());
    if (!manifest) continue; // that is said when it is read again
    const auto is_its_own = [&](const std::string& path) {
      return std::ranges::find(manifest->files, std::filesystem::path(path).filename().string(),
                               &ManifestFile::file) != manifest->files.end();
    };
    std::ranges::copy_if(rest, std::back_inserter(run), is_its_own);
    std::erase_if(rest, is_its_own);
  }
  if (!rest.empty()) runs.push_back(std::move(rest));
  return runs;
}

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
    const auto manifest = FANIN_TRY(read_manifest(path));
    found.manifests.push_back(path);
    std::set<std::string> hosts;
    std::set<std::string> known = names;
    for (const auto& file : manifest.files) {
      known.insert(file.file);
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
    for (auto& file : run_files_beside(path, manifest.header.run)) {
      if (!known.contains(std::filesystem::path(file).filename().string()))
        found.unnamed.push_back(std::move(file));
    }
    const bool empty_run = manifest.summary && manifest.summary->built == 0;
    if (manifest.files.empty() && found.unnamed.empty() && !empty_run)
      return fail(ErrorKind::not_found, fmt::format("{}: the run has no files", path));
    if (found.files.empty() && found.unnamed.empty() && !manifest.files.empty()) {
      return fail(ErrorKind::not_found, fmt::format("{}: the files of the run are on {}: run this "
                                                    "there, or give the paths of the files as well",
                                                    path, fmt::join(hosts, ", ")));
    }
  }
  return found;
}

} // namespace fanin::storage
