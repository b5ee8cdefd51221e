#include "fanin/bench/contender_ends.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/try.hpp"
#include "fanin/bench/loop_process.hpp"
#include "fanin/bench/record.hpp"
#include "fanin/net/link.hpp"
#include "fanin/source/emulator.hpp"
#include "fanin/wire/checksum.hpp"
#include "fanin/wire/data_block.hpp"

namespace fanin::bench {
namespace {

constexpr std::uint64_t bytes_per_turn = 1U << 20;
constexpr std::uint32_t stream_control_page = 64U << 10;

std::uint32_t round_up(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + 4095) / 4096 * 4096);
}

struct Message {
  std::array<memory::View, 2> extents;
  std::size_t count = 0;
};

// Keeps the last messages, so that their pages are not used again too soon.
class Held {
public:
  explicit Held(std::uint64_t bytes) : bytes_max_(bytes) {}
  void add(Message message, std::uint64_t bytes) {
    queue_.emplace_back(std::move(message), bytes);
    bytes_ += bytes;
    for (; bytes_ > bytes_max_; queue_.pop_front()) bytes_ -= queue_.front().second;
  }

private:
  std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 0;
  std::deque<std::pair<Message, std::uint64_t>> queue_;
};

// Offers message after message to its connections in turn; one that is full is skipped.
class StreamSender : public net::Handler, public net::Service {
public:
  StreamSender(LoopProcess& process, const Spec& spec, ProcessStats& stats)
      : process_(process), spec_(spec), stats_(stats), held_(spec.set) {}

  Result<> connect(const std::vector<std::string>& addresses) {
    control_pool_ = FANIN_TRY(make_pool(stream_control_page, stream_control_page * 8));
    for (const auto& address : addresses) {
      const auto url = FANIN_TRY(net::Url::parse(address));
      auto id = FANIN_TRY(process_.transport().connect(
          url, {.receive_pool = control_pool_.get(), .handler = this}));
      peers_.push_back({.link = {&process_.transport(), id}});
    }
    process_.loop().add(*this);
    return {};
  }

  void on_event(net::Transport&, net::Event& event) override {
    const auto peer =
        std::ranges::find(peers_, event.connection, [](const Peer& p) { return p.link.id; });
    if (event.kind == net::EventKind::connected || event.kind == net::EventKind::writable)
      peer->open = true;
    if (event.kind == net::EventKind::connected) stats_.state = ProcessStats::State::ready;
    if (event.kind == net::EventKind::closed) process_.loop().stop();
  }

  bool poll() override {
    const bool produced = produce();
    std::uint64_t sent = 0;
    for (bool any = true; any && sent < bytes_per_turn;) {
      any = false;
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        Peer& peer = peers_[next_];
        next_ = next_ + 1 == peers_.size() ? 0 : next_ + 1;
        if (!peer.open) continue;
        const std::uint64_t bytes = offer(peer);
        sent += bytes;
        any = any || bytes > 0;
      }
    }
    return sent > 0 || produced;
  }

protected:
  // True: there may be more.
  virtual bool produce() { return false; }
  // False: there is none now.
  virtual bool next(Message& message) = 0;

  LoopProcess& process_;
  const Spec& spec_;
  ProcessStats& stats_;

private:
  struct Peer {
    net::Link link;
    Message pending;
    bool open = false;
  };

  std::uint64_t offer(Peer& peer) {
    if (peer.pending.count == 0 && !next(peer.pending)) return 0;
    const auto extents = std::span{peer.pending.extents}.first(peer.pending.count);
    if (peer.link.send(extents) != net::SendOutcome::accepted) {
      peer.open = false;
      return 0;
    }
    std::uint64_t bytes = 0;
    for (const auto& extent : extents) bytes += extent.size;
    held_.add(std::exchange(peer.pending, {}), bytes);
    return bytes;
  }

  std::unique_ptr<memory::PagePool> control_pool_;
  std::vector<Peer> peers_;
  std::size_t next_ = 0;
  Held held_;
};

class PageSender final : public StreamSender {
public:
  PageSender(LoopProcess& process, const Spec& spec, ProcessStats& stats,
             std::unique_ptr<memory::PagePool> pool, SourceId source)
      : StreamSender(process, spec, stats),
        pool_(std::move(pool)),
        layout_(spec.size, spec.page),
        source_(source) {}

private:
  bool next(Message& message) override {
    const memory::Loan page = pool_->take();
    if (!page) return false;
    const auto size = static_cast<std::uint32_t>(layout_.page());
    fill_records({page.data(), size}, layout_, event_, source_, spec_.checksum);
    event_ += layout_.records;
    message.extents[0] = page.freeze(0, size);
    message.count = 1;
    return true;
  }

  std::unique_ptr<memory::PagePool> pool_;
  PageLayout layout_;
  SourceId source_;
  EventNumber event_ = 0;
};

class BlockSender final : public StreamSender {
public:
  BlockSender(LoopProcess& process, const Spec& spec, ProcessStats& stats,
              std::unique_ptr<memory::PagePool> pool, std::unique_ptr<memory::PagePool> metadata,
              std::uint32_t batch_events, SourceId source)
      : StreamSender(process, spec, stats),
        batch_events_(batch_events),
        pool_(std::move(pool)),
        metadata_pool_(std::move(metadata)),
        emulator_({.source = source, .size = source::FixedSize{spec.size}}),
        queue_({.source = source,
                .window = 1U << 16,
                .fragment_max = spec.size + 1,
                .checksum = spec.checksum},
               *pool_) {
    queue_.start(0);
    (void)emulator_.start(0, process_.loop().now());
  }

private:
  // Reads on demand, as a readout unit does.
  bool produce() override {
    if (has_message()) return false;
    return emulator_.read(queue_, process_.loop().now()).state == source::ReadState::more;
  }
  [[nodiscard]] EventNumber end() const {
    return std::min(queue_.next_event(), cursor_.event + batch_events_);
  }
  [[nodiscard]] bool has_message() const {
    return end() > cursor_.event &&
           (end() - cursor_.event == batch_events_ ||
            queue_.position(end()) - queue_.position(cursor_.event) >= spec_.page);
  }

  bool next(Message& message) override {
    if (!has_message()) return false;
    wire::DataBlockHeader header;
    const auto head_max =
        static_cast<std::uint32_t>(sizeof header + batch_events_ * sizeof(wire::FragmentEntry));
    if (!metadata_ || metadata_.size() - metadata_filled_ < head_max) {
      metadata_ = metadata_pool_->take();
      metadata_filled_ = 0;
      if (!metadata_) return false;
    }
    std::byte* head = metadata_.data() + metadata_filled_;
    auto* table = reinterpret_cast<wire::FragmentEntry*>(head + sizeof header);
    const auto piece = queue_.cut(cursor_, end(), static_cast<std::uint32_t>(spec_.page),
                                  static_cast<std::uint32_t>(end() - cursor_.event), table);
    queue_.release_until(cursor_.event);
    header.batch_first = header.first_event = piece.range.first;
    header.batch_events = header.entries = static_cast<std::uint32_t>(piece.range.count());
    header.source = queue_.options().source;
    header.payload_size = piece.payload.size;
    std::memcpy(head, &header, sizeof header);
    const auto head_size =
        static_cast<std::uint32_t>(sizeof header + header.entries * sizeof(wire::FragmentEntry));
    wire::seal_data_block({head, head_size}, spec_.checksum);
    message.extents = {metadata_.freeze(metadata_filled_, head_size), piece.payload};
    message.count = 2;
    metadata_filled_ += head_size;
    return true;
  }

  std::uint32_t batch_events_; // of a message, at most
  std::unique_ptr<memory::PagePool> pool_;
  std::unique_ptr<memory::PagePool> metadata_pool_;
  source::Emulator emulator_;
  source::FragmentQueue queue_;
  source::Cursor cursor_;
  memory::Loan metadata_;
  std::uint32_t metadata_filled_ = 0;
};

// Records of a message; 0: damaged.
using Walk = std::function<std::uint32_t(const net::Event&, bool checksum)>;

std::uint32_t walk_page(const net::Event& event, bool checksum) {
  return walk_records(event.message.bytes(), checksum);
}

std::uint32_t walk_block(const net::Event& event, bool checksum) {
  const auto block = wire::decode_data_block(event.message.bytes(), event.rest.bytes());
  if (!block) return 0;
  const std::byte* at = block->payload.data();
  for (const wire::FragmentEntry& entry : block->table) {
    if (checksum && wire::crc32c({at, entry.size()}) != entry.crc32c) return 0;
    at += entry.size();
  }
  return block->header.entries;
}

class StreamReceiver final : public net::Handler {
public:
  StreamReceiver(LoopProcess& process, const Spec& spec, ProcessStats& stats, Walk walk)
      : process_(process), spec_(spec), stats_(stats), walk_(std::move(walk)), held_(spec.set) {}

  Result<> listen(std::unique_ptr<memory::PagePool> pool) {
    pool_ = std::move(pool);
    auto listener = FANIN_TRY(
        process_.transport().listen(spec_.url, {.receive_pool = pool_.get(), .handler = this}));
    stats_.listens_at(process_.transport().listening_url(listener).text());
    return {};
  }
  void on_event(net::Transport&, net::Event& event) override {
    if (event.kind == net::EventKind::closed) process_.loop().stop();
    if (event.kind != net::EventKind::message) return;
    const std::uint32_t records = walk_(event, spec_.checksum);
    damaged_ = damaged_ || records == 0;
    if (damaged_) process_.loop().stop();
    stats_.messages.add(records);
    stats_.bytes.add(std::uint64_t{records} * spec_.size);
    const std::uint64_t size = std::uint64_t{event.message.size} + event.rest.size;
    held_.add({{std::move(event.message), std::move(event.rest)}, 2}, size);
  }
  [[nodiscard]] bool damaged() const { return damaged_; }

private:
  LoopProcess& process_;
  const Spec& spec_;
  ProcessStats& stats_;
  Walk walk_;
  std::unique_ptr<memory::PagePool> pool_;
  Held held_;
  bool damaged_ = false;
};

Result<> receive(const Spec& spec, const Walk& walk, std::uint64_t largest, ProcessStats& stats) {
  auto process = FANIN_TRY(LoopProcess::make(spec.url, spec.wait));
  // Each message fills at least half a page; two pages of each connection may be begun.
  const std::uint32_t page = 2 * round_up(largest);
  auto pool =
      FANIN_TRY(make_pool(page, 2 * spec.set + (4 + 4 * spec.senders) * std::uint64_t{page}));
  StreamReceiver receiver{*process, spec, stats, walk};
  FANIN_TRY(receiver.listen(std::move(pool)));
  process->loop().run();
  return fail(ErrorKind::disconnected, receiver.damaged() ? "damaged message" : "a sender is gone");
}

using MakeSender = std::function<Result<std::unique_ptr<StreamSender>>(
    LoopProcess&, const Spec&, ProcessStats&, std::size_t index)>;

Result<> send(const Spec& spec, const std::vector<std::string>& addresses, const MakeSender& make,
              std::size_t index, ProcessStats& stats) {
  auto process = FANIN_TRY(LoopProcess::make(spec.url, spec.wait));
  auto sender = FANIN_TRY(make(*process, spec, stats, index));
  FANIN_TRY(sender->connect(addresses));
  process->loop().run();
  return fail(ErrorKind::disconnected, "a receiver is gone");
}

// `largest`: bytes of a message.
Ends stream_ends(const Spec& spec, const MakeSender& make, const Walk& walk,
                 std::uint64_t largest) {
  Ends ends;
  ends.listeners = spec.receivers;
  ends.connectors = spec.senders;
  ends.listen = [=](std::size_t, ProcessStats& stats) {
    return receive(spec, walk, largest, stats);
  };
  ends.connect = [=](std::size_t index, const std::vector<std::string>& addresses,
                     ProcessStats& stats) { return send(spec, addresses, make, index, stats); };
  return ends;
}

// What a sender has under way, beside its last page or pages.
std::uint64_t sent_bytes(const Spec& spec) { return spec.set + (8U << 20) * spec.receivers; }

} // namespace

Ends page_stream_ends(const Spec& spec) {
  const std::uint64_t size = PageLayout{spec.size, spec.page}.page();
  const MakeSender make = [size](LoopProcess& process, const Spec& own, ProcessStats& stats,
                                 std::size_t index) -> Result<std::unique_ptr<StreamSender>> {
    auto pool = FANIN_TRY(
        make_pool(round_up(size), sent_bytes(own) + 4 * size, process.transport().shares_memory()));
    return std::make_unique<PageSender>(process, own, stats, std::move(pool),
                                        static_cast<SourceId>(index));
  };
  return stream_ends(spec, make, walk_page, size);
}

Ends block_stream_ends(const Spec& spec, std::uint32_t source_page, std::uint32_t batch_events) {
  const std::uint64_t head =
      sizeof(wire::DataBlockHeader) + batch_events * sizeof(wire::FragmentEntry);
  const MakeSender make = [=](LoopProcess& process, const Spec& own, ProcessStats& stats,
                              std::size_t index) -> Result<std::unique_ptr<StreamSender>> {
    const bool shared = process.transport().shares_memory();
    auto pool =
        FANIN_TRY(make_pool(source_page, sent_bytes(own) + 8 * std::uint64_t{source_page}, shared));
    auto metadata = FANIN_TRY(make_pool(256U << 10, 16U << 20, shared));
    return std::make_unique<BlockSender>(process, own, stats, std::move(pool), std::move(metadata),
                                         batch_events, static_cast<SourceId>(index + 1));
  };
  return stream_ends(spec, make, walk_block, spec.page + head);
}

} // namespace fanin::bench
