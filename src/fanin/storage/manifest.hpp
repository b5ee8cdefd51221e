// The manifest of a run: which files belong to it, and for every batch that was assigned more than
// once, whose copy counts. JSON lines beside the run files, appended while the run
// goes on; readable at any time and after a kill, when the last line may be torn and is ignored.
//
//   {"manifest":1,"run":42,"protocol":"pull","integrity":"crc32c","started_unix_ns":...,"fanin":"0.1.0"}
//   {"file":"run000042_bu0_i1_0001.h5","node":"bu0","incarnation":1}
//   {"first":2048,"end":3072,"attempt":1,"node":"bu1","incarnation":1}
//   {"summary":{"built":1000000,"incomplete":0,"lost":0,"balanced":true,"ended_unix_ns":...}}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"

namespace fanin::storage {

struct ManifestHeader {
  RunNumber run = 0;
  std::string protocol; // "push" or "pull"
  bool integrity = true;
  std::int64_t started_unix_ns = 0;
};

struct ManifestFile {
  std::string node;
  Incarnation incarnation = 0;
  std::string file; // name only: the manifest lies in the same directory
};

// The copy of these events that was acknowledged.
struct ManifestWinner {
  EventRange events;
  Attempt attempt = 0;
  std::string node;
  Incarnation incarnation = 0;
};

struct ManifestSummary {
  std::uint64_t built = 0; // events, the incomplete ones included
  std::uint64_t incomplete = 0;
  std::uint64_t lost = 0;
  bool balanced = false;
  std::int64_t ended_unix_ns = 0;
};

struct Manifest {
  std::string path;
  ManifestHeader header;
  std::vector<ManifestFile> files;
  std::vector<ManifestWinner> winners; // in order of writing; a later line overrules
  std::optional<ManifestSummary> summary; // none: the run did not end in good order
  std::vector<std::string> notes; // of lines that were left out
};

// run000042.manifest.json
[[nodiscard]] std::string manifest_name(RunNumber run);

// Thread: one. Every line is one write to the kernel, which does not wait for the disk.
class ManifestWriter {
public:
  // A new file. Errors: refused (exists, no permission), not_found (directory), exhausted,
  // internal.
  [[nodiscard]] static Result<ManifestWriter> create(const std::string& directory,
                                                     const ManifestHeader& header);

  // Errors: exhausted, internal; the manifest is as before, and the call may be repeated.
  [[nodiscard]] Result<> add(const ManifestFile& file);
  [[nodiscard]] Result<> add(const ManifestWinner& winner);
  // The last line; also waits for the disk.
  [[nodiscard]] Result<> finish(const ManifestSummary& summary);
  [[nodiscard]] const std::string& path() const { return path_; }

private:
  ManifestWriter(std::string path, Descriptor descriptor);
  [[nodiscard]] Result<> write_line(std::string line);

  std::string path_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
  bool torn_ = false; // the last line was cut off and could not be taken back
};

// Strict: a line that this version does not write is an error that names file and line; one that is
// no JSON was torn by a full disk and is left out. Errors:
// not_found, malformed.
[[nodiscard]] Result<Manifest> read_manifest(const std::string& path);

[[nodiscard]] bool is_manifest(const std::string& path); // by its name

// The run files that `path` stands for: those that a manifest names, or itself. Errors: as of
// read_manifest(); not_found (the run has no files).
[[nodiscard]] Result<std::vector<std::string>> run_files(const std::string& path);

} // namespace fanin::storage
