/// \file
/// Decodes the raw files of slsDetector receivers (JUNGFRAU, EIGER, MYTHEN3, ...): each port (part)
/// of a detector has a sequence of files, a file has records of one size, a record is a header of
/// 112 bytes and an image. Little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fanin/base/result.hpp"
#include "fanin/source/file_window.hpp"

namespace fanin::source {

inline constexpr std::size_t sls_header_size = 112;

/// What is used of it.
struct SlsHeader {
  std::uint64_t frame = 0;
  std::uint32_t packets_caught = 0;

  [[nodiscard]] static SlsHeader decode(std::span<const std::byte, sls_header_size> bytes);
};

/// The path of the files of one port: `{part}` and `{file}` stand for the numbers, as in
/// data/run_d{part}_f{file}_0.raw.
struct SlsPattern {
  std::string text;
  std::uint32_t part = 0;

  [[nodiscard]] std::string path(std::uint32_t file) const;
  [[nodiscard]] bool several_files() const; ///< false: the path has no {file}, so there is one file
};

/// The image size in a master file ("Image Size in bytes": N, or Image Size : N bytes). Errors:
/// not_found, malformed.
[[nodiscard]] Result<std::uint64_t> read_sls_image_size(const std::string& master_path);
/// The image size from the text of a master file; for fuzzing.
[[nodiscard]] std::optional<std::uint64_t> find_sls_image_size(std::string_view master);

/// Reads the records of one port, over its files.
class SlsReader {
public:
  /// Opens the first file. Errors: not_found, malformed (not a whole number of records).
  [[nodiscard]] static Result<SlsReader> open(const SlsPattern& pattern, std::uint64_t image_size);
  /// Reads one file that is open already.
  [[nodiscard]] static Result<SlsReader> over(FileWindow file, std::uint64_t image_size);

  /// Moves to the next record and decodes its header. False: no file follows the last record.
  [[nodiscard]] Result<bool> next();
  [[nodiscard]] const SlsHeader& header() const { return header_; }
  /// Copies bytes of the record, with its header, from `from` on.
  [[nodiscard]] Result<> read(std::uint64_t from, std::span<std::byte> out) const;
  [[nodiscard]] Result<> rewind(); ///< moves before the first record of the first file

  [[nodiscard]] std::uint64_t record_size() const { return record_size_; }
  [[nodiscard]] std::uint64_t offset() const { return offset_; } ///< of the record in its file
  [[nodiscard]] const FileWindow& file() const { return file_; }

private:
  SlsReader(FileWindow file, std::uint64_t image_size)
      : file_(std::move(file)), record_size_(image_size + sls_header_size) {}
  [[nodiscard]] Result<> check_size() const;

  std::optional<SlsPattern> pattern_;
  FileWindow file_;
  std::uint64_t record_size_;
  std::uint32_t file_index_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t next_ = 0;
  SlsHeader header_;
};

} // namespace fanin::source
