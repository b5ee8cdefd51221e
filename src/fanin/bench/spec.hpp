// What a contender is to do: the same words for all of them, and for the other host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fanin/base/clock.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/builder/shaping/shaping.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/url.hpp"

namespace fanin::bench {

enum class Pattern : std::uint8_t { stream, roundtrip, pubsub, nxn };
[[nodiscard]] std::string_view name(Pattern pattern);
[[nodiscard]] std::string_view name(net::WaitPolicy policy);

inline constexpr std::uint32_t message_size_max = 256U << 20;
inline constexpr std::size_t processes_max = 64;

struct Spec {
  Pattern pattern = Pattern::stream;
  std::string peer = "fanin"; // "raw", "fair", "memcpy", "zeromq", "mpi"
  net::Url url;               // where listeners listen; port 0
  std::uint32_t size = 0;     // bytes of a message
  std::uint64_t page = 0;     // raw, fair: bytes of one write, about
  std::uint64_t set = 0; // raw, fair: bytes that each end cycles through; at least one page
  bool checksum = false; // raw, fair: CRC32C at both ends
  std::uint32_t records = 1;  // nxn: records of `size` bytes in a message
  std::size_t senders = 1;
  std::size_t receivers = 1;
  std::size_t rails = 1; // nxn, of fanin: each receiver is a process over each
  std::size_t pipeline = 1; // messages under way, round trip
  Duration period{}; // round trip: from one to the next; 0: as soon as one is back
  bool read = false;        // receivers read every byte, not only the first
  bool loaded = false;      // round trip: beside a stream on the same path
  builder::shaping::Shaping shaping; // nxn, of fanin
  std::string congestion = "cubic";
  net::WaitPolicy wait = net::WaitPolicy::poll;
  Duration warmup{}; // not counted in latencies

  // For the other host. Errors: malformed, and numbers out of range.
  [[nodiscard]] json::Value to_json() const;
  [[nodiscard]] static Result<Spec> from_json(const json::Value& value);
  template <class Self, class Visit>
  static void each_member(Self& self, Visit visit); // those that need nothing but a range
};

// Spec::set of "fair": what a process of event building goes through while a batch is under way,
// about. It is the same whatever fanin uses.
inline constexpr std::uint64_t fair_set = 8U << 20;

} // namespace fanin::bench
