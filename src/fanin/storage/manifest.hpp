/// \file
/// The manifest of a run: its files and, for every batch that was assigned more than once, the copy
/// that counts. JSON lines beside the run files, appended during the run. It can be read at any
/// time, also after a kill; then the last line may be torn and is ignored.
///
///     {"manifest":"version 1","run":42,"run_id":2483160924410759,"protocol":"pull",
///       "integrity":"crc32c","started_unix_ns":...,"fanin":"0.1.0"}
///     {"file":"run000042_bu0_i1_0001.h5","node":"bu0","incarnation":1,"host":"daq-bu0"}
///     {"first":2048,"end":3072,"attempt":1,"node":"bu1","incarnation":1}
///     {"summary":{"built":1000000,"incomplete":0,"lost":0,"balanced":true,"ended_unix_ns":...,
///       "gaps":{"count":10,"ranges":[[512,522]]},"sources":[{"id":1,"name":"s1","read":...}]}}
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/wire/reasons.hpp"

namespace fanin::storage {

struct ManifestHeader {
  RunNumber run = 0;
  std::uint64_t run_id = 0; ///< as in RunFileInfo
  std::string protocol; ///< "push" or "pull"
  bool integrity = true;
  std::int64_t started_unix_ns = 0; ///< as the host's clock said; before 1970 it is negative
};

struct ManifestFile {
  std::string node;
  Incarnation incarnation = 0;
  std::string file; ///< name only; the file is in the folder of the manifest
  std::string host{}; ///< the host of the file; empty: the configuration names none
};

/// The copy of these events that was acknowledged.
struct ManifestWinner {
  EventRange events;
  Attempt attempt = 0;
  std::string node;
  Incarnation incarnation = 0;
};

/// What became of a source's fragments, and why events lack one: as the run's ledger has it.
struct ManifestSource {
  SourceId id = 0;
  std::string name;
  std::uint64_t read = 0; ///< = built + late + dropped + lost, if the ledger is balanced
  std::uint64_t built = 0;
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  std::uint64_t lost = 0;
  std::map<std::string, std::uint64_t> dropped_by_reason{}; ///< as in the result of a run
  wire::MissingCounts missing{};
};

struct ManifestSummary {
  std::uint64_t built = 0; ///< events, with the incomplete ones
  std::uint64_t incomplete = 0;
  std::uint64_t lost = 0;
  bool balanced = false;
  std::int64_t ended_unix_ns =
      0; ///< the start plus the time that has passed; a change of the host's clock has no effect
  std::uint64_t gaps = 0; ///< numbers that no source has
  std::vector<EventRange> gap_ranges{}; ///< the first ones, ascending
  std::vector<ManifestSource> sources{};
};

struct Manifest {
  std::string path;
  ManifestHeader header;
  std::vector<ManifestFile> files;
  std::vector<ManifestWinner> winners; ///< in order of writing; a later line overrides
  std::optional<ManifestSummary> summary; ///< none: the run did not end in good order
  std::vector<std::string> notes; ///< about torn lines that were written again
  std::vector<std::string> damage; ///< what is wrong with lines that were left out
};

/// Rises with every change of what is in the lines.
inline constexpr std::string_view manifest_version = "version 1";

/// run000042.manifest.json
[[nodiscard]] FANIN_API std::string manifest_name(RunNumber run);

/// Reads a manifest. A line that fanin does not write is an error that names file and line.
/// A line that is not JSON was torn by a full disk and is left out. Errors: not_found, malformed.
[[nodiscard]] FANIN_API Result<Manifest> read_manifest(const std::string& path);
/// Reads the content of a manifest; `path` is for messages.
[[nodiscard]] FANIN_API Result<Manifest> parse_manifest(std::string_view text,
                                                        const std::string& path);

/// The run whose manifest or run file has this name; none if it is another name.
[[nodiscard]] FANIN_API std::optional<RunNumber> run_of(std::string_view name);

[[nodiscard]] FANIN_API bool is_manifest(const std::string& path); ///< by its name

/// Paths of the run files with that number in the folder of a manifest, spelled as it is there,
/// ascending, whether it names them or not.
[[nodiscard]] FANIN_API std::vector<std::string> run_files_beside(const std::string& manifest,
                                                                  RunNumber run);

/// The files that `paths` stand for: run files, and those that manifests name.
struct RunFiles {
  std::vector<std::string> files;
  std::vector<std::string> unnamed; ///< beside a manifest that does not name them
  std::vector<std::string> manifests;

  /// `files`, then `unnamed`.
  [[nodiscard]] std::vector<std::string> all() const {
    std::vector<std::string> both = files;
    both.insert(both.end(), unnamed.begin(), unnamed.end());
    return both;
  }
};
/// What is given, run by run, for find_run_files(): a folder stands for all manifests in it; of
/// several manifests each is a run, with those of the files that it names. Errors: not_found (a
/// folder without a manifest).
[[nodiscard]] FANIN_API Result<std::vector<std::vector<std::string>>>
split_into_runs(const std::vector<std::string>& paths);
/// A file that a manifest names is the file of that name in `paths`; otherwise the one beside the
/// manifest. A missing file is left out if it is on another host. Run files of that run beside the
/// manifest belong to it as well: it does not name those that were begun after the event manager
/// had died, and those to which nothing is committed, which may go at any time. Errors: as of
/// read_manifest(); not_found (a run that built events has no files, or none of them is on this
/// host).
[[nodiscard]] FANIN_API Result<RunFiles>
find_run_files(const std::vector<std::string>& paths,
               const std::function<bool(const std::string& host)>& is_this_host);

} // namespace fanin::storage
