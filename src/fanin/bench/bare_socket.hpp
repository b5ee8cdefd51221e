// Sockets as the baselines and the two hosts of a benchmark use them: blocking, no library.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/url.hpp"

namespace fanin::bench {

// An empty `congestion`: the host's. Errors: not_found, refused, unsupported (congestion control).
[[nodiscard]] Result<Descriptor> listen_at(const net::Url& url, const std::string& congestion);
[[nodiscard]] Result<Descriptor> accept_one(const Descriptor& listener);
[[nodiscard]] Result<Descriptor> connect_to(const net::Url& url, const std::string& congestion);
[[nodiscard]] Result<Descriptor> connect_to(const std::string& url, const std::string& congestion);
// With the port that was chosen: "tcp://127.0.0.1:43210".
[[nodiscard]] std::string listening_address(const Descriptor& listener);

// `spin`: asks again instead of blocking. Errors: disconnected.
[[nodiscard]] Result<> write_all(int socket, std::span<const std::byte> bytes, bool spin = false);

} // namespace fanin::bench
