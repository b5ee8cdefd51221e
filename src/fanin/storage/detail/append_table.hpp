// A one-dimensional HDF5 dataset that only grows, written past HDF5: the library keeps the index of
// chunks, the data goes from the caller's memory to the chunk's place in the file by pwritev,
// without a copy in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "fanin/base/result.hpp"
#include "fanin/storage/detail/hdf5.hpp"
#include "fanin/storage/named_file.hpp"

namespace fanin::storage::detail {

struct TableOptions {
  std::string name; // in the file, as "/events"
  std::string label; // for errors: file and name
  std::uint64_t chunk_rows = 0;
  bool direct = true; // false: through H5Dwrite, with one copy
};

class AppendTable {
public:
  AppendTable() = default;
  [[nodiscard]] static Result<AppendTable> create(hid_t file, hid_t row_type, TableOptions options);

  [[nodiscard]] std::uint64_t rows() const { return rows_; } // committed
  [[nodiscard]] std::uint64_t row_size() const { return row_size_; }
  // By how much write() of so many rows would make the file grow, without the index.
  [[nodiscard]] std::uint64_t growth(std::uint64_t rows) const;

  // Writes `rows` rows behind the committed ones; may be repeated after an error. The extents add
  // up to rows * row_size(). `write_behind`: the kernel starts to put them on the disk at once.
  [[nodiscard]] Result<> write(int descriptor, std::span<const iovec> extents, std::uint64_t rows,
                               bool write_behind);
  // Makes what was written visible to readers.
  [[nodiscard]] Result<> flush();
  // HDF5 itself has failed: what it keeps of this file in memory is not to be trusted any more.
  [[nodiscard]] bool failed() const { return failed_; }
  void commit(std::uint64_t rows) { rows_ += rows; }
  // The end of what was written last, past HDF5.
  [[nodiscard]] const FileMark& mark() const { return mark_; }
  [[nodiscard]] bool close() { return dataset_.close(); }

private:
  [[nodiscard]] std::uint64_t chunk_bytes() const { return options_.chunk_rows * row_size_; }
  [[nodiscard]] std::unexpected<Error> fail_for_good();
  [[nodiscard]] Result<> extend(std::uint64_t rows);
  [[nodiscard]] Result<> write_direct(int descriptor, std::span<const iovec> extents,
                                      std::uint64_t rows, bool write_behind);
  [[nodiscard]] Result<> write_through_hdf5(std::span<const iovec> extents, std::uint64_t rows);

  TableOptions options_;
  Handle dataset_;
  Handle type_;
  std::uint64_t row_size_ = 0;
  std::uint64_t rows_ = 0; // committed
  std::uint64_t extent_ = 0; // rows that the dataset has room for, as HDF5 knows
  bool dirty_ = false; // extended and not flushed
  bool failed_ = false;
  FileMark mark_;
  std::vector<std::uint64_t> addresses_; // of the chunks, in the file
  std::vector<iovec> pending_;
  std::vector<std::byte> gathered_;
};

} // namespace fanin::storage::detail
