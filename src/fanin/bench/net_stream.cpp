#include "fanin/bench/net_stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
    queue_.push_back({std::move(message), bytes});
    bytes_ += bytes;
    while (bytes_ > bytes_max_ && head_ < queue_.size()) {
      bytes_ -= queue_[head_].second;
      queue_[head_++].first = {};
    }
    if (head_ * 2 < queue_.size() || head_ < 64) return;
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }

private:
  std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 0;
  std::size_t head_ = 0;
  std::vector<std::pair<Message, std::uint64_t>> queue_;
};

// Offers message after message to its connections in turn; one that is full is skipped.
class StreamSender : public net::Handler, public net::Service {
public:
  StreamSender(LoopProcess& process, const StreamOptions& options, ProcessStats& stats,
               std::uint64_t held_bytes)
      : process_(process), options_(options), stats_(stats), held_(held_bytes) {}

  Result<> connect(const std::vector<net::Url>& urls) {
    auto pool = make_pool(stream_control_page, stream_control_page * 8);
    if (!pool) return std::unexpected(pool.error());
    control_pool_ = std::move(*pool);
    for (const auto& url : urls) {
      auto id =
          process_.transport().connect(url, {.receive_pool = control_pool_.get(), .handler = this});
      if (!id) return std::unexpected(id.error());
      peers_.push_back({.link = {&process_.transport(), *id}});
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
  const StreamOptions& options_;
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
  PageSender(LoopProcess& process, const StreamOptions& options, ProcessStats& stats,
             std::unique_ptr<memory::PagePool> pool, SourceId source)
      : StreamSender(process, options, stats, options.send_set),
        pool_(std::move(pool)),
        layout_(options.size, options.message),
        source_(source) {}

private:
  bool next(Message& message) override {
    const memory::Loan page = pool_->take();
    if (!page) return false;
    const auto size = static_cast<std::uint32_t>(layout_.page());
    fill_records({page.data(), size}, layout_, event_, source_, options_.checksum);
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
  BlockSender(LoopProcess& process, const StreamOptions& options, ProcessStats& stats,
              std::unique_ptr<memory::PagePool> pool, std::unique_ptr<memory::PagePool> metadata,
              SourceId source)
      : StreamSender(process, options, stats, options.send_set),
        pool_(std::move(pool)),
        metadata_pool_(std::move(metadata)),
        emulator_({.source = source, .size = source::FixedSize{options.size}}),
        queue_({.source = source,
                .window = 1U << 16,
                .fragment_max = options.size + 1,
                .checksum = options.checksum},
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
    return std::min(queue_.next_event(), cursor_.event + options_.batch_events);
  }
  [[nodiscard]] bool has_message() const {
    return end() > cursor_.event &&
           (end() - cursor_.event == options_.batch_events ||
            queue_.position(end()) - queue_.position(cursor_.event) >= options_.message);
  }

  bool next(Message& message) override {
    if (!has_message()) return false;
    wire::DataBlockHeader header;
    const auto head_max = static_cast<std::uint32_t>(
        sizeof header + options_.batch_events * sizeof(wire::FragmentEntry));
    if (!metadata_ || metadata_.size() - metadata_filled_ < head_max) {
      metadata_ = metadata_pool_->take();
      metadata_filled_ = 0;
      if (!metadata_) return false;
    }
    std::byte* head = metadata_.data() + metadata_filled_;
    auto* table = reinterpret_cast<wire::FragmentEntry*>(head + sizeof header);
    const auto piece = queue_.cut(cursor_, end(), static_cast<std::uint32_t>(options_.message),
                                  static_cast<std::uint32_t>(end() - cursor_.event), table);
    queue_.release_until(cursor_.event);
    header.batch_first = header.first_event = piece.range.first;
    header.batch_events = header.entries = static_cast<std::uint32_t>(piece.range.count());
    header.source = queue_.options().source;
    header.payload_size = piece.payload.size;
    std::memcpy(head, &header, sizeof header);
    const auto head_size =
        static_cast<std::uint32_t>(sizeof header + header.entries * sizeof(wire::FragmentEntry));
    wire::seal_data_block({head, head_size}, options_.checksum);
    message.extents = {metadata_.freeze(metadata_filled_, head_size), piece.payload};
    message.count = 2;
    metadata_filled_ += head_size;
    return true;
  }

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
  StreamReceiver(LoopProcess& process, const StreamOptions& options, ProcessStats& stats, Walk walk)
      : process_(process),
        options_(options),
        stats_(stats),
        walk_(std::move(walk)),
        held_(options.receive_set) {}

  Result<> listen(std::unique_ptr<memory::PagePool> pool) {
    pool_ = std::move(pool);
    auto listener =
        process_.transport().listen(options_.url, {.receive_pool = pool_.get(), .handler = this});
    if (!listener) return std::unexpected(listener.error());
    stats_.say(process_.transport().listening_url(*listener).text());
    stats_.state = ProcessStats::State::ready;
    return {};
  }
  void on_event(net::Transport&, net::Event& event) override {
    if (event.kind == net::EventKind::closed) process_.loop().stop();
    if (event.kind != net::EventKind::message) return;
    const std::uint32_t records = walk_(event, options_.checksum);
    damaged_ = damaged_ || records == 0;
    if (damaged_) process_.loop().stop();
    stats_.messages.add(records);
    stats_.bytes.add(std::uint64_t{records} * options_.size);
    const std::uint64_t size = std::uint64_t{event.message.size} + event.rest.size;
    held_.add({{std::move(event.message), std::move(event.rest)}, 2}, size);
  }
  [[nodiscard]] bool damaged() const { return damaged_; }

private:
  LoopProcess& process_;
  const StreamOptions& options_;
  ProcessStats& stats_;
  Walk walk_;
  std::unique_ptr<memory::PagePool> pool_;
  Held held_;
  bool damaged_ = false;
};

Result<> receive(const StreamOptions& options, const Walk& walk, std::uint64_t largest,
                 ProcessStats& stats) {
  auto process = LoopProcess::make(options.url, options.wait);
  if (!process) return std::unexpected(process.error());
  // Each message fills at least half a page; two pages of each connection may be begun.
  const std::uint32_t page = 2 * round_up(largest);
  auto pool =
      make_pool(page, 2 * options.receive_set + (4 + 4 * options.senders) * std::uint64_t{page});
  if (!pool) return std::unexpected(pool.error());
  StreamReceiver receiver{**process, options, stats, walk};
  if (auto listening = receiver.listen(std::move(*pool)); !listening) return listening;
  (*process)->loop().run();
  return fail(ErrorKind::disconnected, receiver.damaged() ? "damaged message" : "a sender is gone");
}

using MakeSender = std::function<Result<std::unique_ptr<StreamSender>>(LoopProcess&, ProcessStats&,
                                                                       std::size_t index)>;

Result<> send(const StreamOptions& options, const std::vector<net::Url>& urls,
              const MakeSender& make, std::size_t index, ProcessStats& stats) {
  auto process = LoopProcess::make(options.url, options.wait);
  if (!process) return std::unexpected(process.error());
  auto sender = make(**process, stats, index);
  if (!sender) return std::unexpected(sender.error());
  if (auto connecting = (*sender)->connect(urls); !connecting) return connecting;
  (*process)->loop().run();
  return fail(ErrorKind::disconnected, "a receiver is gone");
}

Result<Sample> run_stream(const StreamOptions& options, const MakeSender& make, const Walk& walk,
                          std::uint64_t largest) {
  ProcessGroup group;
  std::vector<net::Url> urls;
  for (std::size_t i = 0; i < options.receivers; ++i) {
    auto started = group.start("receiver" + std::to_string(i), [&](ProcessStats& stats) {
      return receive(options, walk, largest, stats);
    });
    if (!started) return std::unexpected(started.error());
    if (auto ready = group.wait_until_ready(*started); !ready)
      return std::unexpected(ready.error());
    auto url = net::Url::parse(group.stats(*started).text.data());
    if (!url) return std::unexpected(url.error());
    urls.push_back(*url);
  }
  for (std::size_t i = 0; i < options.senders; ++i) {
    auto started = group.start("sender" + std::to_string(i), [&](ProcessStats& stats) {
      return send(options, urls, make, i, stats);
    });
    if (!started) return std::unexpected(started.error());
  }
  return group.measure(options.warmup, options.duration); // and ends them
}

} // namespace

Result<Sample> run_page_stream(const StreamOptions& options) {
  const std::uint64_t size = PageLayout{options.size, options.message}.page();
  const MakeSender make = [&](LoopProcess& process, ProcessStats& stats,
                              std::size_t index) -> Result<std::unique_ptr<StreamSender>> {
    auto pool =
        make_pool(round_up(size), options.send_set + (8U << 20) * options.receivers + 4 * size,
                  process.transport().shares_memory());
    if (!pool) return std::unexpected(pool.error());
    return std::make_unique<PageSender>(process, options, stats, std::move(*pool),
                                        static_cast<SourceId>(index));
  };
  return run_stream(options, make, walk_page, size);
}

Result<Sample> run_block_stream(const StreamOptions& options) {
  const std::uint64_t head =
      sizeof(wire::DataBlockHeader) + options.batch_events * sizeof(wire::FragmentEntry);
  const MakeSender make = [&](LoopProcess& process, ProcessStats& stats,
                              std::size_t index) -> Result<std::unique_ptr<StreamSender>> {
    auto pool = make_pool(options.source_page,
                          options.send_set + (8U << 20) * options.receivers +
                              8 * std::uint64_t{options.source_page},
                          process.transport().shares_memory());
    if (!pool) return std::unexpected(pool.error());
    auto metadata = make_pool(256U << 10, 16U << 20, process.transport().shares_memory());
    if (!metadata) return std::unexpected(metadata.error());
    return std::make_unique<BlockSender>(process, options, stats, std::move(*pool),
                                         std::move(*metadata), static_cast<SourceId>(index + 1));
  };
  return run_stream(options, make, walk_block, options.message + head);
}

} // namespace fanin::bench
