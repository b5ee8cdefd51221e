#include "fanin/storage/detail/metadata_channel.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <unistd.h>

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

namespace fanin::storage::detail {
namespace {

// 0, or the system's error number.
int write_all(int descriptor, std::uint64_t address, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written =
        ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(address));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    address += static_cast<std::uint64_t>(written);
  }
  return 0;
}

// Those of `bytes` at `address` that lie within the ones of `place` at `at`.
void overlay(std::uint64_t at, std::span<std::byte> place, std::uint64_t address,
             std::span<const std::byte> bytes) {
  const auto from = std::max(at, address);
  const auto to = std::min(at + place.size(), address + bytes.size());
  if (from < to) {
    std::memcpy(place.data() + (from - at), bytes.data() + (from - address), to - from);
  }
}

// --- what HDF5 wants of a driver ---

struct DriverInfo {
  MetadataChannel* channel = nullptr;
};

struct DriverFile {
  H5FD_t head; // HDF5's part, first
  MetadataChannel* channel;
  haddr_t end_of_allocation;
};

DriverFile& driver_of(H5FD_t* file) { return *reinterpret_cast<DriverFile*>(file); }
const DriverFile& driver_of(const H5FD_t* file) {
  return *reinterpret_cast<const DriverFile*>(file);
}

H5FD_t* open_file(const char*, unsigned, hid_t access_list, haddr_t) {
  const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(access_list));
  if (info == nullptr || info->channel == nullptr) return nullptr;
  auto file = std::make_unique<DriverFile>();
  file->channel = info->channel;
  return &file.release()->head;
}

herr_t close_file(H5FD_t* file) {
  const std::unique_ptr<DriverFile> closed(&driver_of(file));
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_SUPPORTS_SWMR_IO |
           H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t get_end_of_allocation(const H5FD_t* file, H5FD_mem_t) {
  return driver_of(file).end_of_allocation;
}

herr_t set_end_of_allocation(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  driver_of(file).end_of_allocation = address;
  return 0;
}

haddr_t get_end_of_file(const H5FD_t* file, H5FD_mem_t) { return driver_of(file).channel->end(); }

herr_t read_file(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, void* buffer) {
  return driver_of(file).channel->read(address, {static_cast<std::byte*>(buffer), size}) ? 0 : -1;
}

herr_t write_file(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t address, std::size_t size,
                  const void* buffer) {
  driver_of(file).channel->write(address, {static_cast<const std::byte*>(buffer), size},
                                 type == H5FD_MEM_DRAW);
  return 0;
}

herr_t truncate_file(H5FD_t* file, hid_t, hbool_t) {
  driver_of(file).channel->truncate(driver_of(file).end_of_allocation);
  return 0;
}

// Only for a driver that can lock does HDF5 mark the file as open for writing, which readers go by.
herr_t lock_file(H5FD_t*, hbool_t) { return 0; }
herr_t unlock_file(H5FD_t*) { return 0; }

const H5FD_class_t driver_class = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = static_cast<H5FD_class_value_t>(600), // in the range for testing and private use
#endif
    .name = "fanin",
    .maxaddr = (haddr_t{1} << 62) - 1,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(DriverInfo),
    .open = open_file,
    .close = close_file,
    .query = query,
    .get_eoa = get_end_of_allocation,
    .set_eoa = set_end_of_allocation,
    .get_eof = get_end_of_file,
    .read = read_file,
    .write = write_file,
    .truncate = truncate_file,
    .lock = lock_file,
    .unlock = unlock_file,
    .fl_map = H5FD_FLMAP_DICHOTOMY};

} // namespace

bool MetadataChannel::attach(hid_t access_list) {
  static const hid_t driver = H5FDregister(&driver_class); // until HDF5 ends
  const DriverInfo info{.channel = this};
  return driver >= 0 && H5Pset_driver(access_list, driver, &info) >= 0;
}

void MetadataChannel::remember(std::uint64_t address, std::span<const std::byte> bytes) {
  for (auto at = address / page_size * page_size; at < address + bytes.size(); at += page_size) {
    overlay(at, pages_[at], address, bytes);
  }
}

bool MetadataChannel::intact() const {
  return std::ranges::all_of(pages_, [&](const auto& page) {
    std::array<std::byte, page_size> there{};
    return !read(page.first, there) || there == page.second; // what cannot be read is not known
  });
}

void MetadataChannel::write(std::uint64_t address, std::span<const std::byte> bytes, bool payload) {
  end_ = std::max(end_, address + bytes.size());
  if (!payload) remember(address, bytes);
  if (!cut_ && held_.empty() && write_all(descriptor_, address, bytes) == 0) return;
  held_.push_back({.address = address, .bytes = {bytes.begin(), bytes.end()}});
}

int MetadataChannel::drain() {
  if (cut_ || held_.empty()) return 0;
  auto next = held_.begin();
  int error_number = 0;
  for (; next != held_.end(); ++next) {
    error_number = write_all(descriptor_, next->address, next->bytes);
    if (error_number != 0) break;
  }
  held_.erase(held_.begin(), next);
  return error_number;
}

bool MetadataChannel::read(std::uint64_t address, std::span<std::byte> bytes) const {
  std::size_t have = 0;
  while (have < bytes.size()) {
    const auto got = ::pread(descriptor_, bytes.data() + have, bytes.size() - have,
                             static_cast<off_t>(address + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(have), bytes.end(), std::byte{0});
  for (const auto& held : held_) { // later ones over earlier ones
    overlay(address, bytes, held.address, held.bytes);
  }
  return true;
}

void MetadataChannel::truncate(std::uint64_t size) {
  if (cut_ || ::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) return;
  end_ = size;
  pages_.erase(pages_.lower_bound(size), pages_.end());
}

} // namespace fanin::storage::detail
