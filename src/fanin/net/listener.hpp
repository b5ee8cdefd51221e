/// \file
/// An address at which a transport listens.
#pragma once

#include <utility>

#include "fanin/base/result.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net {

/// Listens until it is destroyed, in the transport's process; connections that it has accepted
/// stay. The transport must outlive it. Thread: that of the transport's loop.
class Listener {
public:
  Listener() = default; ///< listens nowhere
  /// Errors: those of Transport::listen().
  [[nodiscard]] static Result<Listener> make(Transport& transport, const Url& url,
                                             const ConnectionOptions& options) {
    const auto id = transport.listen(url, options);
    if (!id) return std::unexpected(id.error());
    return Listener{transport, *id};
  }
  Listener(Listener&& other) noexcept
      : transport_(std::exchange(other.transport_, nullptr)), id_(other.id_) {}
  Listener& operator=(Listener&& other) noexcept {
    std::swap(transport_, other.transport_);
    std::swap(id_, other.id_);
    return *this;
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() {
    if (transport_ != nullptr && !transport_->is_copy()) transport_->close_listener(id_);
  }

  /// The address with the port that was chosen. Requires a Listener that listens.
  [[nodiscard]] Url url() const { return transport_->listening_url(id_); }

private:
  Listener(Transport& transport, ListenerId id) : transport_(&transport), id_(id) {}

  Transport* transport_ = nullptr;
  ListenerId id_ = ListenerId::none;
};

} // namespace fanin::net
