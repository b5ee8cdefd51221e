#include "fanin/bench/contender_ends.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
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

class ShapedSender final : public net::Handler, public net::Service {
public:
  ShapedSender(LoopProcess& process, const Spec& spec, std::size_t index, ProcessStats& stats)
      : process_(process),
        layout_(carrier_layout(spec)),
        source_(static_cast<SourceId>(index)),
        stats_(stats),
        peers_(spec.receivers * spec.rails) {
    for (std::size_t rail = 0; rail < spec.rails; ++rail) {
      schedules_.emplace_back(spec.shaping.per_rail(spec.rails), spec.senders, spec.receivers,
                              static_cast<NodeId>(index), index + rail);
    }
  }

  Result<> connect(const Spec& spec, const std::vector<std::string>& addresses) {
    const std::uint64_t page = layout_.page();
    const std::uint64_t under_way = spec.shaping.window * spec.receivers / spec.senders;
    pool_ = FANIN_TRY(make_pool(static_cast<std::uint32_t>((page + 4095) / 4096 * 4096),
                                under_way + (carriers_unread + peers_.size()) * (page + 4096),
                                process_.transport().shares_memory()));
    control_pool_ = FANIN_TRY(make_pool(grant_page, grant_page * (2 * peers_.size() + 2)));
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      auto url = FANIN_TRY(net::Url::parse(addresses[i]));
      url.options = spec.url.options;
      const auto id = FANIN_TRY(process_.transport().connect(
          url, {.receive_pool = control_pool_.get(), .handler = this}));
      peers_[i].link = {&process_.transport(), id};
    }
    process_.loop().add(*this);
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
      return process_.loop().stop();
    }
    case net::EventKind::closed: return process_.loop().stop();
    case net::EventKind::accepted: break;
    }
  }

  // One carrier after the other, to whom the schedules say.
  bool poll() override {
    const Time now = process_.loop().now();
    bool any = false;
    Time wake = never;
    for (std::size_t rail = 0; rail < schedules_.size(); ++rail) {
      any = send_over(rail, now) || any;
      wake = std::min(wake, schedules_[rail].wake());
    }
    tick_.set(process_.loop(), wake);
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
    ControlBatcher first{peers_[index].link, *control_pool_};
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
    const memory::Loan page = pool_->take();
    if (!page) return false;
    const auto size = static_cast<std::uint32_t>(layout_.page());
    fill_records({page.data(), size}, layout_, event_, source_, true);
    event_ += layout_.records;
    message_ = page.freeze(0, size);
    return true;
  }

  LoopProcess& process_;
  const PageLayout layout_;
  const SourceId source_;
  ProcessStats& stats_;
  std::vector<Schedule> schedules_; // by rail
  std::unique_ptr<memory::PagePool> pool_;
  std::unique_ptr<memory::PagePool> control_pool_;
  std::vector<Peer> peers_; // each receiver over each rail
  memory::View message_; // the next carrier, for whoever comes next
  EventNumber event_ = 0;
  net::Timer tick_; // poll() follows
};

class ShapedReceiver final : public net::Handler, public net::Service {
public:
  ShapedReceiver(LoopProcess& process, const Spec& spec, ProcessStats& stats)
      : process_(process),
        stats_(stats),
        grants_(spec.shaping.per_rail(spec.rails), spec.senders, false),
        senders_(spec.senders) {}

  Result<> listen(const Spec& spec) {
    const std::uint32_t page = (2 * spec.shaping.carrier + 4095) / 4096 * 4096;
    pool_ = FANIN_TRY(make_pool(page, (carriers_unread * spec.senders + 4) * std::uint64_t{page}));
    control_pool_ = FANIN_TRY(make_pool(grant_page, grant_page * (2 * spec.senders + 2),
                                        process_.transport().shares_memory()));
    const auto listener =
        FANIN_TRY(process_.transport().listen(spec.url, {.receive_pool = pool_.get(),
                                                         .handler = this,
                                                         .max_message = spec.shaping.carrier,
                                                         .urgent = true}));
    process_.loop().add(*this);
    stats_.listens_at(process_.transport().listening_url(listener).text());
    return {};
  }

  void on_event(net::Transport& transport, net::Event& event) override {
    if (event.kind == net::EventKind::closed) return process_.loop().stop();
    if (event.kind != net::EventKind::message) return;
    const auto known = owners_.find(event.connection);
    const std::string_view wrong = known == owners_.end()
                                       ? on_hello({&transport, event.connection}, event.message)
                                       : on_carrier(known->second, event.message);
    if (wrong.empty()) return;
    stats_.note(wrong);
    process_.loop().stop();
  }

  // Says what may be sent: of everybody something is always owed.
  bool poll() override {
    grants_.update(process_.loop().now(), [](NodeId) { return true; });
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
    tick_.set(process_.loop(), grants_.wake());
    return false;
  }

private:
  // Both: empty, or what is wrong.
  std::string_view on_hello(net::Link link, const memory::View& page) {
    const auto hello = message_in<wire::Hello>(page);
    if (!hello || hello->node >= senders_.size() || senders_[hello->node]) return "no good hello";
    link.mark_identified();
    owners_[link.id] = hello->node;
    senders_[hello->node] = ControlBatcher{link, *control_pool_};
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

  LoopProcess& process_;
  ProcessStats& stats_;
  Grants grants_;
  std::unique_ptr<memory::PagePool> pool_;
  std::unique_ptr<memory::PagePool> control_pool_;
  std::vector<ControlBatcher> senders_;
  std::map<net::ConnectionId, NodeId> owners_;
  std::vector<NodeId> granting_; // grants to them have not left
  net::Timer tick_; // poll() follows
};

} // namespace

Result<Ends> shaped_nxn_ends(const Spec& spec) {
  net::TransportRegistry registry;
  net::add_built_in_transports(registry);
  if (registry.find(spec.url.scheme) == nullptr || spec.url.scheme == "inproc") {
    return fail(
        ErrorKind::unsupported,
        fmt::format("{}: shaping is measured between processes: take tcp or shm", spec.url.text()));
  }
  if (carrier_layout(spec).page() > spec.shaping.carrier) {
    return fail(ErrorKind::usage,
                fmt::format("a message of {} does not fit into a carrier of {}",
                            format_size(spec.size), format_size(spec.shaping.carrier)));
  }
  Ends ends;
  ends.listeners = spec.receivers * spec.rails;
  ends.connectors = spec.senders;
  ends.listen = [spec](std::size_t, ProcessStats& stats) -> Result<> {
    auto process = FANIN_TRY(LoopProcess::make(spec.url, spec.wait));
    ShapedReceiver receiver{*process, spec, stats};
    FANIN_TRY(receiver.listen(spec));
    process->loop().run();
    return fail(ErrorKind::disconnected, "a sender is gone");
  };
  ends.connect = [spec](std::size_t index, const std::vector<std::string>& addresses,
                        ProcessStats& stats) -> Result<> {
    auto process = FANIN_TRY(LoopProcess::make(spec.url, spec.wait));
    ShapedSender sender{*process, spec, index, stats};
    FANIN_TRY(sender.connect(spec, addresses));
    process->loop().run();
    return fail(ErrorKind::disconnected, "a receiver is gone");
  };
  return ends;
}

} // namespace fanin::bench
