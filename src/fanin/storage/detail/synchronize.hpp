// A name in a folder is on the disk only when the folder is.
#pragma once

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "fanin/base/descriptor.hpp"

namespace fanin::storage::detail {

// Waits for the disk. Returns the error number; 0: it is there.
[[nodiscard]] inline int synchronize_folder(const std::string& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems do not synchronize folders; they say so and keep them safe in other ways.
  if (descriptor && (::fsync(descriptor.get()) == 0 || errno == EINVAL)) return 0;
  return errno;
}

} // namespace fanin::storage::detail
