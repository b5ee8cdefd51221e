#include "fanin/storage/detail/append_table.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ranges>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/core.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"

namespace fanin::storage::detail {
namespace {

// Walks through a list of extents in whatever steps the kernel takes.
class ExtentCursor {
public:
  explicit ExtentCursor(std::span<const iovec> extents) : extents_(extents) {}

  // The next `length` bytes, or as many as fit into one system call.
  void next(std::uint64_t length, std::vector<iovec>& out) const {
    out.clear();
    auto used = used_;
    for (auto i = index_; i < extents_.size() && length > 0 && out.size() < IOV_MAX; ++i) {
      const auto part = std::min<std::uint64_t>(extents_[i].iov_len - used, length);
      auto* const base = static_cast<std::byte*>(extents_[i].iov_base) + used;
      if (part > 0) out.push_back({.iov_base = base, .iov_len = part});
      length -= part;
      used = 0;
    }
  }

  void advance(std::uint64_t length) {
    while (length > 0) {
      const auto part = std::min<std::uint64_t>(extents_[index_].iov_len - used_, length);
      used_ += part;
      length -= part;
      if (used_ == extents_[index_].iov_len) {
        ++index_;
        used_ = 0;
      }
    }
  }

private:
  std::span<const iovec> extents_;
  std::size_t index_ = 0;
  std::size_t used_ = 0;
};

bool disk_full(int error_number) { return error_number == ENOSPC || error_number == EDQUOT; }

} // namespace

Result<AppendTable> AppendTable::create(hid_t file, hid_t row_type, TableOptions options) {
  AppendTable table;
  const hsize_t none = 0;
  const hsize_t unlimited = H5S_UNLIMITED;
  const hsize_t chunk = options.chunk_rows;
  const Handle space{H5Screate_simple(1, &none, &unlimited), H5Sclose};
  const Handle layout{H5Pcreate(H5P_DATASET_CREATE), H5Pclose};
  const Handle access{H5Pcreate(H5P_DATASET_ACCESS), H5Pclose};
  const bool set = H5Pset_chunk(layout.get(), 1, &chunk) >= 0 &&
                   H5Pset_alloc_time(layout.get(), H5D_ALLOC_TIME_EARLY) >= 0 &&
                   H5Pset_fill_time(layout.get(), H5D_FILL_TIME_NEVER) >= 0 &&
                   H5Pset_chunk_cache(access.get(), 1, 0, 1.0) >= 0;
  if (!set) return fail_hdf5(options.label);
  table.dataset_ = Handle{H5Dcreate2(file, options.name.c_str(), row_type, space.get(), H5P_DEFAULT,
                                     layout.get(), access.get()),
                          H5Dclose};
  table.type_ = Handle{H5Tcopy(row_type), H5Tclose};
  if (!table.dataset_ || !table.type_) return fail_hdf5(options.label);
  table.row_size_ = H5Tget_size(row_type);
  table.options_ = std::move(options);
  return table;
}

std::unexpected<Error> AppendTable::fail_for_good() {
  failed_ = true;
  return fail_hdf5(fmt::format("write {}", options_.label));
}

std::uint64_t AppendTable::growth(std::uint64_t rows) const {
  const auto chunk = options_.chunk_rows;
  const auto have = (extent_ + chunk - 1) / chunk;
  const auto need = (rows_ + rows + chunk - 1) / chunk;
  return need > have ? (need - have) * chunk * row_size_ : 0;
}

Result<> AppendTable::extend(std::uint64_t rows) {
  const hsize_t wanted = rows_ + rows;
  if (wanted == extent_) return {};
  FANIN_ASSERT(wanted > extent_); // a repeated write is the same write
  const Hdf5Guard guard;
  if (H5Dset_extent(dataset_.get(), &wanted) < 0) return fail_for_good();
  extent_ = wanted;
  dirty_ = true;
  while (options_.direct && addresses_.size() * options_.chunk_rows < extent_) {
    const hsize_t first = addresses_.size() * options_.chunk_rows;
    unsigned filters = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t size = 0;
    if (H5Dget_chunk_info_by_coord(dataset_.get(), &first, &filters, &address, &size) < 0) {
      return fail_for_good();
    }
    if (address == HADDR_UNDEF) {
      // A library that allocates late after all: nothing was written directly yet, so none will be.
      if (!addresses_.empty()) {
        return fail(ErrorKind::internal,
                    fmt::format("{}: HDF5 did not allocate a chunk", options_.label));
      }
      options_.direct = false;
      break;
    }
    addresses_.push_back(address);
  }
  return {};
}

Result<> AppendTable::write(int descriptor, std::span<const iovec> extents, std::uint64_t rows,
                            bool write_behind) {
  if (rows == 0) return {};
  FANIN_TRY(extend(rows));
  return options_.direct ? write_direct(descriptor, extents, rows, write_behind)
                         : write_through_hdf5(extents, rows);
}

Result<> AppendTable::write_direct(int descriptor, std::span<const iovec> extents,
                                   std::uint64_t rows, bool write_behind) {
  auto at = rows_ * row_size_;
  const auto end = at + rows * row_size_;
  ExtentCursor cursor(extents);
  while (at < end) {
    const auto in_chunk = at % chunk_bytes();
    const auto address = addresses_[at / chunk_bytes()] + in_chunk;
    cursor.next(std::min(end - at, chunk_bytes() - in_chunk), pending_);
    const auto written = ::pwritev(descriptor, pending_.data(), static_cast<int>(pending_.size()),
                                   static_cast<off_t>(address));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const auto error_number = written < 0 ? errno : ENOSPC;
      return fail_errno(disk_full(error_number) ? ErrorKind::exhausted : ErrorKind::internal,
                        fmt::format("write {}", options_.label), error_number);
    }
    if (write_behind) {
      // Only a hint; what counts is the fdatasync that follows.
      static_cast<void>(::sync_file_range(descriptor, static_cast<off_t>(address), written,
                                          SYNC_FILE_RANGE_WRITE));
    }
    cursor.advance(static_cast<std::uint64_t>(written));
    at += static_cast<std::uint64_t>(written);
  }
  const auto last = std::ranges::find_if(std::views::reverse(extents),
                                         [](const iovec& part) { return part.iov_len > 0; });
  const auto size = std::min<std::uint64_t>(last->iov_len, (end - 1) % chunk_bytes() + 1);
  const auto* const behind = static_cast<const std::byte*>(last->iov_base) + last->iov_len;
  mark_ = FileMark::at_end_of(addresses_.back() + (end - 1) % chunk_bytes() + 1 - size,
                              {behind - size, size});
  return {};
}

Result<> AppendTable::write_through_hdf5(std::span<const iovec> extents, std::uint64_t rows) {
  gathered_.resize(rows * row_size_);
  std::size_t filled = 0;
  for (const auto& extent : extents) {
    std::memcpy(gathered_.data() + filled, extent.iov_base, extent.iov_len);
    filled += extent.iov_len;
  }
  const Hdf5Guard guard;
  const hsize_t start = rows_;
  const hsize_t count = rows;
  const Handle file_space{H5Dget_space(dataset_.get()), H5Sclose};
  const Handle memory_space{H5Screate_simple(1, &count, nullptr), H5Sclose};
  if (H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr) < 0 ||
      H5Dwrite(dataset_.get(), type_.get(), memory_space.get(), file_space.get(), H5P_DEFAULT,
               gathered_.data()) < 0) {
    return fail_for_good();
  }
  return {};
}

Result<> AppendTable::flush() {
  if (!dirty_) return {};
  const Hdf5Guard guard;
  if (H5Dflush(dataset_.get()) < 0) return fail_for_good();
  dirty_ = false;
  return {};
}

} // namespace fanin::storage::detail
