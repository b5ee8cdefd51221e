/// \file
/// Reads run files back and checks everything in them: `fanin verify`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"

namespace fanin::storage {

struct VerifyOptions {
  /// Called after every few megabytes, with the bytes that are checked and the bytes of all files.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  std::size_t lines_max = 100; ///< most lines in each of `problems`, `notes` and `missing`
  std::vector<std::string> manifests{}; ///< manifests of runs that are not beside their files
  std::vector<std::string> unnamed{}; ///< more files, which may be gone: RunFiles::unnamed
};

struct VerifyResult {
  /// An event counts once, whatever the number of its copies.
  std::uint64_t events = 0;
  std::uint64_t complete = 0;
  std::uint64_t incomplete = 0; ///< a required source is missing
  std::uint64_t superseded = 0; ///< copies that do not count: of an earlier attempt, or not
                                ///< acknowledged
  std::uint64_t duplicates = 0; ///< further copies that nothing explains
  std::uint64_t crc_errors = 0; ///< fragments whose bytes do not match their checksum
  std::uint64_t flagged = 0; ///< fragments with a fault that was found and flagged when built
  std::uint64_t gaps = 0; ///< event numbers that no source has
  std::uint64_t rejected = 0; ///< events without fragments, by the filter; of all copies
  std::uint64_t fragments = 0; ///< of all copies
  std::uint64_t bytes = 0; ///< of payload, of all copies
  std::size_t files = 0; ///< that could be read
  std::vector<std::string> problems; ///< what is wrong; one line each
  std::vector<std::string> notes; ///< remarks: files that are not closed, or were not given
  std::vector<std::string> missing; ///< what incomplete events lack, by name; one line for all
                                    ///< that lack the same, with their numbers
  std::uint64_t problems_left_out = 0; ///< lines beyond lines_max
  std::uint64_t notes_left_out = 0;
  std::uint64_t missing_left_out = 0; ///< lines, and events that are in none

  /// Nothing is wrong. Incomplete events and superseded copies are normal.
  [[nodiscard]] bool good() const { return duplicates == 0 && crc_errors == 0 && problems.empty(); }
};

/// Checks all given files, run by run: CRC32C of every fragment, completeness against /sources,
/// copies of one event against each other. The run's manifest decides which copy counts: the given
/// manifest, otherwise the one beside the files. If there is none, or it does not name the event,
/// the latest attempt counts. A file that cannot be read is a problem in the result, and the
/// others are checked. Blocks on the disk; memory: a few megabytes, and 32 bytes for every batch.
/// Errors: usage (no files).
[[nodiscard]] FANIN_API Result<VerifyResult> verify(std::span<const std::string> files,
                                                    const VerifyOptions& options);

} // namespace fanin::storage
