#include "fanin/net/ofi/rdm_connection.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <rdma/fi_tagged.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/net/ofi/messages.hpp"

namespace fanin::net::ofi {

using rdma::Completion;
using rdma::Operation;
using rdma::ProviderEvent;

namespace {

constexpr std::uint64_t tag_mask = (1U << number_shift) - 1;

// For all addresses of a host, as over tcp.
constexpr Duration connect_timeout = std::chrono::seconds{5};

std::uint64_t upper(std::uint32_t number) { return std::uint64_t{number} << number_shift; }

} // namespace

RdmConnection::RdmConnection(RdmProvider& provider, const Url& url, std::vector<Address> addresses)
    : provider_(provider),
      by_peer_(false),
      host_(addresses.front().host()), // a name the provider would look up, and wait
      domain_(domain_of(url)),
      addresses_(std::move(addresses)) {
  peer = url.text();
  provider_.add(*this);
}

RdmConnection::RdmConnection(RdmProvider& provider, Descriptor socket, Introduction introduction,
                             std::vector<std::byte> rest, std::string domain)
    : provider_(provider),
      by_peer_(true),
      host_(local_address(socket.get()).host()),
      domain_(std::move(domain)),
      socket_(std::move(socket)),
      received_bytes_(std::move(rest)),
      peer_(std::move(introduction)) {
  provider_.add(*this);
}

RdmConnection::~RdmConnection() {
  provider_.remove(*this);
  if (!endpoint_) return;
  if (peer_address_ != FI_ADDR_UNSPEC && !endpoint_->own()) endpoint_->remove(peer_.address);
  endpoint_->give_back_receives(quota_);
}

// --- making a connection ---

Result<rdma::Endpoint::Limits> RdmConnection::open(const memory::PagePool& receive_pool) {
  auto found = FANIN_TRY(provider_.endpoint(host_, by_peer_, domain_));
  const std::uint32_t receives = found->take_receives();
  if (receives == 0) {
    return fail(ErrorKind::exhausted,
                fmt::format("{}:// takes no more receives: use fewer connections, or see "
                            "`fi_info -e` for a variable that ends in RX_SIZE",
                            provider_.scheme()));
  }
  endpoint_ = std::move(found);
  quota_ = receives;
  number_ = provider_.next_number();
  Domain& domain = endpoint_->domain();
  if (const memory::Arena* const arena = receive_pool.arena(); arena != nullptr) {
    receive_description_ = FANIN_TRY(domain.description(*arena));
  }
  return Limits{.receives = quota_,
                .inline_most = endpoint_->inline_most(),
                .pieces_most = endpoint_->pieces_most(),
                .reads_anything = !domain.needs_registration()};
}

Result<> RdmConnection::start(const rdma::HelloBytes& hello) {
  hello_ = hello;
  if (!by_peer_) {
    attempts_ = ConnectAttempts(addresses_, provider_.now() + connect_timeout, {});
    connect_next();
    return {};
  }
  peer_address_ = FANIN_TRY(endpoint_->insert(peer_.address));
  stage_ = Stage::connected;
  const Introduction mine{.number = number_, .hello = hello_, .address = endpoint_->name()};
  if (!write(encode(mine)) || !provider_.watch(socket_.get(), EPOLLIN, this))
    return fail(ErrorKind::disconnected, "the peer is gone");
  provider_.queue_event({.kind = ProviderEvent::Kind::connected, .endpoint = this});
  take_farewell();
  return {};
}

void RdmConnection::reject(const rdma::HelloBytes& hello) {
  (void)write(encode(Introduction{.refused = true, .hello = hello, .address = {}}));
  socket_ = {};
}

void RdmConnection::connect_next() {
  socket_ = attempts_.next([this](int socket) { return provider_.watch(socket, EPOLLOUT, this); });
  if (!socket_) return refused({}, net::error_text(attempts_.error()));
  stage_ = Stage::connecting;
  if (attempts_.any_left())
    next_address_.start(provider_.loop(), attempts_.share_ends(provider_.now()));
}

void RdmConnection::introduce() {
  if (const int error = connect_error(socket_.get()); error != 0) {
    attempts_.failed(error);
    return connect_next();
  }
  stage_ = Stage::introducing;
  next_address_.cancel();
  const Introduction mine{.number = number_, .hello = hello_, .address = endpoint_->name()};
  if (!write(encode(mine)) || !provider_.watch(socket_.get(), EPOLLIN, this, true))
    refused({}, "the peer is gone");
}

void RdmConnection::refused(const rdma::HelloBytes& hello, std::string text) {
  socket_ = {};
  next_address_.cancel();
  stage_ = Stage::made;
  provider_.queue_event({.kind = ProviderEvent::Kind::refused,
                         .endpoint = this,
                         .hello = hello,
                         .text = std::move(text)});
}

// --- the TCP connection beside ---

// The buffer of a socket has room for all that is ever sent.
bool RdmConnection::write(std::span<const std::byte> bytes) {
  return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

void RdmConnection::on_ready(std::uint32_t) {
  if (stage_ == Stage::connecting) return introduce();
  receive();
  if (stage_ == Stage::introducing) take_answer();
  if (stage_ == Stage::connected) take_farewell();
}

void RdmConnection::receive() {
  std::array<std::byte, introduction_most + farewell_size> room;
  const ssize_t got = ::recv(socket_.get(), room.data(), room.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return hung_up();
  received_bytes_.insert(received_bytes_.end(), room.begin(), room.begin() + got);
}

void RdmConnection::hung_up() {
  hung_up_ = true;
  if (socket_) provider_.unwatch(socket_.get());
}

void RdmConnection::take_answer() {
  auto introduction = decode_introduction(received_bytes_);
  if (!introduction) return refused({}, introduction.error().text);
  if (!*introduction) {
    if (hung_up_) refused({}, "the peer closed the connection instead of answering");
    return;
  }
  peer_ = std::move(**introduction);
  if (peer_.refused) return refused(peer_.hello, "the peer has refused the connection");
  if (!peer_.address.empty()) { // else of another version, as its hello says
    received_bytes_.erase(received_bytes_.begin(),
                          received_bytes_.begin() + static_cast<std::ptrdiff_t>(size_of(peer_)));
    const auto address = endpoint_->insert(peer_.address);
    if (!address) return refused({}, address.error().text);
    peer_address_ = *address;
    stage_ = Stage::connected;
  }
  provider_.queue_event(
      {.kind = ProviderEvent::Kind::connected, .endpoint = this, .hello = peer_.hello});
}

void RdmConnection::take_farewell() {
  if (received_bytes_.size() >= farewell_size) {
    const auto sent = decode_farewell(std::span(received_bytes_).first<farewell_size>());
    if (!sent || farewell_ || received_bytes_.size() > farewell_size) {
      hung_up(); // no peer of fanin
    } else {
      farewell_ = *sent;
      since_ = provider_.now();
      provider_.check_timeouts_later();
    }
    received_bytes_.clear();
  }
  check_end();
}

// --- messages ---

Result<> RdmConnection::post_receives(std::span<const rdma::Receive> receives, std::uint32_t size) {
  receive_size_ = size;
  waiting_.insert(waiting_.end(), receives.begin(), receives.end());
  return post_waiting();
}

Result<> RdmConnection::post_waiting() {
  while (!waiting_.empty() && receives_.size() < quota_) {
    const rdma::Receive& next = waiting_.front();
    const ssize_t error = fi_trecv(endpoint_->get(), next.to, receive_size_, receive_description_,
                                   FI_ADDR_UNSPEC, upper(number_), tag_mask, next.operation);
    if (error == -FI_EAGAIN) {
      provider_.retry_receives(*this);
      return {};
    }
    if (error != 0)
      return fail(ErrorKind::internal, fmt::format("cannot post a receive: {}", error_text(error)));
    receives_.posted(next.operation);
    waiting_.pop_front();
  }
  return {};
}

Result<std::size_t> RdmConnection::post_sends(std::span<const rdma::Send> sends) {
  if (hung_up_) return fail(ErrorKind::disconnected, "the peer is gone");
  std::size_t count = 0;
  for (; count < sends.size(); ++count) {
    const ssize_t error = post(sends[count]);
    if (error == -FI_EAGAIN) break;
    if (error != 0)
      return fail(ErrorKind::disconnected, fmt::format("cannot send: {}", error_text(error)));
    ++sent_;
    if (!sends[count].inlined) sends_.posted(sends[count].operation);
  }
  return count;
}

ssize_t RdmConnection::post(const rdma::Send& send) {
  const std::uint64_t tag = upper(peer_.number) | send.tag;
  if (send.inlined) {
    std::array<std::byte, copied_room> room;
    return fi_tinject(endpoint_->get(), in_one_piece(send, room), send.size, peer_address_, tag);
  }
  Pieces pieces(endpoint_->domain(), send.extents);
  const fi_msg_tagged message{.msg_iov = pieces.vectors.data(),
                              .desc = pieces.descriptions.data(),
                              .iov_count = pieces.count,
                              .addr = peer_address_,
                              .tag = tag,
                              .ignore = 0,
                              .context = send.operation,
                              .data = 0};
  return fi_tsendmsg(endpoint_->get(), &message, FI_COMPLETION);
}

Result<> RdmConnection::reach(const memory::Arena& arena) {
  FANIN_TRY(endpoint_->domain().description(arena));
  return {};
}

void RdmConnection::go_on_posting() {
  if (post_waiting()) return;
  hung_up();
  check_end();
}

void RdmConnection::completed(const Completion& completion) {
  const bool receive = completion.operation->kind == Operation::Kind::receive;
  (receive ? receives_ : sends_).completed(completion, [&](const Completion& next) {
    if (receive && next.status != Completion::Status::canceled) ++received_;
    provider_.queue_completion(next);
  });
  go_on_posting();
  check_end();
}

// --- the end ---

void RdmConnection::close() {
  if (is_closed()) return;
  end_ = End::closed;
  provider_.forget_events(*this);
  next_address_.cancel();
  since_ = provider_.now();
  if (stage_ != Stage::connected) {
    socket_ = {};
    hung_up_ = true;
  } else if (!hung_up_ && !write(encode_farewell(sent_))) {
    hung_up();
  }
  provider_.check_timeouts_later();
  check_end();
}

bool RdmConnection::is_retired() const { return end_ == End::drained && (hung_up_ || overdue_); }

void RdmConnection::check_end() {
  const bool dead = hung_up_ && !farewell_;
  const bool over = all_has_come() || dead || overdue_;
  if (!is_closed()) {
    if (stage_ != Stage::connected || !over || end_ == End::reported) return;
    end_ = End::reported;
    provider_.queue_event({.kind = ProviderEvent::Kind::gone, .endpoint = this});
    return;
  }
  if (end_ == End::drained || !over) return;
  if (end_ == End::closed) {
    end_ = End::canceled;
    waiting_.clear();
    cancel_receives();
  }
  // Whoever has hung up reads nothing of ours any more; an endpoint that others use goes on.
  if (hung_up_ && endpoint_ && endpoint_->own()) {
    endpoint_.reset();
    receives_.forget();
    sends_.forget();
  }
  if (receives_.size() > 0 || sends_.size() > 0) return;
  end_ = End::drained;
  if (socket_) (void)::shutdown(socket_.get(), SHUT_WR);
}

void RdmConnection::cancel_receives() {
  receives_.for_each_not_done(
      [&](Operation* operation) { (void)fi_cancel(&endpoint_->get()->fid, operation); });
}

void RdmConnection::wait_no_longer(Time time) {
  if (!waits() || since_ > time) return;
  overdue_ = true;
  check_end();
}

void RdmConnection::abandon() {
  socket_ = {};
  if (endpoint_ && endpoint_->own() && !is_retired()) endpoint_->abandon();
  endpoint_.reset();
}

} // namespace fanin::net::ofi
