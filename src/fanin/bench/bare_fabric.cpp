#include "fanin/bench/peer_modules.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/payload.hpp"
#include "fanin/bench/record.hpp"
#include "fanin/bench/roundtrip.hpp"
#include "fanin/memory/arena.hpp"
#include "fanin/net/ofi/fabric.hpp"

namespace fanin::bench {
namespace {

namespace ofi = net::ofi;

constexpr int fabric_spins = 100;               // before giving the core away
constexpr std::size_t window_most = 64;  // transfers under way
constexpr std::size_t window_bytes = 4U << 20;
constexpr int reads_most = 16; // completions at once

Result<> check_connected(const Spec& spec) {
  const auto kind =
      FANIN_TRY(ofi::check_provider(spec.url.scheme.substr(spec.url.scheme.find('+') + 1)));
  if (kind == ofi::EndpointKind::connected) return {};
  return fail(ErrorKind::unsupported,
              fmt::format("{}: the bare loop has connected endpoints only", spec.url.scheme));
}

std::unexpected<Error> failed(std::string_view what, long error) {
  return fail(ErrorKind::disconnected, fmt::format("{}: {}", what, ofi::error_text(error)));
}

// What is under way: its first bytes are the provider's.
struct Slot {
  fi_context2 of_provider{};
  std::byte* bytes = nullptr;
  bool receives = false;
};

// One end: what it sends leaves slots that are taken and come back, what it receives fills others.
class Endpoint {
public:
  // `transfer`: bytes, at most. `polls`, or it blocks.
  Endpoint(std::size_t transfer, std::size_t window, bool polls)
      : transfer_(transfer), window_(window), polls_(polls) {}

  Result<> listen(const net::Url& url, ProcessStats& stats) {
    auto info = FANIN_TRY(ofi::find_endpoint(provider_of(url), url, true));
    FANIN_TRY(open_fabric(*info));
    fid_pep* endpoint = nullptr;
    long error = fi_passive_ep(fabric_->fabric.get(), info.get(), &endpoint, nullptr);
    listening_.reset(error == 0 ? endpoint : nullptr);
    if (error == 0) error = fi_pep_bind(endpoint, &fabric_->events->fid, 0);
    if (error == 0) error = fi_listen(endpoint);
    std::array<std::byte, 128> address{};
    std::size_t size = address.size();
    if (error == 0) error = fi_getname(&endpoint->fid, address.data(), &size);
    if (error != 0) return failed("listening at " + url.text(), error);
    net::Url real = url;
    ofi::put_address(real, address.data(), size);
    stats.listens_at(real.text());
    auto asked = FANIN_TRY(wait_for(FI_CONNREQ));
    FANIN_TRY(open(*asked));
    if (error = fi_accept(endpoint_.get(), nullptr, 0); error != 0) return failed("accept", error);
    return connected();
  }

  Result<> connect(const std::string& address) {
    const auto url = FANIN_TRY(net::Url::parse(address));
    auto info = FANIN_TRY(ofi::find_endpoint(provider_of(url), url, false));
    FANIN_TRY(open_fabric(*info));
    FANIN_TRY(open(*info));
    const long error = fi_connect(endpoint_.get(), info->dest_addr, nullptr, 0);
    if (error != 0) return failed("connecting to " + url.text(), error);
    return connected();
  }

  // Null: none is free.
  [[nodiscard]] Slot* take_slot() {
    if (free_.empty()) return nullptr;
    Slot* const slot = free_.back();
    free_.pop_back();
    return slot;
  }
  // False: the provider takes no more before completions are read.
  Result<bool> send(Slot& slot, std::size_t size) {
    ssize_t error = 0;
    if (size <= inject_most_) {
      error = fi_inject(endpoint_.get(), slot.bytes, size, 0);
      if (error == 0) free_.push_back(&slot);
    } else {
      error = fi_send(endpoint_.get(), slot.bytes, size, description_, 0, &slot);
    }
    if (error == -FI_EAGAIN) return false;
    if (error != 0) return failed("send", error);
    return true;
  }

  // One check: take(bytes) gets what was received. False: nothing had happened.
  template <class Take>
  Result<bool> check(Take take, int timeout_ms = 0) {
    std::array<fi_cq_msg_entry, reads_most> entries;
    const ssize_t count =
        polls_ || timeout_ms == 0
            ? fi_cq_read(completions_.get(), entries.data(), entries.size())
            : fi_cq_sread(completions_.get(), entries.data(), entries.size(), nullptr, timeout_ms);
    if (count == -FI_EAGAIN || count == -FI_EINTR) return false;
    if (count < 0) return failed("a peer is gone", count);
    for (const auto& entry : std::span(entries).first(static_cast<std::size_t>(count))) {
      Slot& slot = *static_cast<Slot*>(entry.op_context);
      if (!slot.receives) {
        free_.push_back(&slot);
        continue;
      }
      take(std::span<const std::byte>(slot.bytes, entry.len));
      FANIN_TRY(post(slot));
    }
    return true;
  }

private:
  static std::string provider_of(const net::Url& url) {
    return url.scheme.substr(std::string_view("ofi+").size());
  }

  Result<> open_fabric(fi_info& info) {
    fabric_ = FANIN_TRY(ofi::Fabric::open(info));
    return {};
  }

  Result<> open(fi_info& info) {
    domain_ = FANIN_TRY(ofi::Domain::open(*fabric_, info));
    arena_ = FANIN_TRY(memory::Arena::make(2 * window_ * transfer_, {}));
    description_ = FANIN_TRY(domain_->description(*arena_));
    inject_most_ = info.tx_attr->inject_size;
    fi_cq_attr attributes{};
    attributes.size = 2 * window_;
    attributes.format = FI_CQ_FORMAT_MSG;
    attributes.wait_obj = polls_ ? FI_WAIT_NONE : FI_WAIT_UNSPEC;
    fid_cq* completions = nullptr;
    long error = fi_cq_open(domain_->get(), &attributes, &completions, nullptr);
    completions_.reset(error == 0 ? completions : nullptr);
    fid_ep* endpoint = nullptr;
    if (error == 0) error = fi_endpoint(domain_->get(), &info, &endpoint, nullptr);
    endpoint_.reset(error == 0 ? endpoint : nullptr);
    if (error == 0) error = fi_ep_bind(endpoint, &fabric_->events->fid, 0);
    if (error == 0) error = fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV);
    if (error == 0) error = fi_enable(endpoint);
    if (error != 0) return failed("no endpoint", error);
    return fill_window();
  }

  Result<> fill_window() {
    slots_.resize(2 * window_);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].bytes = arena_->data() + i * transfer_;
      slots_[i].receives = i < window_;
      if (!slots_[i].receives) {
        free_.push_back(&slots_[i]);
      } else if (auto posted = post(slots_[i]); !posted) {
        return posted;
      }
    }
    return {};
  }

  Result<> post(Slot& slot) {
    const ssize_t error = fi_recv(endpoint_.get(), slot.bytes, transfer_, description_, 0, &slot);
    if (error != 0) return failed("posting a receive", error);
    return {};
  }

  // With what the peer asked for, where it asks.
  Result<ofi::Info> wait_for(std::uint32_t kind) const {
    std::uint32_t found = 0;
    fi_eq_cm_entry entry{};
    const ssize_t got = fi_eq_sread(fabric_->events.get(), &found, &entry, sizeof entry, -1, 0);
    if (got < 0) return failed("waiting for a connection", got);
    if (found != kind) return fail(ErrorKind::disconnected, "no connection could be made");
    return ofi::Info{kind == FI_CONNREQ ? entry.info : nullptr};
  }
  Result<> connected() const {
    FANIN_TRY(wait_for(FI_CONNECTED));
    return {};
  }

  std::size_t transfer_;
  std::size_t window_;
  bool polls_;
  std::size_t inject_most_ = 0;
  std::unique_ptr<memory::Arena> arena_;
  std::unique_ptr<ofi::Fabric> fabric_;
  ofi::Owned<fid_pep> listening_;
  std::unique_ptr<ofi::Domain> domain_;
  ofi::Owned<fid_cq> completions_;
  ofi::Owned<fid_ep> endpoint_;
  void* description_ = nullptr; // of the arena's memory
  std::vector<Slot> slots_;
  std::vector<Slot*> free_; // to send from
};

// A transfer is as many records as a page takes, or a piece of a message that is larger.
bool travels_in_pieces(const Spec& spec) { return sizeof(RecordHeader) + spec.size > spec.page; }

std::size_t transfer_of(const Spec& spec) {
  if (travels_in_pieces(spec)) return std::min<std::size_t>(spec.size, spec.page);
  return PageLayout{spec.size, spec.page}.page();
}

Endpoint stream_endpoint(const Spec& spec) {
  const std::size_t transfer = transfer_of(spec);
  return {transfer, std::clamp<std::size_t>(window_bytes / transfer, 2, window_most),
          spec.wait == net::WaitPolicy::poll};
}

class Waiting {
public:
  // What there is to be read, after waiting for it.
  template <class Take>
  Result<> check(Endpoint& endpoint, Take take) {
    const auto any = FANIN_TRY(endpoint.check(take, -1));
    if (!any && ++idle_ % fabric_spins == 0) sched_yield();
    return {};
  }

private:
  int idle_ = 0;
};

Result<> send_stream(Endpoint& endpoint, const Spec& spec) {
  const PageLayout layout{spec.size, spec.page};
  const PayloadSource source(spec.size);
  const bool in_pieces = travels_in_pieces(spec);
  const std::size_t transfer = transfer_of(spec);
  const auto nothing = [](auto) {};
  Waiting waiting;
  for (std::size_t at = 0;;) {
    Slot* slot = nullptr;
    while ((slot = endpoint.take_slot()) == nullptr) {
      FANIN_TRY(waiting.check(endpoint, nothing));
    }
    const std::size_t size = in_pieces ? std::min(transfer, spec.size - at) : transfer;
    if (in_pieces) {
      memory::copy(slot->bytes, source.bytes().subspan(at, size));
      at = at + size == spec.size ? 0 : at + size;
    } else {
      copy_records({slot->bytes, size}, layout, source);
    }
    for (Result<bool> sent = false; !*sent;) {
      sent = endpoint.send(*slot, size);
      if (!sent) return std::unexpected(sent.error());
      if (*sent) break;
      FANIN_TRY(waiting.check(endpoint, nothing));
    }
  }
}

Result<> receive_stream(Endpoint& endpoint, const Spec& spec, ProcessStats& stats) {
  const bool in_pieces = travels_in_pieces(spec);
  std::size_t message = 0; // bytes of one that comes in pieces
  const auto take = [&](std::span<const std::byte> transfer) {
    if (!in_pieces) {
      const std::uint32_t records = walk_records(transfer, false, spec.read);
      stats.messages.add(records);
      stats.bytes.add(std::uint64_t{records} * spec.size);
      return;
    }
    touch(transfer, spec.read);
    stats.bytes.add(transfer.size());
    message += transfer.size();
    if (message < spec.size) return;
    message = 0;
    stats.messages.add(1);
  };
  for (Waiting waiting;;) FANIN_TRY(waiting.check(endpoint, take));
}

class FabricPipe final : public Pipe {
public:
  explicit FabricPipe(const Spec& spec)
      : endpoint_(spec.size, std::min(trips_max(spec), window_most),
                  spec.wait == net::WaitPolicy::poll),
        polls_(spec.wait == net::WaitPolicy::poll) {}
  [[nodiscard]] Endpoint& endpoint() { return endpoint_; }

  // While there is no room to send from, it reads: both ends may have much under way.
  Result<> send(std::span<const std::byte> message) override {
    Slot* slot = nullptr;
    while ((slot = endpoint_.take_slot()) == nullptr) {
      FANIN_TRY(check(0));
    }
    memory::copy(slot->bytes, message);
    while (true) {
      const auto sent = FANIN_TRY(endpoint_.send(*slot, message.size()));
      if (sent) return {};
      FANIN_TRY(check(0));
    }
  }

  Result<bool> receive(Time until) override {
    for (int i = 0; messages_ == 0; ++i) {
      if (i == fabric_spins || (until != never && clock_.now() >= until)) return false;
      FANIN_TRY(check(timeout_ms(until)));
    }
    --messages_;
    return true;
  }

private:
  Result<bool> check(int timeout_ms) {
    return endpoint_.check(
        [this](std::span<const std::byte> message) {
          touch(message, false);
          ++messages_;
        },
        timeout_ms);
  }
  // The end is no sooner than asked for.
  [[nodiscard]] int timeout_ms(Time until) const {
    if (polls_ || until == never) return polls_ ? 0 : -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock_.now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000));
  }

  MonotonicClock clock_;
  Endpoint endpoint_;
  bool polls_;
  std::size_t messages_ = 0; // complete, and not yet asked for
};

Ends fabric_stream(const Spec& spec) {
  Ends ends;
  ends.listen = [spec](std::size_t, ProcessStats& stats) -> Result<> {
    Endpoint endpoint = stream_endpoint(spec);
    FANIN_TRY(endpoint.listen(spec.url, stats));
    return receive_stream(endpoint, spec, stats);
  };
  ends.connect = [spec](std::size_t, const std::vector<std::string>& addresses,
                        ProcessStats& stats) -> Result<> {
    Endpoint endpoint = stream_endpoint(spec);
    FANIN_TRY(endpoint.connect(addresses.front()));
    stats.state = ProcessStats::State::ready;
    return send_stream(endpoint, spec);
  };
  return ends;
}

Ends fabric_roundtrip(const Spec& spec) {
  Ends ends;
  ends.latency = ends.connectors_count = true;
  ends.listen = [spec](std::size_t, ProcessStats& stats) -> Result<> {
    FabricPipe pipe{spec};
    FANIN_TRY(pipe.endpoint().listen(spec.url, stats));
    return send_back(pipe, spec);
  };
  ends.connect = [spec](std::size_t, const std::vector<std::string>& addresses,
                        ProcessStats& stats) -> Result<> {
    FabricPipe pipe{spec};
    FANIN_TRY(pipe.endpoint().connect(addresses.front()));
    return make_trips(pipe, spec, stats);
  };
  return ends;
}

} // namespace
} // namespace fanin::bench

extern "C" void fanin_bare_fabric(const fanin::bench::Spec& spec,
                                  fanin::Result<fanin::bench::Ends>& ends) {
  using namespace fanin::bench;
  if (const auto connected = check_connected(spec); !connected) {
    ends = std::unexpected(connected.error());
  } else {
    ends = spec.pattern == Pattern::stream ? fabric_stream(spec) : fabric_roundtrip(spec);
  }
}
