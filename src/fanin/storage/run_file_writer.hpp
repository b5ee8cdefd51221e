/// \file
/// Writes one run file in HDF5. It can be read while it is written, and after a kill (SWMR). The
/// layout is in storage/layout.hpp and docs/modules/storage.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/layout.hpp"
#include "fanin/storage/named_file.hpp"
#include "fanin/wire/slice.hpp"

namespace fanin::storage {

/// When a batch counts as committed.
enum class CommitMode : std::uint8_t {
  written, ///< the kernel has it: survives the death of the process (kill -9)
  synced ///< the disk has it: survives loss of power
};

struct RunFileOptions {
  std::string directory = ".";
  RunNumber run = 0;
  std::uint64_t run_id = 0; ///< random: another run may have the same number
  std::string node; ///< name of the builder unit; letters, digits, ".", "-", "_"
  NodeId node_index = 0;
  Incarnation incarnation = 1;
  std::vector<SourceInfo> sources; ///< of the whole run, in any order; merged ones by their members
  std::vector<MergedSource> merged{}; ///< in any order
  wire::Slice slice{}; ///< rows have the detector's numbers
  std::vector<StreamInfo> streams{}; ///< what filter units accept into; empty: there are none
  bool integrity = true; ///< false: no checksums in this run (integrity = "none")
  std::int64_t started_unix_ns = 0; ///< begin of the run, UTC
  std::string configuration; ///< as used: TOML
  std::string comment; ///< at most text_attribute_max bytes
  std::vector<Metadata> metadata; ///< likewise its texts
  CommitMode commit = CommitMode::written;
  std::uint64_t max_file = 8ULL << 30; ///< bytes; then the owner begins a new part

  /// For measurements and tests. The defaults were the best in measurements.
  std::uint64_t bytes_chunk = 0; ///< bytes, a multiple of 4096; 0: by part, as rows_chunk
  std::uint64_t rows_chunk = 0; ///< rows of /events; twice as many of /fragments
  bool direct = true; ///< false: write with H5Dwrite, with one copy
  bool reserve = true; ///< false: no fallocate ahead of writing
};

/// Size at which the first part ends. It takes its space in small pieces, so that a small run has a
/// small file. HDF5's index grows with the number of pieces, so longer parts take large ones.
inline constexpr std::uint64_t first_part_max = 128U << 20; ///< bytes of payload and rows

/// Bytes of a text that is kept as an attribute of a file.
inline constexpr std::size_t text_attribute_max = 32U << 10;

/// run000042_bu0_i1_0001.h5: run, builder unit, incarnation, part (from 1).
[[nodiscard]] std::string run_file_name(RunNumber run, std::string_view node,
                                        Incarnation incarnation, std::uint32_t part);

/// Thread: one at a time. All calls block on the disk. An error of kind `exhausted` that leaves
/// broken() false means that the disk is full and the same call may be repeated later; after any
/// other error the writer is broken(): what was committed stays readable, nothing more can be
/// added.
class RunFileWriter {
public:
  /// Makes a new file; it never overwrites one. Errors: refused (it exists, no permission),
  /// not_found (the folder), usage (node name), exhausted, internal.
  [[nodiscard]] static Result<std::unique_ptr<RunFileWriter>> create(const RunFileOptions& options,
                                                                     std::uint32_t part);
  ~RunFileWriter(); ///< without close(): leaves the file as after a kill

  /// The run has begun: the first file is made before. Errors: as of append().
  [[nodiscard]] Result<> set_started(std::int64_t unix_ns);
  /// Writes a group of batches and commits them together. The pages must stay until it returns;
  /// their counts are not touched. After `exhausted` only the same group may be given again.
  [[nodiscard]] Result<> append(std::span<const BuiltBatch* const> group);
  /// Closes the file in good order. Then readers need no SWMR mode.
  [[nodiscard]] Result<> close();

  [[nodiscard]] bool broken() const;
  /// False: somebody else has removed, renamed, replaced, emptied or cut the file. Of what the two
  /// last groups wrote it looks at the ends; after close() also at all of HDF5's metadata.
  [[nodiscard]] bool intact() const;
  [[nodiscard]] const NamedFile& file() const;
  [[nodiscard]] const std::string& path() const { return file().path(); }
  /// Committed.
  [[nodiscard]] std::uint64_t events() const;
  [[nodiscard]] std::uint64_t size() const; ///< bytes of payload and rows, by which files are
                                            ///< rotated

private:
  struct Impl;
  explicit RunFileWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace fanin::storage
