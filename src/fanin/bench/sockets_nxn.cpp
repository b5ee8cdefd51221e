// N senders to M receivers in turn, through fanin's high-throughput sockets. A message is one
// record or many (record.hpp), filled and checked as event building does.
#include <algorithm>
#include <optional>
#include <utility>

#include "fanin/base/try.hpp"
#include "fanin/bench/record.hpp"
#include "fanin/bench/sockets_process.hpp"

namespace fanin::bench {
namespace {

constexpr std::uint64_t view_from = 4096; // bytes; smaller messages are gathered by copying

PageLayout layout_of(const Spec& spec) {
  return {spec.size, spec.records * (sizeof(RecordHeader) + std::uint64_t{spec.size})};
}

Found walked(message::Message& message) {
  const std::uint32_t records = walk_records(message.bytes(), true);
  return {.messages = records, .bytes = message.size() - records * sizeof(RecordHeader)};
}

class NxnSender final : public Role {
public:
  static MadeRole make(message::Context& context, const Spec& spec, std::size_t index,
                       const std::vector<net::Url>& urls) {
    std::unique_ptr<NxnSender> role{new NxnSender{context, spec, index}};
    NxnSender& self = *role;
    for (std::size_t i = 0; i < urls.size(); ++i) {
      auto socket = FANIN_TRY(message::HighThroughputSender::connect(
          context, urls[i],
          {.on_connected = [&self, i] { self.open(i); },
           .on_disconnected = [&context](auto) { context.stop(); },
           .on_writable = [&self, i] { self.open(i); }}));
      self.targets_.push_back({std::move(socket), false});
    }
    return role;
  }

  // Whose turn it is, or who comes next and is free.
  std::optional<net::SendOutcome> offer() {
    if (!filled_ && !fill()) return {};
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      Target& target = targets_[(turn_ + i) % targets_.size()];
      if (!target.open) continue;
      const auto outcome = view_ ? target.socket->send(*view_) : target.socket->send(scratch_);
      target.open = outcome == net::SendOutcome::accepted;
      if (!target.open) continue;
      turn_ += i + 1;
      filled_ = false;
      view_.reset();
      return outcome;
    }
    return net::SendOutcome::backpressure;
  }

private:
  struct Target {
    std::unique_ptr<message::HighThroughputSender> socket;
    bool open = false;
  };

  NxnSender(message::Context& context, const Spec& spec, std::size_t index)
      : context_(context),
        layout_(layout_of(spec)),
        source_(static_cast<SourceId>(index)),
        turn_(index),
        scratch_(layout_.page()),
        feeder_(context, layout_.page(), *this) {}

  void open(std::size_t target) {
    targets_[target].open = true;
    feeder_.open();
  }

  // In a page that is sent as it is; small messages where they are copied from. False: no page.
  bool fill() {
    std::span<std::byte> to = scratch_;
    const std::uint64_t size = scratch_.size();
    const bool in_page = size >= view_from && size <= context_.send_pool().page_size();
    if (in_page) {
      if (!page_ || page_.size() - used_ < size) {
        page_ = context_.send_pool().take();
        used_ = 0;
        if (!page_) return false;
      }
      to = {page_.data() + used_, size};
    }
    fill_records(to, layout_, event_, source_, true);
    event_ += layout_.records;
    filled_ = true;
    if (!in_page) return true;
    view_ = page_.freeze(used_, static_cast<std::uint32_t>(size));
    used_ = static_cast<std::uint32_t>((used_ + size + 7) / 8 * 8);
    used_ = std::min(used_, page_.size());
    return true;
  }

  message::Context& context_;
  PageLayout layout_;
  SourceId source_;
  std::size_t turn_;
  std::vector<std::byte> scratch_;
  memory::Loan page_;
  std::uint32_t used_ = 0;
  std::optional<memory::View> view_; // of the message that was filled; none: it is in scratch_
  bool filled_ = false;
  EventNumber event_ = 0;
  std::vector<Target> targets_;
  Feeder<NxnSender> feeder_;
};

} // namespace

Roles nxn_roles(const Spec& spec) {
  Roles roles;
  roles.listeners = spec.receivers * spec.rails;
  roles.connectors = spec.senders;
  roles.message = layout_of(spec).page();
  roles.one_page = roles.message <= (4U << 20);
  roles.listen = [](message::Context& context, std::size_t, net::Url& url, ProcessStats& stats) {
    return ReceiverRole<decltype(&walked)>::make(context, url, stats, &walked);
  };
  roles.connect = [spec](message::Context& context, std::size_t index,
                         const std::vector<net::Url>& urls,
                         ProcessStats&) { return NxnSender::make(context, spec, index, urls); };
  return roles;
}

} // namespace fanin::bench
