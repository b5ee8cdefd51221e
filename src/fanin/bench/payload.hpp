// What all contenders do to the payload of a message, at both ends: the sender copies it from
// elsewhere into what it sends, the receiver looks at its first byte, or at all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "fanin/memory/copy.hpp"

namespace fanin::bench {

// Where the senders' payload comes from.
class PayloadSource {
public:
  explicit PayloadSource(std::size_t size) : bytes_(size) {
    for (std::size_t i = 0; i < size; ++i) bytes_[i] = static_cast<std::byte>(i);
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  void fill(std::byte* to) const { memory::copy(to, bytes_); }

private:
  std::vector<std::byte> bytes_;
};

// Keeps what the optimizer would leave out.
inline void touch(std::span<const std::byte> payload, bool every_byte) {
  std::uint64_t sum = 0;
  if (!payload.empty()) sum = static_cast<std::uint64_t>(payload.front());
  if (every_byte) {
    std::uint64_t word = 0;
    for (std::size_t at = 0; at + sizeof word <= payload.size(); at += sizeof word) {
      std::memcpy(&word, payload.data() + at, sizeof word);
      sum += word;
    }
  }
  asm volatile("" : : "r"(sum));
}

} // namespace fanin::bench
