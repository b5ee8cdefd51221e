/// \file
/// Byte streams over TCP. Each watch is an epoll descriptor; all that it watches is watched for
/// edges, so that data which wait while nobody reads do not wake the loop over and over.
#pragma once

#include "fanin/net/stream/stream.hpp"

namespace fanin::net {

/// Outlives what it makes.
class FANIN_INTERNAL_API TcpStreams : public Streams {
public:
  [[nodiscard]] Result<std::vector<Address>> addresses_to_listen(const Url& url) override;
  [[nodiscard]] Result<std::unique_ptr<StreamListener>>
  listen(const Url& url, std::span<const Address> addresses) override;
  [[nodiscard]] Result<std::unique_ptr<Stream>> connect(const Address& address) override;
  [[nodiscard]] Result<std::unique_ptr<StreamWatch>> make_watch() override;
  /// What Stream::is_unanswered() says; a test may know better than the kernel.
  [[nodiscard]] virtual bool is_unanswered(int socket) const;
};

} // namespace fanin::net
