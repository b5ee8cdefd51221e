#include "fanin/net/in_memory/byte_network.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::net::in_memory {

struct BytePipe {
  ByteEnd ends[2]; // the one that has connected, the one that has accepted
  std::uint16_t port = 0;
  std::uint16_t from_port = 0;
};

namespace {

using Outcome = Transfer::Outcome;

constexpr Time held_back_bytes = never - Duration{1}; // due when its path is repaired
constexpr std::size_t packet_max = 4U << 10;
constexpr std::size_t write_least = 256; // with room for it, so many bytes are not cut
constexpr std::size_t backlog_max = 4096;
constexpr Duration connect_again = std::chrono::seconds{1};
constexpr Duration unanswered_time = std::chrono::seconds{25};

class ByteWatch final : public StreamWatch {
public:
  ByteWatch() : StreamWatch(Descriptor{}) {}
  void poll() override { readable_ = false; }
  static void tell(Watchable& one, bool readable, bool writable) {
    happened(one, readable, writable);
    wake(one);
  }
};

} // namespace

class ByteStream final : public Stream {
public:
  ByteStream(ByteNetwork& network, std::shared_ptr<BytePipe> pipe, int side)
      : Stream(Descriptor{}), network_(network), pipe_(std::move(pipe)), side_(side) {
    end().stream = this;
  }
  ~ByteStream() override {
    end().stream = nullptr;
    network_.close(pipe_, side_, reset_on_close_);
  }
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  Transfer read_parts(std::span<const iovec> room) override;
  Transfer write_parts(std::span<const iovec> bytes, bool more_follows) override;
  void end_writing() override {
    if (!std::exchange(end().end_sent, true)) network_.send(pipe_, 1 - side_, Kind::end);
  }
  void end_reading() override { end().end_wanted = readable_ = true; }
  bool has_ended() const override {
    const ByteEnd& own = end();
    return own.taken == own.received.size() && peer_has_left();
  }
  bool peer_has_left() const override {
    const ByteEnd& own = end();
    return own.error != 0 || own.end_came || own.end_wanted;
  }
  bool is_unanswered() const override {
    return end().unanswered > 0 && network_.network_.now() >= end().answered_at + unanswered_time;
  }
  void reset_on_close() override { reset_on_close_ = true; }

private:
  using Kind = ByteNetwork::Kind;
  [[nodiscard]] ByteEnd& end() const { return pipe_->ends[side_]; }

  ByteNetwork& network_;
  std::shared_ptr<BytePipe> pipe_;
  int side_;
  bool reset_on_close_ = false;
};

Transfer ByteStream::read_parts(std::span<const iovec> room) {
  ByteEnd& own = end();
  std::size_t left = 0;
  for (const iovec& part : room) left += part.iov_len;
  left = network_.part_of(std::min(left, own.received.size() - own.taken), 1);
  if (left == 0) {
    if (own.error != 0) return {.outcome = Outcome::failed, .error = own.error};
    if (own.end_came || own.end_wanted) return {.outcome = Outcome::ended};
    readable_ = false;
    return {.outcome = Outcome::blocked};
  }
  const std::size_t bytes = left;
  for (const iovec& part : room) {
    const std::size_t some = std::min(left, part.iov_len);
    if (some > 0) std::memcpy(part.iov_base, own.received.data() + own.taken, some);
    own.taken += some;
    left -= some;
  }
  own.room_to_report += bytes;
  const bool empty = own.taken == own.received.size();
  if (empty) {
    own.received.clear();
    own.taken = 0;
  }
  if (empty || own.room_to_report >= network_.buffer_ / 4) {
    network_.send(pipe_, 1 - side_, Kind::room, {}, std::exchange(own.room_to_report, 0));
  }
  return {.bytes = bytes};
}

Transfer ByteStream::write_parts(std::span<const iovec> bytes, bool /*more_follows*/) {
  ByteEnd& own = end();
  if (own.error != 0) return {.outcome = Outcome::failed, .error = own.error};
  if (own.end_sent) return {.outcome = Outcome::failed, .error = EPIPE};
  std::size_t size = 0;
  for (const iovec& part : bytes) size += part.iov_len;
  if (size == 0) return {};
  const std::size_t room = own.open ? network_.buffer_ - own.unread : 0;
  std::size_t left = network_.part_of(std::min(size, room), write_least);
  if (left == 0) {
    writable_ = false;
    return {.outcome = Outcome::blocked};
  }
  const std::size_t written = left;
  if (own.unanswered == 0) own.answered_at = network_.network_.now();
  own.unread += written;
  own.unanswered += written;
  std::vector<std::byte> packet;
  for (const iovec& part : bytes) {
    const auto* const from = static_cast<const std::byte*>(part.iov_base);
    for (std::size_t at = 0, some = 0; at < part.iov_len && left > 0; at += some, left -= some) {
      some = std::min({left, part.iov_len - at, packet_max - packet.size()});
      packet.insert(packet.end(), from + at, from + at + some);
      if (packet.size() < packet_max && left > some) continue;
      network_.send(pipe_, 1 - side_, Kind::data, std::exchange(packet, {}));
    }
  }
  return {.bytes = written};
}

class ByteListener final : public StreamListener {
public:
  ByteListener(ByteNetwork& network, HostStreams& streams, Address address)
      : StreamListener(Descriptor{}), network_(network), streams_(streams), address_(address) {}
  ~ByteListener() override;
  ByteListener(const ByteListener&) = delete;
  ByteListener& operator=(const ByteListener&) = delete;

  Accepted accept() override {
    if (!has_next()) {
      readable_ = false;
      return {};
    }
    const std::shared_ptr<BytePipe> pipe = std::move(backlog_.front());
    backlog_.pop_front();
    Accepted accepted{.stream = std::make_unique<ByteStream>(network_, pipe, 1),
                      .peer = network_.hosts_[pipe->ends[0].host].address};
    accepted.peer.set_port(pipe->from_port);
    return accepted;
  }
  bool has_next() const override { return !backlog_.empty(); }
  std::string url() const override { return address_text(address_); }
  [[nodiscard]] bool add(const std::shared_ptr<BytePipe>& pipe) {
    if (backlog_.size() == backlog_max) return false;
    backlog_.push_back(pipe);
    ByteWatch::tell(*this, true, false);
    return true;
  }

private:
  ByteNetwork& network_;
  HostStreams& streams_;
  Address address_;
  std::deque<std::shared_ptr<BytePipe>> backlog_;
};

class HostStreams final : public Streams {
public:
  HostStreams(ByteNetwork& network, std::uint32_t host) : network_(network), host_(host) {
    network_.hosts_[host_].streams = this;
  }
  ~HostStreams() override { network_.hosts_[host_].streams = nullptr; }
  HostStreams(const HostStreams&) = delete;
  HostStreams& operator=(const HostStreams&) = delete;

  Result<std::vector<Address>> addresses_to_listen(const Url& url) override {
    const ByteNetwork::Host& own = network_.hosts_[host_];
    if (!url.host.empty() && url.host != own.name && url.host != own.address.host())
      return fail(ErrorKind::not_found, fmt::format("{}: this node is {}", url.text(), own.name));
    return std::vector{own.address};
  }
  Result<std::unique_ptr<StreamListener>> listen(const Url& url,
                                                 std::span<const Address> addresses) override {
    Address address = addresses.front();
    std::uint16_t port = url.port;
    if (port == 0) {
      for (port = 1; listeners.contains(port); ++port) {
      }
    }
    if (listeners.contains(port))
      return fail(ErrorKind::refused, fmt::format("{}: the port is in use", url.text()));
    address.set_port(port);
    auto listener = std::make_unique<ByteListener>(network_, *this, address);
    listeners[port] = listener.get();
    return listener;
  }
  Result<std::unique_ptr<Stream>> connect(const Address& address) override {
    const auto to = network_.host_at(address.host());
    if (!to) return fail(ErrorKind::disconnected, error_text(EHOSTUNREACH));
    return std::make_unique<ByteStream>(network_, network_.connect(host_, *to, address.port()), 0);
  }
  Result<std::unique_ptr<StreamWatch>> make_watch() override {
    return std::make_unique<ByteWatch>();
  }

  std::map<std::uint16_t, ByteListener*> listeners;

private:
  ByteNetwork& network_;
  std::uint32_t host_;
};

ByteListener::~ByteListener() {
  streams_.listeners.erase(address_.port());
  for (const auto& pipe : backlog_) network_.close(pipe, 1, true);
}

// --- hosts ---------------------------------------------------------------------------------------

ByteNetwork::ByteNetwork(Network& network, std::uint64_t seed, std::size_t buffer)
    : network_(network), random_(seed), buffer_(buffer) {}

ByteNetwork::~ByteNetwork() = default;

void ByteNetwork::add_host(std::string name) {
  const std::size_t number = hosts_.size() + 1;
  const auto address = addresses_of_number(fmt::format("10.0.{}.{}", number / 256, number % 256));
  hosts_.push_back({.name = std::move(name), .address = address.value().front()});
}

std::optional<Address> ByteNetwork::find(const std::string& name) const {
  const auto host = std::ranges::find(hosts_, name, &Host::name);
  if (host == hosts_.end()) return std::nullopt;
  return host->address;
}

std::optional<std::uint32_t> ByteNetwork::host_at(const std::string& number) const {
  const auto host =
      std::ranges::find(hosts_, number, [](const Host& h) { return h.address.host(); });
  if (host == hosts_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(host - hosts_.begin());
}

std::unique_ptr<Streams> ByteNetwork::make_streams(std::uint32_t host) {
  return std::make_unique<HostStreams>(*this, host);
}

// --- connections ---------------------------------------------------------------------------------

// Mostly all of it.
std::size_t ByteNetwork::part_of(std::size_t size, std::size_t least) {
  if (size <= least || !random_.chance(1, 4)) return size;
  return least + random_.below(size - least);
}

ByteNetwork::Pipe ByteNetwork::connect(std::uint32_t from, std::uint32_t to, std::uint16_t port) {
  const auto pipe = std::make_shared<BytePipe>();
  pipe->ends[0].host = from;
  pipe->ends[1].host = to;
  pipe->port = port;
  pipe->from_port = next_port_ = next_port_ == 65'535 ? 40'000 : next_port_ + 1;
  std::erase_if(pipes_, [](const auto& one) { return one.expired(); });
  pipes_.push_back(pipe);
  send(pipe, 1, Kind::connect);
  return pipe;
}

// Without unread bytes it is an end in order, whether the process has closed it or has died.
void ByteNetwork::close(const Pipe& pipe, int side, bool reset) {
  ByteEnd& end = pipe->ends[side];
  end.closed = true;
  if (!end.open || end.error != 0) return;
  if (reset || end.taken < end.received.size()) {
    if (random_.chance(1, 2)) drop(*pipe, 1 - side);
    send(pipe, 1 - side, Kind::reset);
  } else if (!end.end_sent) {
    send(pipe, 1 - side, Kind::end);
  }
}

void ByteNetwork::disconnect(std::uint32_t host, std::uint32_t other) {
  for (const auto& one : pipes_) {
    const Pipe pipe = one.lock();
    if (!pipe) continue;
    const std::pair between{pipe->ends[0].host, pipe->ends[1].host};
    if (between != std::pair{host, other} && between != std::pair{other, host}) continue;
    drop(*pipe);
    for (const int side : {0, 1}) send(pipe, side, Kind::reset);
  }
}

// What is under way to that side; without a side, to both.
void ByteNetwork::drop(const BytePipe& pipe, std::optional<int> side) {
  std::erase_if(under_way_, [&](const auto& entry) {
    const Packet& packet = entry.second;
    return packet.pipe.get() == &pipe && (!side || packet.side == *side);
  });
}

bool ByteNetwork::broken(const BytePipe& pipe, int to) const {
  return network_.broken(pipe.ends[1 - to].host, pipe.ends[to].host, pipe.port);
}

void ByteNetwork::send(const Pipe& pipe, int side, Kind kind, std::vector<std::byte> bytes,
                       std::size_t size) {
  ByteEnd& from = pipe->ends[1 - side];
  Time due = held_back_bytes;
  if (!broken(*pipe, side)) {
    const Host& to = hosts_[pipe->ends[side].host];
    due = std::max(from.last_due, network_.arrival(hosts_[from.host].extra + to.extra, random_));
    if (to.rate > 0) due += Duration{bytes.size() * 1'000'000'000ULL / to.rate};
    from.last_due = due;
  }
  under_way_.emplace(std::pair{due, sequence_++},
                     Packet{kind, static_cast<std::uint8_t>(side), pipe, std::move(bytes), size});
}

// What was held back goes on its way now, in the order in which it was sent.
void ByteNetwork::release_held() {
  const auto first = under_way_.lower_bound({held_back_bytes, 0});
  std::vector<Packet> held;
  for (auto at = first; at != under_way_.end(); ++at) held.push_back(std::move(at->second));
  under_way_.erase(first, under_way_.end());
  for (Packet& packet : held) {
    send(packet.pipe, packet.side, packet.kind, std::move(packet.bytes), packet.size);
  }
}

// --- what arrives --------------------------------------------------------------------------------

Time ByteNetwork::next() const {
  const Time first = under_way_.empty() ? never : under_way_.begin()->first.first;
  return first < held_back_bytes ? first : never;
}

void ByteNetwork::deliver() {
  Packet packet = std::move(under_way_.extract(under_way_.begin()).mapped());
  const ByteEnd& to = packet.pipe->ends[packet.side];
  network_.trace(to.host, static_cast<std::uint64_t>(packet.kind),
                 packet.bytes.size() + packet.size);
  take(packet);
}

void ByteNetwork::take(Packet& packet) {
  ByteEnd& to = packet.pipe->ends[packet.side];
  switch (packet.kind) {
  case Kind::connect: return on_connect(packet);
  case Kind::accepted:
    to.open = true;
    if (to.closed) return send(packet.pipe, 1 - packet.side, Kind::reset);
    return tell(to, true, true);
  case Kind::refused: to.error = ECONNREFUSED; return tell(to, true, true);
  case Kind::data: return on_data(packet);
  case Kind::answered: return answered(to, packet.size);
  case Kind::room: to.unread -= packet.size; return tell(to, false, true);
  case Kind::end: to.end_came = true; return tell(to, true, false);
  case Kind::reset:
    if (to.error == 0) to.error = ECONNRESET;
    return tell(to, true, true);
  }
}

void ByteNetwork::on_connect(Packet& packet) {
  ByteEnd& to = packet.pipe->ends[1];
  HostStreams* const streams = hosts_[to.host].streams;
  if (streams == nullptr || !streams->listeners.contains(packet.pipe->port))
    return send(packet.pipe, 0, Kind::refused);
  if (!streams->listeners[packet.pipe->port]->add(packet.pipe)) {
    under_way_.emplace(std::pair{network_.now() + connect_again, sequence_++}, std::move(packet));
    return;
  }
  to.open = true;
  if (on_event) on_event(to.host);
  send(packet.pipe, 0, Kind::accepted);
}

void ByteNetwork::on_data(Packet& packet) {
  ByteEnd& to = packet.pipe->ends[packet.side];
  const int back = 1 - packet.side;
  if (to.error != 0) return;
  if (to.closed) {
    to.error = ECONNRESET;
    return send(packet.pipe, back, Kind::reset);
  }
  if (broken(*packet.pipe, back)) {
    send(packet.pipe, back, Kind::answered, {}, packet.bytes.size());
  } else {
    answered(packet.pipe->ends[back], packet.bytes.size());
  }
  if (to.taken > buffer_) {
    to.received.erase(to.received.begin(),
                      to.received.begin() + static_cast<std::ptrdiff_t>(to.taken));
    to.taken = 0;
  }
  to.received.insert(to.received.end(), packet.bytes.begin(), packet.bytes.end());
  tell(to, true, false);
}

void ByteNetwork::answered(ByteEnd& end, std::size_t bytes) {
  end.unanswered -= bytes;
  end.answered_at = network_.now();
}

void ByteNetwork::tell(ByteEnd& end, bool readable, bool writable) {
  if (end.stream == nullptr) return;
  ByteWatch::tell(*end.stream, readable, writable);
  if (on_event) on_event(end.host);
}

} // namespace fanin::net::in_memory
