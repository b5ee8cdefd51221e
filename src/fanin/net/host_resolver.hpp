/// \file
/// A resolver that asks the host's name service (getaddrinfo) on a separate thread, since that may
/// take many seconds. A process that connects to hosts by name has one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fanin/base/export.hpp"
#include "fanin/net/resolver.hpp"

namespace fanin::net {

/// Thread: that of its loop. For its lifetime it is a service and the resolver of this loop. Its
/// own thread starts with the first name, blocks all signals, and looks up one name after the
/// other.
class FANIN_API HostResolver final : public Resolver, public Service {
public:
  /// Called on the thread of the resolver. It may block.
  using LookUp = std::function<Found(const std::string& host)>;
  explicit HostResolver(Loop& loop, LookUp look_up = resolve_host);
  /// Does not wait for the name service. The thread ends when the name service has answered.
  ~HostResolver() override;

  bool poll() override;
  bool arm() override;
  [[nodiscard]] int descriptor() const override;

private:
  struct Shared;
  std::optional<Found> look_up(const std::string& host) override;
  void start_thread();

  Loop& loop_;
  std::shared_ptr<Shared> shared_; // with the thread
  bool started_ = false;
};

} // namespace fanin::net
