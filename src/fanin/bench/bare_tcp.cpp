#include "fanin/bench/contender_ends.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fanin/base/try.hpp"
#include "fanin/bench/bare_socket.hpp"
#include "fanin/bench/record.hpp"
#include "fanin/memory/arena.hpp"

namespace fanin::bench {
namespace {

constexpr int tcp_spins = 100; // before giving the core away

// Pages in the order in which they come back, so that all of them are cycled through.
class Ring {
public:
  static Result<Ring> make(std::uint64_t page, std::uint64_t set) {
    const std::uint64_t pages = std::max<std::uint64_t>(1, set / page);
    auto arena = FANIN_TRY(memory::Arena::make(page * pages, {}));
    return Ring{std::move(arena), page};
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
  Ring(std::unique_ptr<memory::Arena> arena, std::uint64_t page)
      : arena_(std::move(arena)), page_(page) {
    for (std::uint64_t at = 0; at + page_ <= arena_->size(); at += page_)
      free_.push_back(arena_->data() + at);
  }
  std::unique_ptr<memory::Arena> arena_;
  std::uint64_t page_;
  std::vector<std::byte*> free_;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
};

bool copies(const Spec& spec) { return spec.pattern != Pattern::nxn; }
bool to_all(const Spec& spec) { return spec.pattern == Pattern::pubsub; }
bool spins(const Spec& spec) { return spec.wait == net::WaitPolicy::poll; }

// Records larger than a page leave while they are filled, and are read in pieces.
bool in_pieces(const Spec& spec) {
  return copies(spec) && !to_all(spec) && PageLayout{spec.size, spec.page}.page() > spec.page;
}

class Sender {
public:
  Sender(const Spec& spec, std::size_t index, std::vector<Descriptor> sockets)
      : spec_(spec),
        index_(index),
        sockets_(std::move(sockets)),
        source_(copies(spec) ? spec.size : 0) {}

  Result<> run(ProcessStats& stats) {
    const PageLayout layout{spec_.size, spec_.page};
    if (in_pieces(spec_)) return write_pieces(stats);
    auto ring = FANIN_TRY(Ring::make(layout.page(), spec_.set));
    stats.state = ProcessStats::State::ready;
    EventNumber event = 0;
    while (true) {
      const auto page = ring.take();
      if (copies(spec_)) {
        copy_records(page, layout, source_);
      } else {
        fill_records(page, layout, event, static_cast<SourceId>(index_), spec_.checksum);
      }
      event += layout.records;
      FANIN_TRY(write_page(page));
      ring.give_back(page);
    }
  }

private:
  Result<> write_page(std::span<const std::byte> page) {
    for (std::size_t i = 0; i < (to_all(spec_) ? sockets_.size() : 1); ++i) {
      const auto& socket = sockets_[(to_all(spec_) ? i : index_ + turn_) % sockets_.size()];
      FANIN_TRY(write_all(socket.get(), page, spins(spec_)));
    }
    ++turn_;
    return {};
  }

  Result<> write_pieces(ProcessStats& stats) {
    std::vector<std::byte> page(spec_.page);
    stats.state = ProcessStats::State::ready;
    while (true) {
      const Descriptor& socket = sockets_[(index_ + turn_++) % sockets_.size()];
      const RecordHeader header{spec_.size, 0};
      std::memcpy(page.data(), &header, sizeof header);
      std::size_t have = sizeof header;
      for (std::size_t at = 0; at < spec_.size;) {
        const std::size_t piece = std::min(page.size() - have, spec_.size - at);
        memory::copy(page.data() + have, source_.bytes().subspan(at, piece));
        at += piece;
        FANIN_TRY(write_all(socket.get(), std::span{page}.first(have + piece), spins(spec_)));
        have = 0;
      }
    }
  }

  const Spec& spec_;
  std::size_t index_;
  std::vector<Descriptor> sockets_;
  PayloadSource source_;
  std::size_t turn_ = 0;
};

class Receiver {
public:
  Receiver(const Spec& spec, std::vector<Descriptor> sockets, ProcessStats& stats)
      : spec_(spec),
        layout_(spec.size, spec.page),
        stats_(stats),
        flags_(sockets.size() > 1 || spins(spec) ? MSG_DONTWAIT : 0) {
    for (auto& socket : sockets) {
      watched_.push_back({socket.get(), POLLIN, 0});
      incoming_.push_back({std::move(socket), {}, 0, 0});
    }
  }

  Result<> run() {
    const std::uint64_t page = in_pieces(spec_) ? spec_.page : layout_.page();
    auto made = FANIN_TRY(Ring::make(page, std::max(spec_.set, incoming_.size() * page)));
    ring_.emplace(std::move(made));
    stats_.state = ProcessStats::State::ready;
    for (int idle = 0;;) {
      bool any = false;
      for (auto& one : incoming_) {
        const auto progress = FANIN_TRY(in_pieces(spec_) ? read_piece(one) : read_page(one));
        any = any || progress;
      }
      if (any) continue;
      if (!spins(spec_)) {
        (void)poll(watched_.data(), watched_.size(), -1);
      } else if (++idle % tcp_spins == 0) {
        sched_yield();
      }
    }
  }

private:
  struct Incoming {
    Descriptor socket;
    std::span<std::byte> page;
    std::size_t have = 0;    // bytes of the page
    std::size_t message = 0; // bytes of the message, where it comes in pieces
  };

  // 0: nothing is there.
  Result<std::size_t> read(const Incoming& incoming, std::span<std::byte> to) const {
    const ssize_t count = recv(incoming.socket.get(), to.data(), to.size(), flags_);
    if (count < 0 && errno == EAGAIN) return 0;
    if (count <= 0) return fail_errno(ErrorKind::disconnected, "read", errno);
    return static_cast<std::size_t>(count);
  }

  // Reads what is there. False: nothing was.
  Result<bool> read_page(Incoming& incoming) {
    if (incoming.page.empty()) incoming.page = ring_->take();
    const auto count = FANIN_TRY(read(incoming, incoming.page.subspan(incoming.have)));
    if (count == 0) return false;
    incoming.have += count;
    if (incoming.have < incoming.page.size()) return true;
    const std::uint32_t records = walk_records(incoming.page, spec_.checksum, spec_.read);
    if (records == 0) return fail(ErrorKind::malformed, "a damaged record");
    stats_.messages.add(records);
    stats_.bytes.add(std::uint64_t{records} * spec_.size);
    ring_->give_back(std::exchange(incoming.page, {}));
    incoming.have = 0;
    return true;
  }

  Result<bool> read_piece(Incoming& incoming) {
    if (incoming.page.empty()) incoming.page = ring_->take();
    const std::size_t left = layout_.record() - incoming.message;
    const auto piece = incoming.page.first(std::min(left, incoming.page.size()));
    const auto count = FANIN_TRY(read(incoming, piece));
    if (count == 0) return false;
    touch(piece.first(count), spec_.read);
    stats_.bytes.add(count);
    incoming.message += count;
    if (incoming.message < layout_.record()) return true;
    incoming.message = 0;
    stats_.messages.add(1);
    return true;
  }

  const Spec& spec_;
  PageLayout layout_;
  ProcessStats& stats_;
  int flags_;
  std::vector<pollfd> watched_;
  std::vector<Incoming> incoming_;
  std::optional<Ring> ring_;
};

// Those who listen say so before anybody connects.
Result<std::vector<Descriptor>> accept_all(const Spec& spec, std::size_t count,
                                           ProcessStats& stats) {
  const auto listener = FANIN_TRY(listen_at(spec.url, spec.congestion));
  stats.listens_at(listening_address(listener));
  std::vector<Descriptor> sockets;
  for (std::size_t i = 0; i < count; ++i) {
    auto socket = FANIN_TRY(accept_one(listener));
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

Result<std::vector<Descriptor>> connect_all(const Spec& spec,
                                            const std::vector<std::string>& addresses) {
  std::vector<Descriptor> sockets;
  for (const auto& address : addresses) {
    auto socket = FANIN_TRY(connect_to(address, spec.congestion));
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

} // namespace

Ends bare_tcp_ends(const Spec& spec) {
  Ends ends;
  ends.connectors_count = to_all(spec); // one sender listens, its receivers come
  ends.listeners = to_all(spec) ? 1 : spec.receivers;
  ends.connectors = to_all(spec) ? spec.receivers : spec.senders;
  ends.listen = [spec](std::size_t index, ProcessStats& stats) -> Result<> {
    auto sockets = FANIN_TRY(accept_all(spec, to_all(spec) ? spec.receivers : spec.senders, stats));
    if (to_all(spec)) return Sender{spec, index, std::move(sockets)}.run(stats);
    return Receiver{spec, std::move(sockets), stats}.run();
  };
  ends.connect = [spec](std::size_t index, const std::vector<std::string>& addresses,
                        ProcessStats& stats) -> Result<> {
    auto sockets = FANIN_TRY(connect_all(spec, addresses));
    if (to_all(spec)) return Receiver{spec, std::move(sockets), stats}.run();
    return Sender{spec, index, std::move(sockets)}.run(stats);
  };
  return ends;
}

} // namespace fanin::bench
