// One end of a connection over reliable datagrams: a TCP connection beside the endpoint, a number
// that tags the messages for this end, and the operations under way at the endpoint.
//
// It ends in two steps, since a provider cannot be stopped from reading or writing the memory of
// one connection. An end that closes says how many messages it has sent. When all messages of the
// peer have come, or the peer is dead, this end cancels the receives that are left. When no
// operation is under way, it closes its direction of the TCP connection. From then on the peer
// cannot reach memory of this end.
#pragma once

#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/state.hpp"
#include "fanin/net/connect_attempts.hpp"
#include "fanin/net/first_count.hpp"
#include "fanin/net/ofi/in_order.hpp"
#include "fanin/net/ofi/introduction.hpp"
#include "fanin/net/ofi/rdm.hpp"

namespace fanin::net::ofi {

class RdmConnection final : public rdma::Endpoint, public Watched {
public:
  RdmConnection(RdmProvider& provider, const Url& url,
                std::vector<Address> addresses); // at least one
  // A request: its introduction, and bytes behind it.
  RdmConnection(RdmProvider& provider, Descriptor socket, Introduction introduction,
                std::vector<std::byte> rest, std::string domain);
  ~RdmConnection() override;

  [[nodiscard]] Result<Limits> open(const memory::PagePool& receive_pool) override;
  [[nodiscard]] Result<> start(const rdma::HelloBytes& hello) override;
  void reject(const rdma::HelloBytes& hello) override;
  [[nodiscard]] Result<> post_receives(std::span<const rdma::Receive> receives,
                                       std::uint32_t size) override;
  [[nodiscard]] Result<std::size_t> post_sends(std::span<const rdma::Send> sends) override;
  [[nodiscard]] Result<> reach(const memory::Arena& arena) override;
  void close() override;
  [[nodiscard]] bool is_retired() const override;

  // For the provider.
  [[nodiscard]] std::uint32_t number() const { return number_; }
  void on_ready(std::uint32_t events) override;
  void completed(const rdma::Completion& completion);
  void go_on_posting(); // receives that the provider had no room for
  // It waits for the end of the peer.
  [[nodiscard]] bool waits() const {
    return !overdue_ && (is_closed() ? !is_retired() : farewell_.has_value() && end_ == End::none);
  }
  // Ends that if it has waited since before `time`.
  void wait_no_longer(Time time);
  // Ends the connection as the death of this process would.
  void abandon();

private:
  enum class Stage : std::uint8_t { made, connecting, introducing, connected };
  friend constexpr bool may_follow(Stage from, Stage to) {
    switch (to) {
    case Stage::made: return from != Stage::connected; // refused
    case Stage::connecting: return from <= Stage::connecting; // the next address
    case Stage::introducing: return from == Stage::connecting;
    case Stage::connected: return from == Stage::made || from == Stage::introducing;
    }
    return false;
  }
  // How far the end of this side has come.
  enum class End : std::uint8_t {
    none,
    reported, // the peer's end, to the transport
    closed, // by the transport
    canceled, // and the receives that are left were canceled
    drained // nothing of ours is under way, and nothing can be
  };
  friend constexpr bool may_follow(End from, End to) {
    return to > from && (to <= End::closed || from >= End::closed);
  }

  [[nodiscard]] Result<> post_waiting(); // receives
  void connect_next();
  void introduce();
  [[nodiscard]] bool write(std::span<const std::byte> bytes);
  void receive();
  void take_answer();
  void take_farewell();
  void refused(const rdma::HelloBytes& hello, std::string text);
  void hung_up();
  [[nodiscard]] bool is_closed() const { return end_ >= End::closed; }
  void check_end();
  void cancel_receives();
  [[nodiscard]] bool all_has_come() const { return farewell_ && received_ == *farewell_; }
  [[nodiscard]] ssize_t post(const rdma::Send& send);

  RdmProvider& provider_;
  CheckedState<Stage> stage_ = Stage::made;
  bool by_peer_; // the peer has requested it
  std::string host_; // where the endpoint is to be
  std::string domain_;
  std::vector<Address> addresses_; // to try
  ConnectAttempts attempts_;
  Timer next_address_{[this] { // the one that is tried has had its share of the time
    attempts_.failed(ETIMEDOUT);
    connect_next();
  }};
  rdma::HelloBytes hello_{};
  Descriptor socket_;
  std::vector<std::byte> received_bytes_;

  std::shared_ptr<RdmEndpoint> endpoint_;
  std::uint32_t quota_ = 0; // receives that may be posted at once
  void* receive_description_ = nullptr;
  std::uint32_t number_ = 0;
  Introduction peer_; // once known
  fi_addr_t peer_address_ = FI_ADDR_UNSPEC;

  std::deque<rdma::Receive> waiting_; // receives that are not posted yet
  std::uint32_t receive_size_ = 0;
  InOrder receives_;
  InOrder sends_;
  // Messages; both ends begin at the same number.
  std::uint32_t sent_ = first_count;
  std::uint32_t received_ = first_count;
  std::optional<std::uint32_t> farewell_; // by the peer: its count of what it has sent
  Time since_{}; // it waits for the peer to end
  CheckedState<End> end_ = End::none;
  bool hung_up_ = false; // by the peer, or nobody is there
  bool overdue_ = false; // the peer was waited for long enough
};

} // namespace fanin::net::ofi
