#include "fanin/bench/shaped_nxn.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/bench/contender_ends.hpp"
#include "fanin/bench/loop_process.hpp"
#include "fanin/bench/record.hpp"
#include "fanin/builder/control/control_batcher.hpp"
#include "fanin/builder/shaping/grants.hpp"
#include "fanin/builder/shaping/schedule.hpp"
#include "fanin/net/registry.hpp"

namespace fanin::bench {
namespace {

using builder::ControlBatcher;
using builder::shaping::Grants;
using builder::shaping::Schedule;

constexpr std::uint32_t grant_page = 64U << 10;
constexpr std::uint64_t carriers_unread = 4; // that a receiver has room for, of each sender

PageLayout carrier_layout(const Spec& spec) { return {spec.size, spec.shaping.carrier}; }

std::uint32_t rounded(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + 4095) / 4096 * 4096);
}

Result<std::unique_ptr<memory::PagePool>> pool_of(std::uint32_t page, std::uint64_t bytes,
                                                  memory::ArenaOptions arena, bool shared) {
  arena.shared = shared;
  const auto pages = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, bytes / page));
  return memory::PagePool::make({.page_size = page, .pages = pages, .arena = arena});
}

// The one message of type T in a page, or nothing.
template <class T>
std::optional<T> message_in(const memory::View& page) {
  T message;
  const bool good = builder::for_each_message(
      page.bytes(), [&](wire::MessageType type, std::span<const std::byte> body) {
        wire::MessageReader reader{body};
        return type == T::type && reader.read(message);
      });
  return good ? std::optional{message} : std::nullopt;
}

class ShapedSender final : public Role, public net::Handler, public net::Service {
public:
  ShapedSender(ShapedPlace place, const Spec& spec, std::size_t index, ProcessStats& stats)
      : place_(place),
        layout_(carrier_layout(spec)),
        source_(static_cast<SourceId>(index)),
        stats_(stats),
        peers_(spec.receivers * spec.rails) {
    for (std::size_t rail = 0; rail < spec.rails; ++rail) {
      schedules_.emplace_back(spec.shaping.per_rail(spec.rails), spec.senders, spec.receivers,
                              static_cast<NodeId>(index), index + rail);
    }
    place_.loop.add(*this);
  }
  ~ShapedSender() override { place_.loop.remove(*this); }

  Result<> connect(const std::vector<net::Url>& urls) {
    for (std::size_t i = 0; i < urls.size(); ++i) {
      const auto id = FANIN_TRY(place_.transport.connect(
          urls[i], {.receive_pool = place_.pools.control.get(), .handler = this}));
      peers_[i].link = {&place_.transport, id};
    }
    return {};
  }

  void on_event(net::Transport&, net::Event& event) override {
    const auto found =
        std::ranges::find(peers_, event.connection, [](const Peer& peer) { return peer.link.id; });
    const auto peer = static_cast<std::size_t>(found - peers_.begin());
    const auto node = static_cast<NodeId>(peer / schedules_.size());
    Schedule& schedule = schedules_[peer % schedules_.size()];
    switch (event.kind) {
    case net::EventKind::connected: return say_hello(peer);
    case net::EventKind::writable:
      if (!found->open) return say_hello(peer);
      return schedule.set_full(node, false);
    case net::EventKind::message: {
      const auto grant = message_in<wire::Grant>(event.message);
      if (grant && schedule.granted(node, grant->bytes)) return;
      stats_.note("an invalid grant");
      return place_.loop.stop();
    }
    case net::EventKind::closed: return place_.loop.stop();
    case net::EventKind::accepted: break;
    }
  }

  // One carrier after the other, to whom the schedules say.
  bool poll() override {
    const Time now = place_.loop.now();
    bool any = false;
    Time wake = never;
    for (std::size_t rail = 0; rail < schedules_.size(); ++rail) {
      any = send_over(rail, now) || any;
      wake = std::min(wake, schedules_[rail].wake());
    }
    tick_.set(place_.loop, wake);
    return any;
  }

private:
  bool send_over(std::size_t rail, Time now) {
    Schedule& schedule = schedules_[rail];
    bool any = false;
    while (const auto node = schedule.next(now)) {
      if (message_.size == 0 && !fill()) break;
      const std::array extents{message_};
      Peer& peer = peers_[*node * schedules_.size() + rail];
      if (peer.link.send(extents) != net::SendOutcome::accepted) {
        schedule.set_full(*node, true);
        continue;
      }
      message_ = {};
      schedule.sent(*node, layout_.page(), true);
      schedule.set_waiting(*node, layout_.page()); // as always
      schedule.carried(*node, now);
      any = true;
    }
    return any;
  }

  struct Peer {
    net::Link link;
    bool open = false; // the hello has left
  };

  void say_hello(std::size_t index) {
    wire::Hello hello;
    hello.role = wire::Role::data;
    hello.node = static_cast<NodeId>(source_);
    ControlBatcher first{peers_[index].link, *place_.pools.control};
    first.append(hello);
    first.flush();
    if (first.failed() || !first.sent()) return; // again when it is writable
    peers_[index].open = true;
    stats_.state = ProcessStats::State::ready;
    const auto node = static_cast<NodeId>(index / schedules_.size());
    Schedule& schedule = schedules_[index % schedules_.size()];
    schedule.opened(node);
    schedule.set_waiting(node, layout_.page());
  }

  // False: no page is free, since all are under way.
  bool fill() {
    const memory::Loan page = place_.pools.data->take();
    if (!page) return false;
    const auto size = static_cast<std::uint32_t>(layout_.page());
    fill_records({page.data(), size}, layout_, event_, source_, true);
    event_ += layout_.records;
    message_ = page.freeze(0, size);
    return true;
  }

  ShapedPlace place_;
  const PageLayout layout_;
  const SourceId source_;
  ProcessStats& stats_;
  std::vector<Schedule> schedules_; // by rail
  std::vector<Peer> peers_; // each receiver over each rail
  memory::View message_; // the next carrier, for whoever comes next
  EventNumber event_ = 0;
  net::Timer tick_; // poll() follows
};

class ShapedReceiver final : public Role, public net::Handler, public net::Service {
public:
  ShapedReceiver(ShapedPlace place, const Spec& spec, ProcessStats& stats)
      : place_(place),
        stats_(stats),
        carrier_(spec.shaping.carrier),
        grants_(spec.shaping.per_rail(spec.rails), spec.senders, false),
        senders_(spec.senders) {
    place_.loop.add(*this);
  }
  ~ShapedReceiver() override { place_.loop.remove(*this); }

  Result<> listen(net::Url& url) {
    const auto listener =
        FANIN_TRY(place_.transport.listen(url, {.receive_pool = place_.pools.data.get(),
                                                .handler = this,
                                                .max_message = carrier_,
                                                .urgent = true}));
    url = place_.transport.listening_url(listener);
    return {};
  }

  void on_event(net::Transport& transport, net::Event& event) override {
    if (event.kind == net::EventKind::closed) return place_.loop.stop();
    if (event.kind != net::EventKind::message) return;
    const auto known = owners_.find(event.connection);
    const std::string_view wrong = known == owners_.end()
                                       ? on_hello({&transport, event.connection}, event.message)
                                       : on_carrier(known->second, event.message);
    if (wrong.empty()) return;
    stats_.note(wrong);
    place_.loop.stop();
  }

  // Says what may be sent: of everybody something is always owed.
  bool poll() override {
    grants_.update(place_.loop.now(), [](NodeId) { return true; });
    for (std::size_t i = 0; i < grants_.unsent().size();) {
      const NodeId node = grants_.unsent()[i];
      if (!senders_[node].roomy()) {
        ++i;
        continue;
      }
      wire::Grant grant;
      grant.bytes = grants_.take(node); // it is no longer among them
      senders_[node].append(grant);
      granting_.push_back(node);
    }
    std::erase_if(granting_, [this](NodeId node) {
      senders_[node].flush();
      return senders_[node].is_idle();
    });
    tick_.set(place_.loop, grants_.wake());
    return false;
  }

private:
  // Both: empty, or what is wrong.
  std::string_view on_hello(net::Link link, const memory::View& page) {
    const auto hello = message_in<wire::Hello>(page);
    if (!hello || hello->node >= senders_.size() || senders_[hello->node]) return "no good hello";
    link.mark_identified();
    owners_[link.id] = hello->node;
    senders_[hello->node] = ControlBatcher{link, *place_.pools.control};
    grants_.opened(hello->node);
    return {};
  }
  std::string_view on_carrier(NodeId node, const memory::View& message) {
    if (!grants_.received(node, message.size)) return "more data than it was granted";
    grants_.carrier_filled(node);
    const std::uint32_t records = walk_records(message.bytes(), true);
    if (records == 0) return "a damaged record";
    stats_.messages.add(records);
    stats_.bytes.add(message.size - records * sizeof(RecordHeader));
    return {};
  }

  ShapedPlace place_;
  ProcessStats& stats_;
  const std::uint32_t carrier_;
  Grants grants_;
  std::vector<ControlBatcher> senders_;
  std::map<net::ConnectionId, NodeId> owners_;
  std::vector<NodeId> granting_; // grants to them have not left
  net::Timer tick_; // poll() follows
};

} // namespace

Result<ShapedPools> ShapedPools::of_sender(const Spec& spec, memory::ArenaOptions arena,
                                           bool shares_memory) {
  const std::uint64_t peers = spec.receivers * spec.rails;
  const std::uint64_t page = carrier_layout(spec).page();
  const std::uint64_t under_way = spec.shaping.window * spec.receivers / spec.senders;
  ShapedPools pools;
  pools.data = FANIN_TRY(pool_of(
      rounded(page), under_way + (carriers_unread + peers) * (page + 4096), arena, shares_memory));
  pools.control = FANIN_TRY(pool_of(grant_page, grant_page * (2 * peers + 2), arena, false));
  return pools;
}

Result<ShapedPools> ShapedPools::of_receiver(const Spec& spec, memory::ArenaOptions arena,
                                             bool shares_memory) {
  const std::uint32_t page = rounded(2 * std::uint64_t{spec.shaping.carrier});
  ShapedPools pools;
  pools.data = FANIN_TRY(
      pool_of(page, (carriers_unread * spec.senders + 4) * std::uint64_t{page}, arena, false));
  pools.control =
      FANIN_TRY(pool_of(grant_page, grant_page * (2 * spec.senders + 2), arena, shares_memory));
  return pools;
}

Result<> check_shaped(const Spec& spec) {
  if (carrier_layout(spec).page() <= spec.shaping.carrier) return {};
  return fail(ErrorKind::usage,
              fmt::format("a message of {} does not fit into a carrier of {}",
                          format_size(spec.size), format_size(spec.shaping.carrier)));
}

MadeRole shaped_receiver(ShapedPlace place, const Spec& spec, net::Url& url, ProcessStats& stats) {
  auto receiver = std::make_unique<ShapedReceiver>(place, spec, stats);
  FANIN_TRY(receiver->listen(url));
  return receiver;
}

MadeRole shaped_sender(ShapedPlace place, const Spec& spec, std::size_t index,
                       const std::vector<net::Url>& urls, ProcessStats& stats) {
  auto sender = std::make_unique<ShapedSender>(place, spec, index, stats);
  FANIN_TRY(sender->connect(urls));
  return sender;
}

Result<Ends> shaped_nxn_ends(const Spec& spec) {
  net::TransportRegistry registry;
  net::add_built_in_transports(registry);
  if (registry.find(spec.url.scheme) == nullptr || spec.url.scheme == "inproc") {
    return fail(
        ErrorKind::unsupported,
        fmt::format("{}: shaping is measured between processes: take tcp or shm", spec.url.text()));
  }
  FANIN_TRY(check_shaped(spec));
  Ends ends;
  ends.listeners = spec.receivers * spec.rails;
  ends.connectors = spec.senders;
  ends.listen = [spec](std::size_t, ProcessStats& stats) -> Result<> {
    auto process = FANIN_TRY(LoopProcess::make(spec.url, spec.wait));
    auto pools =
        FANIN_TRY(ShapedPools::of_receiver(spec, {}, process->transport().shares_memory()));
    net::Url url = spec.url;
    const auto receiver = FANIN_TRY(
        shaped_receiver({process->loop(), process->transport(), pools}, spec, url, stats));
    stats.listens_at(url.text());
    process->loop().run();
    return fail(ErrorKind::disconnected, "a sender is gone");
  };
  ends.connect = [spec](std::size_t index, const std::vector<std::string>& addresses,
                        ProcessStats& stats) -> Result<> {
    std::vector<net::Url> urls;
    for (const std::string& address : addresses) {
      urls.push_back(FANIN_TRY(net::Url::parse(address)));
      urls.back().options = spec.url.options;
    }
    auto process = FANIN_TRY(LoopProcess::make(spec.url, spec.wait));
    auto pools = FANIN_TRY(ShapedPools::of_sender(spec, {}, process->transport().shares_memory()));
    const auto sender = FANIN_TRY(
        shaped_sender({process->loop(), process->transport(), pools}, spec, index, urls, stats));
    process->loop().run();
    return fail(ErrorKind::disconnected, "a receiver is gone");
  };
  return ends;
}

} // namespace fanin::bench
