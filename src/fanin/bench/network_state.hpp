// What a network carries, and what it does not deliver at once: segments that TCP sends again, and
// packets that the switch of a testbed drops.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/result.hpp"

namespace fanin::bench {

// TCP segments that a host has sent again since its start, from a text like /proc/net/snmp; 0: it
// does not say.
[[nodiscard]] std::uint64_t retransmitted_in(std::istream& text);
// Of this host, or of the network namespace of this process.
[[nodiscard]] std::uint64_t retransmitted_here();

// Bytes of packets that a host has received over its links since its start, from a text like
// /proc/net/dev. Not those that it has sent: a switch drops some of them, and TCP sends them again.
[[nodiscard]] std::uint64_t link_bytes_in(std::istream& text);
// Of this host, or of the network namespace of this process.
[[nodiscard]] std::uint64_t link_bytes_here();

// Packets that all token buckets have dropped, from what `tc -s -j qdisc show` says. Errors:
// malformed.
[[nodiscard]] Result<std::uint64_t> drops_in(std::string_view text);
// At the switches of a testbed. `words` start a command there. Blocks until it has ended. Errors:
// it cannot be run, and as drops_in().
[[nodiscard]] Result<std::uint64_t> switch_drops(const std::vector<std::string>& words);

} // namespace fanin::bench
