// What two ends whose provider knows no connections say over the TCP connection beside
// (rdm_link.hpp): each introduces itself, once, and says good-bye. Little-endian; whoever connects
// may say anything.
//
// introduction                                    farewell, 8 bytes
//    0  "FANINRDM"                                   0  "BYE!"
//    8  u32 number: upper bits of the tags of        4  u32 count of the messages that were
//           messages for this end                           sent, which begins at first_count
//   12  u32 refused: 0 or 1
//   16  u32 size of the address
//   20  u32 zero
//   24  hello (rdma/hello.hpp), with the version
//   48  address, as the provider writes it
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/rdma/hello.hpp"

namespace fanin::net::ofi {

inline constexpr std::size_t address_most = 256; // bytes
inline constexpr std::size_t introduction_least = 48;
inline constexpr std::size_t introduction_most = introduction_least + address_most;
inline constexpr std::size_t farewell_size = 8;

// The 48 bits of a tag that every provider has: above those of rdma::Tag the receiver's number.
inline constexpr int number_shift = 20;
inline constexpr std::uint32_t numbers_most = (1U << 28) - 1;
// Numbers begin just below the wrap, so that every process soon passes it.
inline constexpr std::uint32_t first_number = numbers_most - 8;
// The next number. It was not used lately, so that a late message is for nobody, and is not in use.
template <class InUse>
[[nodiscard]] std::uint32_t number_after(std::uint32_t last, InUse in_use) {
  do {
    last = last % numbers_most + 1;
  } while (in_use(last));
  return last;
}
static_assert(encode(rdma::Tag{rdma::TagKind::end, true, rdma::credits_most}) < 1U << number_shift);

struct Introduction {
  std::uint32_t number = 0;
  bool refused = false;
  rdma::HelloBytes hello{};
  std::vector<std::byte> address;
};

[[nodiscard]] FANIN_INTERNAL_API std::vector<std::byte> encode(const Introduction& introduction);
// Empty: there is more to come. Of another version only the hello is read. Errors: malformed.
[[nodiscard]] FANIN_INTERNAL_API Result<std::optional<Introduction>>
decode_introduction(std::span<const std::byte> bytes);
[[nodiscard]] inline std::size_t size_of(const Introduction& introduction) {
  return introduction_least + introduction.address.size();
}

[[nodiscard]] FANIN_INTERNAL_API std::array<std::byte, farewell_size>
encode_farewell(std::uint32_t sent);
// Errors: malformed.
[[nodiscard]] FANIN_INTERNAL_API Result<std::uint32_t>
decode_farewell(std::span<const std::byte, farewell_size> bytes);

} // namespace fanin::net::ofi
