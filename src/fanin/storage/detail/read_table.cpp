#include "fanin/storage/detail/read_table.hpp"

#include <algorithm>
#include <cerrno>

#include <unistd.h>

#include <fmt/core.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"

namespace fanin::storage::detail {

Result<ReadTable> ReadTable::open(hid_t file, const char* name, Handle row_type, std::string label,
                                  int descriptor) {
  ReadTable table;
  table.label_ = std::move(label);
  table.descriptor_ = descriptor;
  table.type_ = std::move(row_type);
  table.row_size_ = H5Tget_size(table.type_.get());
  auto dataset = open_dataset(file, name);
  if (!dataset) {
    return fail(dataset.error().kind, fmt::format("{}: {}", table.label_, dataset.error().text));
  }
  table.dataset_ = std::move(*dataset);
  FANIN_TRY(table.check_layout());
  FANIN_TRY(table.refresh());
  return table;
}

Result<> ReadTable::check_layout() {
  const Handle type{H5Dget_type(dataset_.get()), H5Tclose};
  const Handle layout{H5Dget_create_plist(dataset_.get()), H5Pclose};
  const Handle space{H5Dget_space(dataset_.get()), H5Sclose};
  if (!type || !layout || H5Sget_simple_extent_ndims(space.get()) != 1) {
    return fail(ErrorKind::malformed, fmt::format("{}: not one-dimensional", label_));
  }
  const bool same = H5Tequal(type.get(), type_.get()) > 0;
  if (!same && H5Tget_class(type.get()) != H5Tget_class(type_.get())) {
    return fail(ErrorKind::malformed, fmt::format("{}: rows are of another type", label_));
  }
  if (same && H5Pget_layout(layout.get()) == H5D_CHUNKED && H5Pget_nfilters(layout.get()) == 0) {
    hsize_t chunk = 0;
    if (H5Pget_chunk(layout.get(), 1, &chunk) == 1) chunk_rows_ = chunk;
  }
  return {};
}

Result<> ReadTable::refresh() {
  const Hdf5Guard guard;
  const bool refreshed = H5Drefresh(dataset_.get()) >= 0;
  const Handle space{refreshed ? H5Dget_space(dataset_.get()) : H5I_INVALID_HID, H5Sclose};
  const auto rows = space ? rows_of(space.get()) : std::nullopt;
  if (!rows) return fail(ErrorKind::malformed, fmt::format("{}: {}", label_, hdf5_error()));
  rows_ = *rows;
  return {};
}

Result<> ReadTable::read(std::uint64_t first_row, std::span<std::byte> out) {
  if (out.empty()) return {};
  const auto rows = out.size() / row_size_;
  FANIN_ASSERT(rows * row_size_ == out.size());
  if (first_row > rows_ || rows > rows_ - first_row) {
    return fail(ErrorKind::malformed, fmt::format("{}: rows {} to {} are wanted, but there are {}",
                                                  label_, first_row, first_row + rows, rows_));
  }
  return chunk_rows_ > 0 ? read_direct(first_row, out) : read_through_hdf5(first_row, out);
}

Result<std::uint64_t> ReadTable::chunk_address(std::uint64_t chunk) {
  if (const auto known = addresses_.find(chunk); known != addresses_.end()) return known->second;
  const Hdf5Guard guard;
  const hsize_t first = chunk * chunk_rows_;
  unsigned filters = 0;
  haddr_t address = HADDR_UNDEF;
  hsize_t size = 0;
  if (H5Dget_chunk_info_by_coord(dataset_.get(), &first, &filters, &address, &size) < 0) {
    return fail(ErrorKind::malformed, fmt::format("{}: index of chunks: {}", label_, hdf5_error()));
  }
  if (address == HADDR_UNDEF || size != chunk_rows_ * row_size_) {
    return fail(ErrorKind::malformed,
                fmt::format("{}: the chunk that begins at row {} is missing", label_, first));
  }
  return addresses_[chunk] = address;
}

Result<> ReadTable::read_direct(std::uint64_t first_row, std::span<std::byte> out) {
  const auto chunk_bytes = chunk_rows_ * row_size_;
  auto at = first_row * row_size_;
  while (!out.empty()) {
    const auto address = FANIN_TRY(chunk_address(at / chunk_bytes));
    const auto in_chunk = at % chunk_bytes;
    const auto length = std::min<std::uint64_t>(out.size(), chunk_bytes - in_chunk);
    const auto offset = address + in_chunk;
    const auto got = ::pread(descriptor_, out.data(), length, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(ErrorKind::internal, fmt::format("read {}", label_), errno);
    if (got == 0) {
      return fail(ErrorKind::malformed,
                  fmt::format("{}: the file is truncated: it ends before byte {}, where row {} "
                              "should be",
                              label_, offset, at / row_size_));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    at += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<> ReadTable::read_through_hdf5(std::uint64_t first_row, std::span<std::byte> out) {
  const Hdf5Guard guard;
  const hsize_t start = first_row;
  const hsize_t count = out.size() / row_size_;
  const Handle file_space{H5Dget_space(dataset_.get()), H5Sclose};
  const Handle memory_space{H5Screate_simple(1, &count, nullptr), H5Sclose};
  if (H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr) < 0 ||
      H5Dread(dataset_.get(), type_.get(), memory_space.get(), file_space.get(), H5P_DEFAULT,
              out.data()) < 0) {
    return fail(ErrorKind::malformed, fmt::format("{}: {}", label_, hdf5_error()));
  }
  return {};
}

} // namespace fanin::storage::detail
