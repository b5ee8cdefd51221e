#include "fanin/operation/event_sampler.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/sockets.hpp"
#include "fanin/net/registry.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::operation {
namespace {

constexpr Duration wanted_for = std::chrono::seconds{10};
constexpr Duration least_pause =
    std::chrono::milliseconds{200}; // between events that are looked at
constexpr std::size_t fragments_shown = 1000;
constexpr std::size_t bytes_shown = 32;
constexpr std::uint32_t send_page = 64U << 10;
constexpr std::uint32_t send_pages = 4;
constexpr std::uint32_t receive_page = 128U << 10;
constexpr std::uint32_t receive_pages = 32;

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

// Whatever the bytes are. Null: they are no event.
json::Value event_of(std::span<const std::byte> bytes,
                     const std::function<std::string(SourceId)>& name_of) {
  wire::SuperHeader header;
  if (bytes.size() < sizeof header) return {};
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::uint64_t most = (bytes.size() - sizeof header) / sizeof(wire::SuperEntry);
  const std::size_t count = std::min<std::uint64_t>(header.count, most);
  const wire::SuperHead head(bytes, bytes.size(), count);
  if (!head.good()) return {};
  json::Value fragments{json::List{}};
  std::uint64_t at = wire::super_head_size(count);
  for (std::size_t i = 0; i < std::min(count, fragments_shown); ++i) {
    const wire::SuperEntry one = head.entry(i);
    if (one.entry.absent()) continue;
    const std::uint64_t size = one.entry.size();
    const auto payload = bytes.subspan(at, std::min<std::uint64_t>(size, bytes.size() - at));
    at += size;
    fragments.append(
        json::Object{{"source", name_of(one.source)},
                     {"bytes", size},
                     {"first", hexadecimal(payload.first(std::min(payload.size(), bytes_shown)))}});
  }
  return json::Object{{"event", header.event},
                      {"run", header.run},
                      {"incomplete", (header.flags & wire::super_incomplete) != 0},
                      {"fragments", std::move(fragments)}};
}

} // namespace

class EventSampler::Reader {
public:
  [[nodiscard]] static Result<std::unique_ptr<Reader>> make(net::Loop& loop, const LogFunction& log,
                                                            const std::vector<EventPlace>& places) {
    std::unique_ptr<Reader> reader(new Reader(loop, places));
    FANIN_TRY(reader->begin(log));
    return reader;
  }
  ~Reader() {
    subscriber_.reset();
    context_.reset();
    for (const auto& transport : transports_) loop_.remove(*transport);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] bool reads(const std::vector<EventPlace>& places) const {
    return places == places_;
  }
  [[nodiscard]] json::Value latest(const std::function<std::string(SourceId)>& name_of) const {
    json::Value event = event_of(event_, name_of);
    if (!event.is_null()) event["builder"] = builder_;
    return event;
  }

private:
  Reader(net::Loop& loop, std::vector<EventPlace> places)
      : loop_(loop), places_(std::move(places)) {}

  Result<> begin(const LogFunction& log) {
    net::TransportRegistry registry;
    net::add_built_in_transports(registry);
    std::vector<net::Url> urls;
    for (const EventPlace& place : places_) {
      urls.push_back(FANIN_TRY(net::Url::parse(place.url)));
      const std::string& scheme = urls.back().scheme;
      if (set_.find(urls.back())) continue;
      auto transport = FANIN_TRY(registry.find(scheme)(loop_, log));
      set_.add(scheme, *transport);
      loop_.add(*transport);
      transports_.push_back(std::move(transport));
    }
    const memory::ArenaOptions shared{.shared = set_.share_memory()};
    send_pool_ = FANIN_TRY(
        memory::PagePool::make({.page_size = send_page, .pages = send_pages, .arena = shared}));
    receive_pool_ = FANIN_TRY(
        memory::PagePool::make({.page_size = receive_page, .pages = receive_pages, .arena = {}}));
    context_.emplace(message::ContextParts{.loop = loop_,
                                           .transports = set_,
                                           .send_pool = *send_pool_,
                                           .receive_pool = *receive_pool_,
                                           .log = log});
    message::SubscriberOptions options;
    options.on_message = [this](message::Message& event) { take(event); };
    subscriber_ = message::Subscriber::make(*context_, std::move(options));
    for (std::size_t i = 0; i < urls.size(); ++i) {
      const auto peer = FANIN_TRY(subscriber_->subscribe(urls[i], 0, message::Mode::low_latency));
      names_[peer] = places_[i].builder;
    }
    return {};
  }

  void take(message::Message& event) {
    if (loop_.now() < next_) return;
    next_ = loop_.now() + least_pause;
    const auto bytes = event.bytes();
    event_.assign(bytes.begin(), bytes.end());
    builder_ = names_[event.peer()];
  }

  net::Loop& loop_;
  std::vector<EventPlace> places_;
  std::vector<std::unique_ptr<net::Transport>> transports_;
  net::TransportSet set_;
  std::unique_ptr<memory::PagePool> send_pool_;
  std::unique_ptr<memory::PagePool> receive_pool_;
  std::optional<message::Context> context_;
  std::unique_ptr<message::Subscriber> subscriber_;
  std::map<message::PeerId, std::string> names_; // of builder units
  std::vector<std::byte> event_; // the latest
  std::string builder_; // of it
  Time next_{};
};

EventSampler::EventSampler(net::Loop& loop, LogFunction log)
    : loop_(loop), log_(std::move(log)), unwanted_([this] { reader_.reset(); }) {}
EventSampler::~EventSampler() = default;

json::Value EventSampler::sample(const std::vector<EventPlace>& places,
                                 const std::function<std::string(SourceId)>& name_of) {
  const auto why = [](std::string_view text) { return json::Object{{"why", text}}; };
  if (places.empty())
    return why("no builder unit publishes events: set [monitoring] every = 100 in the "
               "configuration (docs/configuration.md), for one event in a hundred");
  unwanted_.start(loop_, loop_.now() + wanted_for);
  if (!reader_ || !reader_->reads(places)) {
    reader_.reset();
    auto made = Reader::make(loop_, log_, places);
    if (!made) return why(made.error().text);
    reader_ = std::move(*made);
  }
  json::Value event = reader_->latest(name_of);
  return event.is_null() ? json::Value(why("no event has come yet")) : event;
}

} // namespace fanin::operation
