#include "fanin/builder/filtering/filter_unit.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/printable.hpp"
#include "fanin/base/thrown.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::builder {
namespace {

static_assert(filter_result_max == wire::filter_result_max);
constexpr Duration retry_period = std::chrono::milliseconds{200};

template <class Record>
std::span<const std::byte> bytes_of(const Record& record) {
  return std::as_bytes(std::span{&record, 1});
}

} // namespace

FilterUnit::FilterUnit(const System& system, Options options, NodeEnvironment environment)
    : system_(system),
      options_(std::move(options)),
      environment_(std::move(environment)),
      pages_(*environment_.control_pool),
      retry_tick_([this] { connect(); }) {
  for (const net::Url& url : options_.builders) builders_.push_back({.url = url, .link = {}});
  environment_.loop->add(*this);
}

FilterUnit::~FilterUnit() {
  stop();
  environment_.loop->remove(*this);
}

void FilterUnit::start() { connect(); }

void FilterUnit::stop() {
  stopped_ = true;
  retry_tick_.cancel();
  reader_.end();
  reading_ = false;
  batches_.clear();
  for (Builder& builder : builders_) builder.link.close();
}

// --- builder units -------------------------------------------------------------------------------

// Builder units may come later, or again.
void FilterUnit::connect() {
  for (Builder& builder : builders_) {
    if (builder.link) continue;
    const auto transport = environment_.transports->find(builder.url);
    if (!transport) return fail_with(ErrorKind::internal, transport.error().text);
    const auto id =
        (*transport)
            ->connect(builder.url, {.receive_pool = options_.receive_pool, .handler = this});
    if (!id) {
      lines_.write(environment_.log, environment_.loop->now(), LogLevel::error, id.error().text);
      continue;
    }
    builder.link = {*transport, *id};
    builder.open = false;
  }
  if (std::ranges::any_of(builders_, [](const Builder& builder) { return !builder.link; }))
    retry_tick_.start(*environment_.loop, environment_.loop->now() + retry_period);
}

void FilterUnit::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  const auto builder = std::ranges::find(builders_, link, &Builder::link);
  if (builder == builders_.end()) return;
  switch (event.kind) {
  case net::EventKind::connected:
    builder->open = true;
    send_hello(*builder);
    break;
  case net::EventKind::message: on_message(link, event); break;
  case net::EventKind::writable: break; // what is unsent is sent in this turn
  case net::EventKind::closed:
    if (builder->open) {
      environment_.log(LogLevel::debug,
                       fmt::format("builder unit at {} is gone", builder->url.text()));
    }
    builder->link = {};
    forget(link);
    retry_tick_.start(*environment_.loop, environment_.loop->now() + retry_period);
    break;
  case net::EventKind::accepted: break;
  }
}

void FilterUnit::send_hello(Builder& builder) {
  wire::FilterHello hello;
  hello.system_digest = system_.digest();
  hello.ahead = options_.ahead;
  hello.silence_ms = static_cast<std::uint32_t>(std::min<Duration::rep>(
      options_.silence / std::chrono::milliseconds{1}, std::numeric_limits<std::uint32_t>::max()));
  options_.name.copy(hello.name.data(), hello.name.size());
  const std::array pieces{bytes_of(hello)};
  if (send(builder.link, pieces) != net::SendOutcome::accepted)
    hang_up(builder.link, "does not accept a hello");
}

net::SendOutcome FilterUnit::send(net::Link link,
                                  std::span<const std::span<const std::byte>> pieces) {
  std::uint32_t size = 0;
  for (const auto& piece : pieces) size += static_cast<std::uint32_t>(piece.size());
  auto room = pages_.reserve(size);
  if (!room.page) return net::SendOutcome::backpressure;
  std::byte* to = room.page.data() + room.offset;
  for (const auto& piece : pieces) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  const memory::View view = room.page.freeze(room.offset, size);
  pages_.give_back(std::move(room.page), room.offset + size);
  return link.send({&view, 1});
}

void FilterUnit::hang_up(net::Link link, std::string_view why) {
  lines_.write(environment_.log, environment_.loop->now(), LogLevel::error,
               fmt::format("builder unit at {}: {}; connection closed", link.peer(), why));
  const auto builder = std::ranges::find(builders_, link, &Builder::link);
  link.close(true);
  if (builder == builders_.end()) return;
  forget(builder->link);
  builder->link = {};
  retry_tick_.start(*environment_.loop, environment_.loop->now() + retry_period);
}

// Its batches are decided elsewhere.
void FilterUnit::forget(net::Link link) {
  if (reading_ && batches_.front().link == link) {
    reader_.end();
    reading_ = blocked_ = false;
    unsent_ = {};
  }
  std::erase_if(batches_, [&](const Batch& batch) { return batch.link == link; });
}

// --- batches -------------------------------------------------------------------------------------

void FilterUnit::on_message(net::Link link, const net::Event& event) {
  const auto open = std::ranges::find_if(
      batches_, [&](const Batch& batch) { return batch.link == link && !batch.whole(); });
  if (open != batches_.end()) {
    on_block(*open, event);
  } else if (wire::is_filter_refusal(event.message.bytes())) {
    on_refusal(link, event.message.bytes());
  } else {
    on_batch(link, event.message);
  }
}

// Trying again would change nothing.
void FilterUnit::on_refusal(net::Link link, std::span<const std::byte> message) {
  const auto why = wire::decode_filter_refusal(message);
  if (!why) return hang_up(link, why.error().text);
  fail_with(ErrorKind::refused,
            fmt::format("the builder unit at {} refuses: {}", link.peer(), printable(*why)));
}

void FilterUnit::on_batch(net::Link link, const memory::View& message) {
  const auto header = wire::decode_filter_batch(message.bytes());
  if (!header) return hang_up(link, header.error().text);
  const auto has =
      std::ranges::count_if(batches_, [&](const Batch& batch) { return batch.link == link; });
  if (has >= options_.ahead || header->events > system_.batch_events || header->blocks == 0)
    return hang_up(link, "sends a batch that was not requested");
  batches_.push_back({.link = link, .header = *header, .blocks = {}});
}

void FilterUnit::on_block(Batch& batch, const net::Event& event) {
  const auto block = wire::decode_data_block(event.message.bytes(), event.rest.bytes());
  if (!block) return hang_up(batch.link, block.error().text);
  if (block->header.batch() != batch.header.range())
    return hang_up(batch.link, "sends data of another batch");
  batch.blocks.push_back({*block, event.message, event.rest});
}

bool FilterUnit::poll() {
  if (stopped_) return false;
  const auto whole = std::ranges::find_if(batches_, &Batch::whole);
  const bool works = reading_ || whole != batches_.end();
  if (works || work_reported_) options_.on_work(works);
  work_reported_ = works;
  if (!works) return false;
  if (!reading_) {
    if (whole != batches_.begin()) std::iter_swap(whole, batches_.begin());
    begin_batch();
  }
  send_alive();
  if (!blocked_ || send_decisions()) decide_some();
  if (blocked_) options_.on_work(work_reported_ = false);
  return !blocked_ && !stopped_;
}

// To builder units whose batches wait here for others.
void FilterUnit::send_alive() {
  const Time now = environment_.loop->now();
  if (now - alive_at_ < alive_period) return;
  alive_at_ = now;
  const wire::FilterDecided alive;
  const std::array pieces{bytes_of(alive)};
  for (const Builder& builder : builders_) {
    if (builder.open && builder.link) (void)send(builder.link, pieces); // else it is not alive
  }
}

void FilterUnit::begin_batch() {
  Batch& batch = batches_.front();
  reading_ = true;
  next_ = batch.header.from;
  unsent_ = {.from = next_, .decisions = {}, .results = {}, .since = environment_.loop->now()};
  reader_.begin(std::exchange(batch.blocks, {}));
  batch.read = true;
}

void FilterUnit::decide_some() {
  const Clock& clock = environment_.loop->clock();
  const Time begin = clock.now();
  const Batch& batch = batches_.front();
  while (next_ < batch.header.events) {
    if (!decide_next()) return;
    const Time now = clock.now();
    const std::size_t next_size = sizeof(wire::FilterDecided) + unsent_.results.size() +
                                  (unsent_.decisions.size() + 1) * sizeof(wire::FilterDecision) +
                                  filter_result_max;
    const bool large = next_size > environment_.control_pool->page_size() / 2;
    if (batch.header.report_each != 0 || large || now - unsent_.since >= unsent_max) {
      if (!send_decisions()) return;
    }
    if (now - begin >= turn_max) break;
  }
  if (next_ < batch.header.events || !send_decisions()) return;
  reader_.end();
  reading_ = false;
  batches_.pop_front();
}

// False: it ends.
bool FilterUnit::decide_next() {
  const Batch& batch = batches_.front();
  const EventNumber number = batch.header.first + next_;
  const auto fragments = reader_.fragments_of(number);
  decision_.clear();
  if (!fragments.empty()) {
    std::string why;
    try {
      options_.filter->decide({batch.header.run, number, fragments}, decision_);
      if (decision_.result().size() > filter_result_max) {
        why = fmt::format("its result of {} B is larger than {} B", decision_.result().size(),
                          filter_result_max);
      }
    } catch (...) {
      why = thrown().text;
    }
    if (!why.empty()) {
      (void)send_decisions(); // what it has decided before counts
      fail_with(ErrorKind::internal, fmt::format("the filter failed at event {} of run {}: {}",
                                                 number, batch.header.run, why));
      return false;
    }
    ++counters_.events;
    for (const FilterFragment& fragment : fragments) counters_.bytes += fragment.payload.size();
  }
  keep(decision_, !fragments.empty());
  ++next_;
  return true;
}

// An event of which nothing came is not shown to the filter.
void FilterUnit::keep(const Decision& decision, bool shown) {
  const auto known = static_cast<std::uint32_t>((std::uint64_t{1} << system_.streams.size()) - 1);
  const std::uint32_t streams = shown ? decision.streams() & known : storage::error_stream;
  if (shown && streams != 0) ++counters_.accepted;
  const auto result = streams == 0 || !shown ? std::span<const std::byte>{} : decision.result();
  unsent_.decisions.push_back({.streams = streams,
                               .result_size = static_cast<std::uint32_t>(result.size()),
                               .result_crc32c = result.empty() ? 0 : wire::crc32c(result)});
  unsent_.results.insert(unsent_.results.end(), result.begin(), result.end());
}

// False: there is no room now.
bool FilterUnit::send_decisions() {
  blocked_ = false;
  if (unsent_.decisions.empty()) return true;
  wire::FilterDecided decided;
  decided.ticket = batches_.front().header.ticket;
  decided.from = unsent_.from;
  decided.count = static_cast<std::uint32_t>(unsent_.decisions.size());
  const std::array pieces{bytes_of(decided), std::as_bytes(std::span{unsent_.decisions}),
                          std::span<const std::byte>{unsent_.results}};
  const auto outcome = send(batches_.front().link, pieces);
  if (outcome == net::SendOutcome::too_large) {
    fail_with(ErrorKind::internal, "its decisions do not fit into a page for control messages");
    return false;
  }
  if (outcome == net::SendOutcome::backpressure) {
    blocked_ = true;
    return false;
  }
  unsent_.from = next_;
  unsent_.decisions.clear();
  unsent_.results.clear();
  unsent_.since = environment_.loop->clock().now();
  return true;
}

void FilterUnit::fail_with(ErrorKind kind, std::string why) {
  environment_.log(LogLevel::error, why);
  stop();
  options_.on_failed({kind, std::move(why)});
}

} // namespace fanin::builder
