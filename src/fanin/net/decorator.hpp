/// \file
/// A transport above another transport of any network: trace+tcp:// is `trace` above tcp://. The
/// decorator's name and a '+' stand before the scheme. Ids are those of the transport below, and a
/// decorator passes on all that it does not change.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "fanin/base/export.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

class FANIN_API Decorator : public Transport {
public:
  [[nodiscard]] Result<> check_address(const Url& url) const override;
  [[nodiscard]] Result<ListenerId> listen(const Url& url,
                                          const ConnectionOptions& options) override;
  [[nodiscard]] Url listening_url(ListenerId listener) const override;
  void close_listener(ListenerId listener) override { below_->close_listener(listener); }
  [[nodiscard]] Result<ConnectionId> connect(const Url& url,
                                             const ConnectionOptions& options) override;
  [[nodiscard]] SendOutcome send(ConnectionId connection,
                                 std::span<const memory::View> extents) override {
    return below_->send(connection, extents);
  }
  void flush() override { below_->flush(); }
  [[nodiscard]] std::size_t poll(std::span<Event> events) override { return below_->poll(events); }
  [[nodiscard]] bool arm() override { return below_->arm(); }
  [[nodiscard]] int descriptor() const override { return below_->descriptor(); }
  void close(ConnectionId connection, bool abort) override { below_->close(connection, abort); }
  void mark_identified(ConnectionId connection) override { below_->mark_identified(connection); }
  [[nodiscard]] std::string peer_name(ConnectionId connection) const override {
    return below_->peer_name(connection);
  }
  [[nodiscard]] std::uint64_t unfinished(ConnectionId connection) const override {
    return below_->unfinished(connection);
  }
  [[nodiscard]] bool shares_memory() const override { return below_->shares_memory(); }
  [[nodiscard]] std::size_t closing() const override { return below_->closing(); }
  [[nodiscard]] std::uint64_t given_up() const override { return below_->given_up(); }
  void dispatching(std::span<Event> events) override;

protected:
  Decorator(std::string name, std::unique_ptr<Transport> below)
      : name_(std::move(name)), below_(std::move(below)) {}

  [[nodiscard]] Transport& below() const { return *below_; }

private:
  [[nodiscard]] Result<Url> url_below(const Url& url) const;
  template <class T>
  [[nodiscard]] static Result<T> named(Result<T> result, const Url& below, const Url& given);

  std::string name_;
  std::unique_ptr<Transport> below_;
};

} // namespace fanin::net
