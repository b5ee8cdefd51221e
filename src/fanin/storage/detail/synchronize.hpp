// A name in a folder is on the disk only when the folder is.
#pragma once

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/result.hpp"

namespace fanin::storage::detail {

// Waits for the disk. Errors: internal.
[[nodiscard]] inline Result<> synchronize_folder(const std::string& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor) return fail_errno(ErrorKind::internal, folder, errno);
  // Some file systems do not synchronize folders; they say so and keep them safe in other ways.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) {
    return fail_errno(ErrorKind::internal, fmt::format("fsync {}", folder), errno);
  }
  return {};
}

} // namespace fanin::storage::detail
