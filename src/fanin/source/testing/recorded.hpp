// For tests: small made-up files in the recorded formats, and where the real ones are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fanin/source/testing/queue_fixture.hpp"

namespace fanin::source::testing {

// Words of an HLD file, in one byte order.
class HldBuilder {
public:
  explicit HldBuilder(bool big_endian = false) : big_endian_(big_endian) {}

  void word(std::uint32_t value) {
    if (big_endian_) value = __builtin_bswap32(value);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + 4);
  }
  // With one subevent; a block per address, of `words` words after its head.
  void event(std::uint32_t sequence, std::uint32_t trigger,
             const std::vector<std::uint16_t>& addresses, std::uint16_t words = 3) {
    const auto blocks = static_cast<std::uint32_t>(addresses.size());
    const std::uint32_t subevent = 16 + blocks * 4 * (1U + words);
    header(32 + subevent, sequence);
    for (const std::uint32_t value : {subevent, 0x20001U, 0x8000U, trigger << 8}) word(value);
    for (const std::uint16_t address : addresses) {
      word(std::uint32_t{words} << 16 | address);
      for (std::uint32_t i = 0; i < words; ++i) word(sequence * 1000 + i);
    }
    pad();
  }
  void header(std::uint32_t size, std::uint32_t sequence) {
    for (const std::uint32_t value : {size, 0x30001U, 0x2001U, sequence, 0U, 0U, 1U, 0U}) {
      word(value);
    }
  }
  void pad() { bytes_.resize((bytes_.size() + 7) / 8 * 8); }
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }

private:
  bool big_endian_;
  Bytes bytes_;
};

inline Bytes sls_record(std::uint64_t frame, std::size_t image_size) {
  Bytes record = bytes_of(112 + image_size, frame);
  std::memcpy(record.data(), &frame, 8);
  return record;
}

// A folder of its own, removed with everything in it.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "fanin-source-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }
  std::string write(const std::string& name, const Bytes& bytes) const {
    std::ofstream out(file(name), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    return file(name);
  }

private:
  std::filesystem::path path_;
};

#ifdef FANIN_SOURCE_DIR // of tests
// The folder with the recorded data: FANIN_DATA, or ../shared/data beside the source tree.
inline std::filesystem::path recorded_data() {
  if (const char* given = std::getenv("FANIN_DATA"); given != nullptr) return given;
  return std::filesystem::path(FANIN_SOURCE_DIR) / ".." / "shared" / "data";
}
#endif

} // namespace fanin::source::testing
