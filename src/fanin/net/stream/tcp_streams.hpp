/// \file
/// Byte streams over TCP. Each watch is an epoll descriptor; all that it watches is watched for
/// edges, so that data which wait while nobody reads do not wake the loop over and over.
#pragma once

#include <functional>

#include "fanin/net/stream/stream.hpp"

namespace fanin::net {

/// What streams ask the host; a test may answer for it.
struct TcpHost {
  std::function<Result<std::vector<Address>>(const Url&)> look_up; ///< empty: the name service
  std::function<bool()> is_unanswered; ///< of any connection; empty: the kernel
};

/// Outlives what it makes.
class FANIN_INTERNAL_API TcpStreams final : public Streams {
public:
  explicit TcpStreams(TcpHost host = {}) : host_(std::move(host)) {}

  [[nodiscard]] Result<std::vector<Address>> addresses_to_listen(const Url& url) override;
  [[nodiscard]] Result<std::unique_ptr<StreamListener>>
  listen(const Url& url, std::span<const Address> addresses) override;
  [[nodiscard]] Result<std::unique_ptr<Stream>> connect(const Address& address) override;
  [[nodiscard]] Result<std::unique_ptr<StreamWatch>> make_watch() override;

private:
  TcpHost host_;
};

} // namespace fanin::net
