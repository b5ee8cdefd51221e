#include "fanin/builder/filtering/filter_server.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/wire/data_block.hpp"
#include "fanin/wire/filter.hpp"

namespace fanin::builder {
namespace {

constexpr Duration watch_period = std::chrono::milliseconds{50};
constexpr Duration no_units_max = std::chrono::seconds{2}; // then the log says so

// The data message as its readout unit sent it: the header stands before the table.
std::size_t message_of(const storage::SourcePiece& piece, std::array<memory::View, 2>& extents) {
  constexpr auto header = static_cast<std::uint32_t>(sizeof(wire::DataBlockHeader));
  FANIN_ASSERT(piece.table.offset >= header);
  memory::View& head = extents[0];
  head = {piece.table.page, piece.table.offset - header, header + piece.table.size};
  if (piece.payload.size == 0) return 1;
  const bool joined = piece.payload.page.get() == head.page.get() &&
                      piece.payload.offset == head.offset + head.size;
  if (joined) {
    head.size += piece.payload.size;
    return 1;
  }
  extents[1] = piece.payload;
  return 2;
}

std::uint32_t size_of(std::span<const memory::View> extents) {
  std::uint32_t size = 0;
  for (const memory::View& extent : extents) size += extent.size;
  return size;
}

} // namespace

FilterServer::FilterServer(const System& system, NodeEnvironment environment, Options options)
    : system_(system),
      digest_(system.digest()),
      environment_(std::move(environment)),
      options_(std::move(options)),
      headers_(*environment_.control_pool),
      watch_tick_([this] { watch(); }),
      unidentified_(*environment_.loop, system.dead_after, [this](net::Link link) {
        hang_up(link, "connected, and sent no hello in time");
      }) {
  if (options_.shared_pool != nullptr) copies_.emplace(*options_.shared_pool);
  environment_.loop->add(*this);
}

FilterServer::~FilterServer() {
  environment_.loop->remove(*this);
  for (const auto& [link, unit] : units_) net::Link{link}.close(true);
}

Result<> FilterServer::listen(const net::Url& url) {
  const auto transport = FANIN_TRY(environment_.transports->find(url));
  listener_ = FANIN_TRY(net::Listener::make(
      *transport, url,
      {.receive_pool = environment_.control_pool, .handler = this, .peers_must_identify = true}));
  return {};
}

// --- batches -------------------------------------------------------------------------------------

void FilterServer::add(std::unique_ptr<FilterJob> job) {
  ++jobs_;
  job->since = environment_.loop->now();
  if (job->batch.pieces.empty()) { // there is nothing to look at
    job->decisions.give_up_rest();
    return finish(std::move(job));
  }
  waiting_.push_back(std::move(job));
  work_pending_ = true;
  if (!watch_tick_.active()) watch_tick_.start(*environment_.loop, environment_.loop->now());
}

void FilterServer::drop(const FilterJob& job) {
  FANIN_ASSERT(jobs_ > 0 && (!job.set_aside || set_aside_ > 0));
  --jobs_;
  if (job.set_aside) --set_aside_;
}

void FilterServer::finish(std::unique_ptr<FilterJob> job) {
  drop(*job);
  if (job->owner != nullptr) job->owner->decided(std::move(job));
}

// A filter unit that has one of them decides it all the same.
void FilterServer::forget(FilterJob::Owner& owner) {
  std::erase_if(waiting_, [&](const auto& job) {
    if (job->owner != &owner) return false;
    drop(*job);
    return true;
  });
  for (auto& [link, unit] : units_) {
    for (auto& job : unit.jobs) {
      if (job->owner == &owner) job->owner = nullptr;
    }
  }
}

std::string FilterServer::waits_for() const {
  const std::string* unit_name = nullptr;
  const FilterJob* oldest = nullptr;
  bool any_unit = false;
  for (const auto& [link, unit] : units_) {
    any_unit |= !unit.name.empty();
    if (unit.jobs.empty() || unit.jobs.front()->owner == nullptr) continue;
    if (oldest != nullptr && oldest->since <= unit.jobs.front()->since) continue;
    oldest = unit.jobs.front().get();
    unit_name = &unit.name;
  }
  if (oldest != nullptr) {
    return fmt::format("filter unit '{}' to decide events from {} on", *unit_name,
                       oldest->batch.range.first + oldest->decisions.next());
  }
  return waiting_.empty() || any_unit ? std::string{} : "a filter unit to start";
}

bool FilterServer::poll() {
  if (held_back_ && !results_full()) work_pending_ = true;
  if (!std::exchange(work_pending_, false)) return false;
  for (auto& [link, unit] : units_) {
    if (!unit.blocked && !send(link, unit)) return true; // the unit is gone, and the list another
  }
  give_out();
  return false;
}

// To the filter unit that has least to do.
void FilterServer::give_out() {
  held_back_ = results_full();
  while (!waiting_.empty() && !results_full()) {
    const auto free = [](const auto& entry) {
      const Unit& unit = entry.second;
      return unit.jobs.size() < unit.ahead && !sending(unit);
    };
    Units::iterator least = units_.end();
    for (auto unit = units_.begin(); unit != units_.end(); ++unit) {
      if (!free(*unit)) continue;
      if (least == units_.end() || unit->second.jobs.size() < least->second.jobs.size())
        least = unit;
    }
    if (least == units_.end()) return;
    auto job = std::move(waiting_.front());
    waiting_.pop_front();
    if (job->owner == nullptr) {
      drop(*job);
      continue;
    }
    Unit& unit = least->second;
    if (unit.jobs.empty()) unit.heard_at = environment_.loop->now();
    job->decisions.begin();
    unit.jobs.push_back(std::move(job));
    unit.sent = 0;
    (void)send(least->first, unit);
  }
}

// What its connection takes of the batch that is on its way. False: it took none of it for good.
bool FilterServer::send(net::Link link, Unit& unit) {
  while (sending(unit)) {
    if (!has_room_for_next(unit)) {
      work_pending_ = true; // once a page has come back
      return true;
    }
    switch (send_next(link, unit)) {
    case net::SendOutcome::accepted:
      ++unit.sent;
      unit.heard_at = environment_.loop->now(); // it is not silent while it still gets them
      break;
    case net::SendOutcome::backpressure: unit.blocked = true; return true;
    case net::SendOutcome::closed: return true; // which is reported
    case net::SendOutcome::too_large:
      lines_.write(environment_.log, environment_.loop->now(), LogLevel::error,
                   fmt::format("events {} to {} cannot be sent to filter unit '{}': they go "
                               "unfiltered to the error stream",
                               unit.jobs.back()->batch.range.first,
                               unit.jobs.back()->batch.range.end - 1, unit.name));
      unit.jobs.back()->decisions.give_up_rest();
      hang_up(link, "the rest of a batch cannot be sent");
      return false;
    }
  }
  return true;
}

// What has come over shared memory lies with readout units, where filter units do not reach it.
bool FilterServer::has_to_copy(std::span<const memory::View> message) const {
  return copies_ && message[0].page.get()->home != options_.shared_pool;
}

// A page for what is not sent as it lies.
bool FilterServer::has_room_for_next(const Unit& unit) const {
  if (unit.sent == 0) return headers_.can_reserve(sizeof(wire::FilterBatch));
  std::array<memory::View, 2> extents;
  const std::size_t count = message_of(unit.jobs.back()->batch.pieces[unit.sent - 1], extents);
  const std::span message = std::span(extents).first(count);
  return !has_to_copy(message) || copies_->can_reserve(size_of(message));
}

net::SendOutcome FilterServer::send_next(net::Link link, const Unit& unit) {
  const FilterJob& job = *unit.jobs.back();
  if (unit.sent > 0) {
    std::array<memory::View, 2> extents;
    const std::size_t count = message_of(job.batch.pieces[unit.sent - 1], extents);
    const std::span message = std::span(extents).first(count);
    if (!has_to_copy(message)) return link.send(message);
    const memory::View copy = copy_of(message);
    return link.send({&copy, 1});
  }
  wire::FilterBatch header;
  header.ticket = unit.first_ticket + unit.jobs.size() - 1;
  header.first = job.batch.range.first;
  header.events = static_cast<std::uint32_t>(job.batch.range.count());
  header.from = job.decisions.next();
  header.run = job.run;
  header.blocks = static_cast<std::uint32_t>(job.batch.pieces.size());
  header.report_each = job.decisions.report_each() ? 1 : 0;
  auto room = headers_.reserve(sizeof header);
  FANIN_ASSERT(room.page); // has_room_for_next()
  std::memcpy(room.page.data() + room.offset, &header, sizeof header);
  const memory::View view = room.page.freeze(room.offset, sizeof header);
  headers_.give_back(std::move(room.page), room.offset + static_cast<std::uint32_t>(sizeof header));
  return link.send({&view, 1});
}

memory::View FilterServer::copy_of(std::span<const memory::View> extents) {
  const std::uint32_t size = size_of(extents);
  auto room = copies_->reserve(size);
  FANIN_ASSERT(room.page); // likewise
  std::byte* to = room.page.data() + room.offset;
  for (const memory::View& extent : extents) {
    std::memcpy(to, extent.data(), extent.size);
    to += extent.size;
  }
  memory::View view = room.page.freeze(room.offset, size);
  copies_->give_back(std::move(room.page), room.offset + size);
  return view;
}

// --- filter units --------------------------------------------------------------------------------

void FilterServer::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  const auto unit = units_.find(link);
  switch (event.kind) {
  case net::EventKind::accepted:
    units_.emplace(link, Unit{});
    unidentified_.add(link);
    break;
  case net::EventKind::message:
    if (unit != units_.end()) on_message(link, event);
    break;
  case net::EventKind::writable:
    if (unit == units_.end()) break;
    unit->second.blocked = false;
    work_pending_ = true;
    break;
  case net::EventKind::closed:
    if (unit != units_.end()) lose(unit);
    break;
  case net::EventKind::connected: break;
  }
}

void FilterServer::on_message(net::Link link, const net::Event& event) {
  Unit& unit = units_.at(link);
  if (unit.name.empty()) return on_hello(link, event.message.bytes());
  unit.heard_at = environment_.loop->now();
  on_decided(link, unit, event.message.bytes());
}

void FilterServer::on_hello(net::Link link, std::span<const std::byte> message) {
  const auto hello = wire::decode_filter_hello(message);
  if (!hello && hello.error().kind == ErrorKind::refused) return refuse(link, hello.error().text);
  if (!hello) return hang_up(link, hello.error().text);
  const std::string name = hello->text().empty() ? "?" : printable(hello->text());
  if (hello->system_digest != digest_) {
    return refuse(link, fmt::format("filter unit '{}' has another configuration than the builder "
                                    "unit: give all nodes the same file",
                                    name));
  }
  unidentified_.remove(link);
  Unit& unit = units_.at(link);
  unit.name = name;
  unit.ahead = hello->ahead;
  unit.silence = std::chrono::milliseconds{hello->silence_ms};
  link.mark_identified();
  environment_.log(LogLevel::debug, fmt::format("filter unit '{}' has connected", unit.name));
  no_units_since_ = {};
  no_units_logged_ = false;
  work_pending_ = true;
}

void FilterServer::on_decided(net::Link link, Unit& unit, std::span<const std::byte> message) {
  const auto view = wire::decode_filter_decided(message);
  if (!view) return hang_up(link, view.error().text);
  if (view->decided.count == 0) return; // a sign of life
  const bool whole = unit.jobs.size() > 1 || !sending(unit);
  if (unit.jobs.empty() || !whole || view->decided.ticket != unit.first_ticket)
    return hang_up(link, "decides a batch that it does not have");
  FilterJob& job = *unit.jobs.front();
  if (!job.decisions.decide(view->decided.from, view->decisions) || !keep_results(job, *view))
    return hang_up(link, "decides events that are not the next ones");
  if (job.decisions.state() != BatchDecisions::State::decided) return;
  auto done = std::move(unit.jobs.front());
  unit.jobs.pop_front();
  ++unit.first_ticket;
  work_pending_ = true;
  finish(std::move(done));
}

// False: the message has changed since it was checked.
bool FilterServer::keep_results(FilterJob& job, const wire::DecidedView& view) {
  auto rest = view.results;
  EventNumber event = job.batch.range.first + view.decided.from;
  for (const wire::FilterDecision decision : view.decisions) {
    if (decision.result_size > rest.size()) return false;
    if (decision.result_size != 0) {
      const auto bytes = rest.first(decision.result_size);
      rest = rest.subspan(decision.result_size);
      job.results.of_events.push_back({event, static_cast<std::uint32_t>(job.results.bytes.size()),
                                       decision.result_size, decision.result_crc32c});
      job.results.bytes.insert(job.results.bytes.end(), bytes.begin(), bytes.end());
    }
    ++event;
  }
  return true;
}

// For good: it need not try again.
void FilterServer::refuse(net::Link link, const std::string& why) {
  lines_.write(environment_.log, environment_.loop->now(), LogLevel::error,
               fmt::format("{} refused: {}", link.peer(), why));
  const auto size =
      static_cast<std::uint32_t>(std::min<std::size_t>(why.size(), wire::filter_refusal_max));
  const wire::FilterRefuse refusal{.text_size = size};
  auto room = headers_.reserve(sizeof refusal + size);
  if (room.page) { // else it comes again
    std::memcpy(room.page.data() + room.offset, &refusal, sizeof refusal);
    std::memcpy(room.page.data() + room.offset + sizeof refusal, why.data(), size);
    const memory::View view = room.page.freeze(room.offset, sizeof refusal + size);
    headers_.give_back(std::move(room.page), room.offset + view.size);
    (void)link.send({&view, 1});
  }
  lose(units_.find(link));
  link.close();
}

void FilterServer::hang_up(net::Link link, std::string_view why) {
  const auto unit = units_.find(link);
  const std::string who = unit == units_.end() || unit->second.name.empty()
                              ? link.peer()
                              : fmt::format("filter unit '{}'", unit->second.name);
  lines_.write(environment_.log, environment_.loop->now(), LogLevel::error,
               fmt::format("{}: {}; connection closed", who, why));
  if (unit != units_.end()) lose(unit);
  link.close(true);
}

// Its batches go to others, the oldest first.
void FilterServer::lose(Units::iterator unit) {
  auto jobs = std::move(unit->second.jobs);
  const std::string name = unit->second.name;
  unidentified_.remove(unit->first);
  units_.erase(unit);
  work_pending_ = true;
  while (!jobs.empty()) {
    auto job = std::move(jobs.back());
    jobs.pop_back();
    if (job->decisions.state() == BatchDecisions::State::in_progress) {
      if (jobs.empty()) {
        lose_job(name, *job);
      } else {
        job->decisions.return_untouched();
      }
    }
    if (job->decisions.state() == BatchDecisions::State::decided) {
      finish(std::move(job));
    } else if (job->owner == nullptr) {
      drop(*job);
    } else {
      waiting_.push_front(std::move(job));
    }
  }
}

void FilterServer::lose_job(const std::string& name, FilterJob& job) {
  const EventNumber at_hand = job.batch.range.first + job.decisions.next();
  const bool known = job.decisions.report_each();
  const bool given_up = job.decisions.lose();
  lines_.write(
      environment_.log, environment_.loop->now(), LogLevel::warning,
      fmt::format("filter unit '{}' is gone, with event {}{} to decide: {}", name, at_hand,
                  known ? "" : " and others",
                  given_up ? "it goes unfiltered to the error stream" : "another one decides"));
}

// The pages of a batch that a filter unit has are not those that others wait for: the builder unit
// has memory for as many such batches as filter units can have.
void FilterServer::set_slow_aside(Time now) {
  for (auto& [link, unit] : units_) {
    for (auto& job : unit.jobs) {
      const bool slow = now - job->since >= options_.set_aside_after;
      if (!slow || job->set_aside || job->owner == nullptr) continue;
      if (set_aside_ >= options_.set_aside_max) return;
      job->set_aside = true;
      ++set_aside_;
      job->owner->set_aside(job->batch.ticket);
    }
  }
}

// A filter unit says something while it decides; one that does not is frozen. And where there is
// none, somebody should know.
void FilterServer::watch() {
  const Time now = environment_.loop->now();
  set_slow_aside(now);
  std::vector<net::Link> silent;
  for (const auto& [link, unit] : units_) {
    if (!unit.jobs.empty() && now - unit.heard_at > unit.silence) silent.push_back(link);
  }
  for (const net::Link& link : silent) {
    const std::string name = units_.at(link).name;
    hang_up(link, "says nothing, and has events to decide");
    if (options_.on_silent) options_.on_silent(name);
  }
  const bool nobody =
      std::ranges::none_of(units_, [](const auto& entry) { return !entry.second.name.empty(); });
  if (nobody && !waiting_.empty()) {
    if (!no_units_since_) no_units_since_ = now;
    if (!no_units_logged_ && now - *no_units_since_ >= no_units_max) {
      no_units_logged_ = true;
      environment_.log(LogLevel::warning, "no filter unit is connected: built events wait for one");
    }
  }
  if (jobs_ > 0) watch_tick_.start(*environment_.loop, now + watch_period);
}

} // namespace fanin::builder
