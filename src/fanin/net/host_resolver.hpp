// The host's own name service (getaddrinfo), asked on a thread of its own, since it may take many
// seconds. One for each process that is to talk to hosts by name.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fanin/net/resolver.hpp"

namespace fanin::net {

// Thread: its loop's; registered there as a service, and as its resolver, for its lifetime. The
// thread is made for the first name, has all signals blocked, and looks up one name after the
// other.
class HostResolver final : public Resolver, public Service {
public:
  using LookUp = std::function<Found(const std::string& host)>; // on the thread
  explicit HostResolver(Loop& loop, LookUp look_up = resolve_host);
  // Does not wait for the name service: the thread ends when that has answered.
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
