/// \file
/// The manifest of a run: its files and, for every batch that was assigned more than once, the copy
/// that counts. JSON lines beside the run files, appended during the run. It can be read at any
/// time, also after a kill; then the last line may be torn and is ignored.
///
///     {"manifest":1,"run":42,"protocol":"pull","integrity":"crc32c","started_unix_ns":...,"fanin":"0.1.0"}
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

#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/named_file.hpp"

namespace fanin::storage {

struct ManifestHeader {
  RunNumber run = 0;
  std::string protocol; ///< "push" or "pull"
  bool integrity = true;
  std::int64_t started_unix_ns = 0;
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
  std::map<std::string, std::uint64_t> dropped_by_reason{}; ///< names of wire::DropReason
  wire::MissingCounts missing{};
};

struct ManifestSummary {
  std::uint64_t built = 0; ///< events, with the incomplete ones
  std::uint64_t incomplete = 0;
  std::uint64_t lost = 0;
  bool balanced = false;
  std::int64_t ended_unix_ns = 0;
  std::optional<std::uint64_t> gaps{}; ///< numbers that no source has; none: a manifest of before
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

/// run000042.manifest.json
[[nodiscard]] FANIN_API std::string manifest_name(RunNumber run);

/// Thread: one. Every line is one write to the kernel, which does not wait for the disk. A line
/// that cannot be written (a full disk) is kept and written before the next one.
class ManifestWriter {
public:
  /// Makes a new file, which gets its name when its first line is written. Errors: refused (it
  /// exists, no permission), not_found (the folder), exhausted, internal; then there is no file.
  [[nodiscard]] static Result<ManifestWriter> create(const std::string& directory,
                                                     const ManifestHeader& header);

  /// Errors: exhausted, internal; the line is kept.
  [[nodiscard]] Result<> add(const ManifestFile& file);
  [[nodiscard]] Result<> add(const ManifestWinner& winner);
  /// Writes the last line, and waits for the disk.
  [[nodiscard]] Result<> finish(const ManifestSummary& summary);
  /// Writes the lines that are kept. Errors: as of add(); exhausted (more had to be kept than
  /// kept_max, and lines were left out).
  [[nodiscard]] Result<> flush();
  /// False: somebody else has removed, renamed or replaced it. One system call.
  [[nodiscard]] bool there() const { return file_.there(); }
  /// Writes all lines into a new file at its name, also into a folder that was removed. Errors: as
  /// of create(); then it may be tried again.
  [[nodiscard]] Result<> restore();
  [[nodiscard]] const std::string& path() const { return path_; }

  static constexpr std::size_t kept_max = 16U << 20; ///< bytes

private:
  explicit ManifestWriter(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Result<> make_file(const std::function<Result<>(Descriptor&)>& fill);
  [[nodiscard]] Result<> copy_to(const Descriptor& file) const;
  [[nodiscard]] Result<> write_line(const std::string& line);

  std::string path_;
  NamedFile file_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
  std::string kept_; // lines that are not in the file
  std::uint64_t left_out_ = 0;
  bool finished_ = false;
};

/// Reads a manifest. A line that this version does not write is an error that names file and line.
/// A line that is not JSON was torn by a full disk and is left out. Errors: not_found, malformed.
[[nodiscard]] FANIN_API Result<Manifest> read_manifest(const std::string& path);
/// Reads the content of a manifest; `path` is for messages.
[[nodiscard]] FANIN_API Result<Manifest> parse_manifest(std::string_view text,
                                                        const std::string& path);

/// The run whose manifest or run file has this name; none if it is another name.
[[nodiscard]] FANIN_API std::optional<RunNumber> run_of(std::string_view name);

[[nodiscard]] FANIN_API bool is_manifest(const std::string& path); ///< by its name

/// The files that `paths` stand for: run files, and those that manifests name.
struct RunFiles {
  std::vector<std::string> files;
  std::vector<std::string> manifests;
};
/// A file that a manifest names is the file of that name in `paths`; otherwise the one beside the
/// manifest. A missing file is left out if it is on another host. Errors: as of read_manifest();
/// not_found (a run that built events has no files, or none of them is on this host).
[[nodiscard]] FANIN_API Result<RunFiles>
find_run_files(const std::vector<std::string>& paths,
               const std::function<bool(const std::string& host)>& is_this_host);

} // namespace fanin::storage
