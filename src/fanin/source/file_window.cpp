#include "fanin/source/file_window.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fanin/base/try.hpp"

namespace fanin::source {
namespace {

constexpr std::size_t window_bytes = 256U << 10; // bytes read at once

ErrorKind kind_of(int error_number) {
  if (error_number == ENOENT || error_number == ENOTDIR) return ErrorKind::not_found;
  if (error_number == EACCES || error_number == EPERM) return ErrorKind::refused;
  return ErrorKind::internal;
}

} // namespace

Result<FileWindow> FileWindow::open(const std::string& path) {
  FileWindow file;
  file.path_ = path;
  file.descriptor_ = // a pipe would wait for its writer
      Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.descriptor_) return fail_errno(kind_of(errno), path, errno);
  struct stat status{};
  if (fstat(file.descriptor_.get(), &status) != 0)
    return fail_errno(ErrorKind::internal, path, errno);
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::refused, path + ": is not a regular file");
  file.size_ = static_cast<std::uint64_t>(status.st_size);
  (void)posix_fadvise(file.descriptor_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return file;
}

FileWindow::FileWindow(std::string name, std::span<const std::byte> memory)
    : path_(std::move(name)), size_(memory.size()), memory_(memory) {}

std::unexpected<Error> FileWindow::wrong(std::uint64_t offset, std::string_view what) const {
  return fail(ErrorKind::malformed, fmt::format("{}: offset {}: {}", path_, offset, what));
}

Result<std::size_t> FileWindow::read_some(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(descriptor_.get(), out.data() + done, out.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return fail_errno(ErrorKind::internal, fmt::format("{}: offset {}", path_, offset), errno);
    }
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Result<> FileWindow::check_range(std::uint64_t offset, std::size_t size) const {
  const std::uint64_t there = size_ - std::min(offset, size_);
  if (size <= there) return {};
  return wrong(offset,
               fmt::format("{} bytes are missing: the file ends at {}", size - there, size_));
}

Result<> FileWindow::read(std::uint64_t offset, std::span<std::byte> out) const {
  FANIN_TRY(check_range(offset, out.size()));
  if (!descriptor_) {
    if (!out.empty()) std::memcpy(out.data(), memory_.data() + offset, out.size());
    return {};
  }
  const std::size_t got = FANIN_TRY(read_some(offset, out));
  if (got < out.size()) return wrong(offset + got, "the file was cut short while it was read");
  return {};
}

Result<std::span<const std::byte>> FileWindow::at(std::uint64_t offset, std::size_t size) {
  FANIN_TRY(check_range(offset, size));
  if (!descriptor_) return memory_.subspan(offset, size);
  const bool held = offset >= buffer_offset_ && offset - buffer_offset_ <= buffer_size_ &&
                    size <= buffer_size_ - (offset - buffer_offset_);
  if (!held) {
    if (buffer_.size() < std::max(size, window_bytes)) buffer_.resize(std::max(size, window_bytes));
    buffer_size_ = 0;
    buffer_size_ = FANIN_TRY(read_some(offset, buffer_));
    buffer_offset_ = offset;
    if (buffer_size_ < size)
      return wrong(offset + buffer_size_, "the file was cut short while it was read");
  }
  return std::span<const std::byte>(buffer_).subspan(offset - buffer_offset_, size);
}

} // namespace fanin::source
