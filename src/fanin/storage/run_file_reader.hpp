/// \file
/// Reads run files: closed files, files that are being written, and files whose writer was killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/storage/layout.hpp"

namespace fanin::storage {

struct RunFileInfo {
  std::string path;
  RunNumber run = 0;
  std::uint64_t run_id = 0; ///< random, equal in all files of a run: it tells apart runs with the
                            ///< same number
  std::string node;
  NodeId node_index = 0;
  Incarnation incarnation = 0;
  std::uint32_t part = 0;
  bool integrity = true; ///< checksums were made in this run
  bool finished = false; ///< closed in good order; false: it is being written, or its writer died
  std::string damage; ///< what is damaged; empty: nothing was found
  std::int64_t started_unix_ns = 0; ///< of the run
  std::string started_utc;
  std::string configuration; ///< as used: TOML
  std::string comment;
  std::vector<Metadata> metadata; ///< by key
  std::string fanin_version;
  std::uint64_t file_size = 0; ///< bytes
  std::vector<SourceInfo> sources; ///< ascending by id
  std::vector<StreamInfo> streams; ///< of filter units; empty: there were none
};

/// Thread: one at a time. Every error names the file and what is wrong with it.
class FANIN_API RunFileReader {
public:
  /// Opens a file. Errors: not_found, refused, malformed (not a run file, or too damaged),
  /// unsupported (another format).
  [[nodiscard]] static Result<std::unique_ptr<RunFileReader>> open(const std::string& path);
  ~RunFileReader();

  [[nodiscard]] const RunFileInfo& info() const;
  /// Numbers of rows at open() or the last refresh().
  [[nodiscard]] std::uint64_t events() const;
  [[nodiscard]] std::uint64_t fragments() const;
  [[nodiscard]] std::uint64_t missing() const;
  [[nodiscard]] std::uint64_t gaps() const;
  [[nodiscard]] std::uint64_t bytes() const;
  /// Reads what has been committed since, in a file that is being written.
  [[nodiscard]] Result<> refresh();

  /// Reads rows from `first`, as many as `out` holds. Errors: malformed, internal.
  [[nodiscard]] Result<> read_events(std::uint64_t first, std::span<EventRow> out);
  [[nodiscard]] Result<> read_fragments(std::uint64_t first, std::span<FragmentRow> out);
  [[nodiscard]] Result<> read_missing(std::uint64_t first, std::span<MissingRow> out);
  [[nodiscard]] Result<> read_gaps(std::uint64_t first, std::span<GapRow> out);
  [[nodiscard]] Result<> read_bytes(std::uint64_t offset, std::span<std::byte> out);

  /// Calls `visit` with every event row in order until it returns false.
  [[nodiscard]] Result<>
  for_each_event(const std::function<bool(std::uint64_t index, const EventRow& row)>& visit);
  /// The last row of `event`; none if it is not in this file. It reads all event rows.
  [[nodiscard]] Result<std::optional<EventRow>> find_event(EventNumber event);
  /// The most rows of one event in a table: the number of sources, or a constant if that is more.
  /// A damaged event row that claims more is an error, and no memory is allocated for it.
  [[nodiscard]] std::uint64_t rows_of_event_max() const;
  /// The rows of an event, checked against its event row. Errors: malformed.
  [[nodiscard]] Result<std::vector<FragmentRow>> fragments_of(const EventRow& row);
  [[nodiscard]] Result<std::vector<MissingRow>> missing_of(const EventRow& row);
  [[nodiscard]] Result<std::vector<std::byte>> bytes_of(const FragmentRow& row);

private:
  struct Impl;
  explicit RunFileReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace fanin::storage
