/// \file
/// Reads a recorded file piece by piece. The file is read and not mapped: if another program
/// truncates it meanwhile, that is an error here, while a mapping would kill the process (SIGBUS).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/result.hpp"

namespace fanin::source {

class FileWindow {
public:
  /// Errors: not_found, refused, internal, with the path.
  [[nodiscard]] static Result<FileWindow> open(const std::string& path);
  /// A window over bytes in memory, for tests and fuzzing. The bytes must outlive it.
  FileWindow(std::string name, std::span<const std::byte> memory);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; } ///< bytes, when it was opened

  /// The bytes at `offset`, valid until the next call. Its memory grows to the largest piece, never
  /// beyond the size of the file. Errors: malformed, if the file ends before; internal.
  [[nodiscard]] Result<std::span<const std::byte>> at(std::uint64_t offset, std::size_t size);
  /// Copies the bytes into memory of the caller.
  [[nodiscard]] Result<> read(std::uint64_t offset, std::span<std::byte> out) const;
  /// "path: offset N: what", kind malformed.
  [[nodiscard]] std::unexpected<Error> wrong(std::uint64_t offset, std::string_view what) const;

private:
  FileWindow() = default;
  [[nodiscard]] Result<> check_range(std::uint64_t offset, std::size_t size) const;
  // Reads at most out.size() bytes; fewer at the end of the file.
  [[nodiscard]] Result<std::size_t> read_some(std::uint64_t offset, std::span<std::byte> out) const;

  std::string path_;
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
  std::span<const std::byte> memory_; // in place of a descriptor
  std::vector<std::byte> buffer_;
  std::uint64_t buffer_offset_ = 0;
  std::size_t buffer_size_ = 0; // bytes of it that are read
};

} // namespace fanin::source
