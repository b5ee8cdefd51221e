// The little of HDF5's C interface that storage uses, with handles that close themselves and errors
// as text. Private: no other module and no public header includes it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <hdf5.h>

#include "fanin/base/result.hpp"
#include "fanin/storage/layout.hpp"

namespace fanin::storage::detail {

// Held around every group of HDF5 calls: keeps HDF5 from printing errors, and other threads out
// where the library was built without thread safety.
class Hdf5Guard {
public:
  Hdf5Guard();

private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// An HDF5 identifier, closed by the function it was made with.
class Handle {
public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { static_cast<void>(close()); }

  // False if HDF5 could not; the identifier is given up all the same.
  bool close();
  [[nodiscard]] hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

// What HDF5 says went wrong in this thread's last call, on one line; never empty.
[[nodiscard]] std::string hdf5_error();
// The error of the last call. Kind: exhausted if the operating system said that the disk is full,
// otherwise internal.
[[nodiscard]] std::unexpected<Error> fail_hdf5(std::string_view what);

// The rows of a one-dimensional data space; empty: it has another number of dimensions. That has to
// be checked first: HDF5 writes as many numbers as the file has dimensions, up to 32.
[[nodiscard]] std::optional<std::uint64_t> rows_of(hid_t space);

// Errors: malformed, also if its bytes are in another file (by a link, external storage, a virtual
// dataset): a run file leads nowhere else.
[[nodiscard]] Result<Handle> open_dataset(hid_t file, const char* name);

struct Field {
  const char* name;
  std::size_t offset;
  hid_t type;
};
[[nodiscard]] Handle compound_type(std::size_t size, std::initializer_list<Field> fields);
// The compound types of the rows in layout.hpp, as they lie on disk.
[[nodiscard]] Handle event_row_type();
[[nodiscard]] Handle fragment_row_type();
[[nodiscard]] Handle missing_row_type();
[[nodiscard]] Handle gap_row_type();
[[nodiscard]] Handle stream_source_row_type();
[[nodiscard]] Handle fixed_string_type(std::size_t size);
[[nodiscard]] Handle boolean_type(); // as h5py has it

} // namespace fanin::storage::detail
