/// \file
/// A file and the name that it was given. Someone else may remove or rename a file while it is
/// written: then writing goes on without an error, and nobody finds the data.
#pragma once

#include <cerrno>
#include <string>
#include <utility>

#include <sys/stat.h>
#include <sys/types.h>

namespace fanin::storage {

class NamedFile {
public:
  NamedFile() = default;
  /// `descriptor`: the open file.
  NamedFile(std::string path, int descriptor) : path_(std::move(path)) {
    struct stat status{};
    if (::fstat(descriptor, &status) != 0) return;
    device_ = status.st_dev;
    inode_ = status.st_ino;
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  /// False: the name leads to no file, or to another one. One system call. Where the name cannot be
  /// looked up (no permission, a server that does not answer) this is not known: true.
  [[nodiscard]] bool exists() const {
    struct stat status{};
    if (::stat(path_.c_str(), &status) != 0) return errno != ENOENT && errno != ENOTDIR;
    return inode_ == 0 || (status.st_dev == device_ && status.st_ino == inode_);
  }

private:
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0; // 0: not known
};

} // namespace fanin::storage
