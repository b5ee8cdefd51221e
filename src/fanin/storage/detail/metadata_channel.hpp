// The file driver by which HDF5 writes the metadata of a run file. It never tells HDF5 of a
// failure, since HDF5 does not survive a write that fails (1.10 crashes at exit). What the system
// refuses is held back here, in order, and is read from here; drain() tries it again. A commit
// counts when nothing is held back. Readers use another driver, for a second reason: within one
// process HDF5 takes a file that is open twice with one driver for one file, and closing the reader
// would flush the writer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fanin/storage/detail/hdf5.hpp"

namespace fanin::storage::detail {

// Thread: one at a time. Must outlive the HDF5 file that goes through it.
class MetadataChannel {
public:
  // `descriptor` of an open, empty file; stays the caller's.
  explicit MetadataChannel(int descriptor) : descriptor_(descriptor) {}
  MetadataChannel(const MetadataChannel&) = delete;
  MetadataChannel& operator=(const MetadataChannel&) = delete;

  // The file created with this access list goes through this channel, whatever its name.
  [[nodiscard]] bool attach(hid_t access_list);

  // Writes what is held back. 0: nothing is any more; else the system's error number.
  [[nodiscard]] int drain();
  // From here on nothing reaches the file; HDF5 may close it and never know.
  void cut() { cut_ = true; }

  // False: somebody else has changed what HDF5 had written. Reads all of it.
  [[nodiscard]] bool intact() const;

  // For the driver.
  void write(std::uint64_t address, std::span<const std::byte> bytes, bool payload = false);
  [[nodiscard]] bool read(std::uint64_t address, std::span<std::byte> bytes) const;
  void truncate(std::uint64_t size);
  [[nodiscard]] std::uint64_t end() const { return end_; }

private:
  struct Held {
    std::uint64_t address = 0;
    std::vector<std::byte> bytes;
  };
  static constexpr std::size_t page_size = 4096;

  void remember(std::uint64_t address, std::span<const std::byte> bytes);

  int descriptor_;
  bool cut_ = false;
  std::uint64_t end_ = 0; // of the file, as HDF5 knows it
  std::vector<Held> held_;
  std::map<std::uint64_t, std::array<std::byte, page_size>> pages_; // of metadata, by address
};

} // namespace fanin::storage::detail
