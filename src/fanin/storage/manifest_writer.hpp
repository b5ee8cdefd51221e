// Writes the manifest of a run (manifest.hpp), line by line while it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/result.hpp"
#include "fanin/storage/manifest.hpp"
#include "fanin/storage/named_file.hpp"

namespace fanin::storage {

// Thread: one. Every line is one write to the kernel, which does not wait for the disk. A line
// that cannot be written (a full disk) is kept and written before the next one.
class ManifestWriter {
public:
  // Makes a new file, which gets its name when its first line is written. Errors: refused (it
  // exists, no permission), not_found (the folder), exhausted, internal; then there is no file.
  [[nodiscard]] static Result<ManifestWriter> create(const std::string& directory,
                                                     const ManifestHeader& header);

  // Errors: exhausted, internal; the line is kept.
  [[nodiscard]] Result<> add(const ManifestFile& file);
  [[nodiscard]] Result<> add(const ManifestWinner& winner);
  // Writes the last line, and waits for the disk.
  [[nodiscard]] Result<> finish(const ManifestSummary& summary);
  // Writes the lines that are kept. Errors: as of add(); exhausted (more had to be kept than
  // kept_max, and lines were left out).
  [[nodiscard]] Result<> flush();
  // False: somebody else has removed, renamed, replaced or cut it.
  [[nodiscard]] bool intact();
  // Writes all lines again at its name, also into a folder that was removed. Errors: as of
  // create(); then it may be tried again.
  [[nodiscard]] Result<> restore();
  [[nodiscard]] const std::string& path() const { return path_; }

  static constexpr std::size_t kept_max = 16U << 20; // bytes

private:
  explicit ManifestWriter(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Result<> make_file(const std::function<Result<>(Descriptor&)>& fill);
  [[nodiscard]] Result<> write_line(const std::string& line);

  std::string path_;
  NamedFile file_;
  Descriptor descriptor_;
  std::string text_; // what is in the file, and the lines that are not in it yet
  std::size_t written_ = 0; // bytes of it that are in the file
  std::uint64_t left_out_ = 0;
  bool finished_ = false;
};

} // namespace fanin::storage
