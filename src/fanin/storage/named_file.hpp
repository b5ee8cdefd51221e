/// \file
/// A file, the name that it was given, and bytes that it must hold. Someone else may remove,
/// rename, empty or shorten a file while it is written: then writing goes on without an error, and
/// nobody finds the data.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "fanin/base/descriptor.hpp"

namespace fanin::storage {

/// Bytes that were written at a place of a file. A file that is cut there reads zeros, or ends.
struct FileMark {
  static constexpr std::size_t max_size = 64;
  std::uint64_t address = 0;
  std::size_t size = 0; ///< 0: none
  std::array<std::byte, max_size> bytes{};

  /// The last ones of `written`, whose first byte is at `at`.
  [[nodiscard]] static FileMark at_end_of(std::uint64_t at, std::span<const std::byte> written) {
    FileMark mark;
    mark.size = std::min(written.size(), max_size);
    mark.address = at + written.size() - mark.size;
    std::ranges::copy(written.last(mark.size), mark.bytes.begin());
    return mark;
  }
};

class NamedFile {
public:
  NamedFile() = default;
  /// `descriptor`: the open file.
  NamedFile(std::string path, int descriptor) : path_(std::move(path)) {
    struct stat status{};
    if (::fstat(descriptor, &status) != 0) return;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    size_ = status.st_size;
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  /// From here on it must hold these, and be as long as it is now. `descriptor`: the open file.
  void expect(int descriptor, std::span<const FileMark> marks) {
    struct stat status{};
    if (::fstat(descriptor, &status) == 0) size_ = status.st_size;
    marks_.assign(marks.begin(), marks.end());
  }

  /// False: the name leads to no file, or to another one. One system call. Where the name cannot be
  /// looked up (no permission, a server that does not answer) this is not known: true.
  [[nodiscard]] bool has_name() const {
    struct stat status{};
    if (::stat(path_.c_str(), &status) != 0) return errno != ENOENT && errno != ENOTDIR;
    return is_this(status);
  }

  /// False: it has lost its name, or what it must hold is not there. Reads a few bytes.
  [[nodiscard]] bool intact() const {
    const Descriptor file(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!file) return errno != ENOENT && errno != ENOTDIR;
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) return true;
    return is_this(status) && status.st_size >= size_ &&
           std::ranges::all_of(marks_, [&](const FileMark& mark) { return holds(file, mark); });
  }

private:
  [[nodiscard]] bool is_this(const struct stat& status) const {
    return inode_ == 0 || (status.st_dev == device_ && status.st_ino == inode_);
  }
  [[nodiscard]] static bool holds(const Descriptor& file, const FileMark& mark) {
    std::array<std::byte, FileMark::max_size> bytes{};
    const ssize_t got =
        ::pread(file.get(), bytes.data(), mark.size, static_cast<off_t>(mark.address));
    if (got < 0) return true; // not known
    return static_cast<std::size_t>(got) == mark.size && bytes == mark.bytes;
  }

  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0; // 0: not known
  off_t size_ = 0; // it is no shorter
  std::vector<FileMark> marks_;
};

} // namespace fanin::storage
