/// \file
/// The checksum that follows the preface, each header and each reply of a reliable connection to a
/// `receive` source: without it a damaged number in an answer would cost all fragments up to that
/// number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "fanin/source/receive_format.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::source {

/// A structure and its checksum.
template <class Structure>
using CheckedBytes = std::array<std::byte, sizeof(Structure) + sizeof(OwnChecksum)>;

template <class Structure>
[[nodiscard]] CheckedBytes<Structure> with_own_checksum(const Structure& structure) {
  static_assert(std::has_unique_object_representations_v<Structure>, "padding would be summed");
  CheckedBytes<Structure> bytes;
  std::memcpy(bytes.data(), &structure, sizeof structure);
  const OwnChecksum checksum{.crc32c = wire::crc32c(std::span(bytes).first(sizeof structure))};
  std::memcpy(bytes.data() + sizeof structure, &checksum, sizeof checksum);
  return bytes;
}

/// `bytes`: a structure and its checksum. No bit of them was damaged.
[[nodiscard]] inline bool own_checksum_fits(std::span<const std::byte> bytes) {
  const auto structure = bytes.first(bytes.size() - sizeof(OwnChecksum));
  OwnChecksum checksum;
  std::memcpy(&checksum, bytes.data() + structure.size(), sizeof checksum);
  return checksum.crc32c == wire::crc32c(structure) && checksum.reserved == 0;
}

} // namespace fanin::source
