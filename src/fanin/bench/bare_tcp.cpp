#include "fanin/bench/bare_tcp.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "fanin/bench/record.hpp"
#include "fanin/memory/arena.hpp"
#include "fanin/net/tcp/socket.hpp"

namespace fanin::bench {
namespace {

sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

Result<> set_congestion(int socket, const std::string& name) {
  if (setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                 static_cast<socklen_t>(name.size())) == 0) {
    return {};
  }
  return fail_errno(ErrorKind::unsupported, "congestion control " + name, errno);
}

Result<std::pair<Descriptor, sockaddr_in>> listen_on_loopback(const BareOptions& options) {
  Descriptor listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (auto set = set_congestion(listener.get(), options.congestion); !set)
    return std::unexpected(set.error());
  if (bind(listener.get(), generic(address), size) != 0 || listen(listener.get(), 512) != 0 ||
      getsockname(listener.get(), generic(address), &size) != 0) {
    return fail_errno(ErrorKind::internal, "listening on loopback", errno);
  }
  return std::pair{std::move(listener), address};
}

// Pages in the order in which they come back, so that all of them are cycled through.
class Ring {
public:
  static Result<Ring> make(std::uint64_t page, std::uint64_t set) {
    const std::uint64_t pages = std::max<std::uint64_t>(1, set / page);
    auto arena = memory::Arena::make(page * pages, {});
    if (!arena) return std::unexpected(arena.error());
    return Ring{std::move(*arena), page};
  }
  [[nodiscard]] std::span<std::byte> take() {
    const std::span<std::byte> page{free_[head_], page_};
    head_ = head_ + 1 == free_.size() ? 0 : head_ + 1;
    return page;
  }
  void give_back(std::span<std::byte> page) {
    free_[tail_] = page.data();
    tail_ = tail_ + 1 == free_.size() ? 0 : tail_ + 1;
  }

private:
  Ring(memory::Arena arena, std::uint64_t page) : arena_(std::move(arena)), page_(page) {
    for (std::uint64_t at = 0; at + page_ <= arena_.size(); at += page_)
      free_.push_back(arena_.data() + at);
  }
  memory::Arena arena_;
  std::uint64_t page_;
  std::vector<std::byte*> free_;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
};

Result<> write_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(socket, bytes.data(), bytes.size());
    if (written <= 0) return fail_errno(ErrorKind::disconnected, "write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<> send_pages(const BareOptions& options, std::size_t index,
                    const std::vector<sockaddr_in>& addresses, Cell& cell) {
  std::vector<Descriptor> sockets;
  for (sockaddr_in address : addresses) {
    sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (auto set = set_congestion(sockets.back().get(), options.congestion); !set) return set;
    if (connect(sockets.back().get(), generic(address), sizeof address) != 0) {
      return fail_errno(ErrorKind::internal, "connecting to a receiver", errno);
    }
  }
  const PageLayout layout{options.size, options.page};
  auto ring = Ring::make(layout.page(), options.send_set);
  if (!ring) return std::unexpected(ring.error());
  cell.state = Cell::State::ready;
  EventNumber event = 0;
  for (std::size_t to = index;; ++to) {
    const auto page = ring->take();
    fill_records(page, layout, event, static_cast<SourceId>(index), options.checksum);
    event += layout.records;
    if (auto sent = write_all(sockets[to % sockets.size()].get(), page); !sent) return sent;
    ring->give_back(page);
  }
}

struct Incoming {
  Descriptor socket;
  std::span<std::byte> page;
  std::size_t have = 0;
};

// Reads what is there. False: nothing was.
Result<bool> read_some(Incoming& incoming, const BareOptions& options, Ring& ring, Cell& cell,
                       int flags) {
  if (incoming.page.empty()) incoming.page = ring.take();
  const ssize_t count = recv(incoming.socket.get(), incoming.page.data() + incoming.have,
                             incoming.page.size() - incoming.have, flags);
  if (count < 0 && errno == EAGAIN) return false;
  if (count <= 0) return fail_errno(ErrorKind::disconnected, "read", errno);
  incoming.have += static_cast<std::size_t>(count);
  if (incoming.have < incoming.page.size()) return true;
  const std::uint32_t records = walk_records(incoming.page, options.checksum);
  if (records == 0) return fail(ErrorKind::malformed, "a damaged record");
  cell.messages.add(records);
  cell.bytes.add(std::uint64_t{records} * options.size);
  ring.give_back(std::exchange(incoming.page, {}));
  incoming.have = 0;
  return true;
}

Result<> receive_pages(const BareOptions& options, const Descriptor& listener, Cell& cell) {
  std::vector<Incoming> incoming(options.senders);
  std::vector<pollfd> watched;
  for (auto& one : incoming) {
    one.socket = Descriptor{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    if (one.socket.get() < 0) return fail_errno(ErrorKind::internal, "accept", errno);
    watched.push_back({one.socket.get(), POLLIN, 0});
  }
  const PageLayout layout{options.size, options.page};
  auto ring =
      Ring::make(layout.page(), std::max(options.receive_set, options.senders * layout.page()));
  if (!ring) return std::unexpected(ring.error());
  cell.state = Cell::State::ready;
  const int flags = incoming.size() > 1 ? MSG_DONTWAIT : 0;
  while (true) {
    bool any = false;
    for (auto& one : incoming) {
      const auto progress = read_some(one, options, *ring, cell, flags);
      if (!progress) return std::unexpected(progress.error());
      any = any || *progress;
    }
    if (!any) (void)poll(watched.data(), watched.size(), -1);
  }
}

} // namespace

Result<Sample> run_bare_tcp(const BareOptions& options) {
  std::vector<Descriptor> listeners;
  std::vector<sockaddr_in> addresses;
  for (std::size_t i = 0; i < options.receivers; ++i) {
    auto made = listen_on_loopback(options);
    if (!made) return std::unexpected(made.error());
    listeners.push_back(std::move(made->first));
    addresses.push_back(made->second);
  }
  ProcessGroup group;
  for (std::size_t i = 0; i < options.receivers; ++i) {
    auto started = group.start("receiver" + std::to_string(i), [&](Cell& cell) {
      return receive_pages(options, listeners[i], cell);
    });
    if (!started) return std::unexpected(started.error());
  }
  for (std::size_t i = 0; i < options.senders; ++i) {
    auto started = group.start("sender" + std::to_string(i),
                               [&](Cell& cell) { return send_pages(options, i, addresses, cell); });
    if (!started) return std::unexpected(started.error());
  }
  return group.measure(options.warmup, options.duration); // and ends them
}

} // namespace fanin::bench
