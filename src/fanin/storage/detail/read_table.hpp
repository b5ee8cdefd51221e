// A one-dimensional dataset of a run file. Where it lies in the file as fanin writes it, it is read
// without HDF5, so that a truncated file gives an error and not zeros. In a file that somebody has
// repacked it is read through HDF5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "fanin/base/result.hpp"
#include "fanin/storage/detail/hdf5.hpp"

namespace fanin::storage::detail {

class ReadTable {
public:
  ReadTable() = default;
  // `label`: file and name, for errors. `descriptor`: of the same file; stays the caller's.
  [[nodiscard]] static Result<ReadTable> open(hid_t file, const char* name, Handle row_type,
                                              std::string label, int descriptor);
  [[nodiscard]] std::uint64_t rows() const { return rows_; }
  // Looks again how many rows there are, in a file that is being written.
  [[nodiscard]] Result<> refresh();
  // out.size() must be a whole number of rows. Errors: malformed, internal.
  [[nodiscard]] Result<> read(std::uint64_t first_row, std::span<std::byte> out);

private:
  [[nodiscard]] Result<> check_layout();
  [[nodiscard]] Result<std::uint64_t> chunk_address(std::uint64_t chunk);
  [[nodiscard]] Result<> read_direct(std::uint64_t first_row, std::span<std::byte> out);
  [[nodiscard]] Result<> read_through_hdf5(std::uint64_t first_row, std::span<std::byte> out);

  std::string label_;
  int descriptor_ = -1;
  Handle dataset_;
  Handle type_;
  std::uint64_t row_size_ = 0;
  std::uint64_t rows_ = 0;
  std::uint64_t chunk_rows_ = 0; // 0: through HDF5
  std::unordered_map<std::uint64_t, std::uint64_t> addresses_; // of chunks, those looked up
};

} // namespace fanin::storage::detail
