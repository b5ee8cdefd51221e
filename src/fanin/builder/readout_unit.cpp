// Its life and what the event manager tells it. Reading sources: readout_unit_read.cpp.
#include "fanin/builder/readout_unit.hpp"

#include <algorithm>

namespace fanin::builder {

namespace {
constexpr std::size_t waiting_max = 65536; // assignments, far more than a sane event manager makes
} // namespace

class ReadoutUnit::Readable final : public net::Service {
public:
  Readable(net::Loop& loop, const Input& input) : loop_(loop), input_(input) { loop_.add(*this); }
  ~Readable() override { loop_.remove(*this); }
  bool poll() override { return false; } // being woken is enough: the readout unit reads each turn
  [[nodiscard]] int descriptor() const override {
    return loop_.now() < input_.rest.until() ? -1 : input_.source->descriptor();
  }

private:
  net::Loop& loop_;
  const Input& input_;
};

ReadoutUnit::ReadoutUnit(const System& system, ReadoutOptions options, NodeEnvironment environment)
    : system_(system),
      digest_(system.digest()),
      options_(std::move(options)),
      environment_(std::move(environment)),
      status_tick_([this] {
        say_status();
        status_tick_.start(*environment_.loop, environment_.loop->now() + status_period);
      }),
      clock_(system.event_deadline / 4) {
  const auto [first, last] = system_.sources_of(options_.node);
  FANIN_ASSERT(options_.inputs.size() == last - first);
  for (auto& input : options_.inputs) {
    input.queue.asks_others = true;
    input.queue.triggered = system.trigger_rate_hz > 0;
    inputs_.push_back(std::make_unique<Input>(std::move(input), system_.read_rest()));
    queues_.push_back(&inputs_.back()->queue);
    source_counters_.push_back({.source = inputs_.back()->queue.options().source});
    if (inputs_.back()->source->descriptor() >= 0) {
      readables_.push_back(std::make_unique<Readable>(*environment_.loop, *inputs_.back()));
    }
  }
  FANIN_ASSERT(environment_.control_pool->page_size() >= control_page_least(inputs_.size()));
  const MetadataLayout metadata = layout();
  retained_.emplace(system_, options_.node, *options_.metadata_pool, metadata);
  links_.emplace(system_, options_.node, environment_, *retained_,
                 [this](const wire::Assign& assign) { return on_assign(assign); });
  wire::Hello hello;
  hello.role = wire::Role::readout_unit;
  hello.node = options_.node;
  hello.system_digest = digest_;
  hello.capacity = metadata.payload;
  hello.metadata = metadata.capacity(options_.metadata_pool->pages());
  control_ = std::make_unique<ControlClient>(
      environment_,
      ControlClient::Options{
          .event_manager = options_.event_manager,
          .hello = hello,
          .text = system_.readout_units[options_.node] + "\n",
          .grace = system_.grace,
          .give_up_after = options_.give_up_after,
          .on_message = [this](wire::MessageType type,
                               std::span<const std::byte> body) { return on_control(type, body); },
          .on_lost = [this] { on_lost(); },
          .on_given_up = [this](const Error& error) { end(std::unexpected(error)); }});
  environment_.loop->add(*this);
}

ReadoutUnit::~ReadoutUnit() { environment_.loop->remove(*this); }

void ReadoutUnit::start() { control_->start(); }

void ReadoutUnit::end(Result<> result) {
  if (ended_) return;
  ended_ = true;
  reset();
  control_->stop();
  options_.on_end(result);
}

void ReadoutUnit::reset() {
  incarnation_ = 0;
  numbered_ = last_ = final_ = paused_ = pause_wanted_ = finish_wanted_ = false;
  status_tick_.cancel();
  horizon_ = heard_ = announced_ = limit_ = read_end_ = held_told_ = 0;
  held_said_ = held_answered_ = 0;
  alone_ = begin_asked_ = held_ended_ = held_waits_ = others_wait_ = false;
  apart_.clear();
  announce_due_ = throttled_since_ = uncut_since_ = never;
  links_->end();
  retained_->clear();
  waiting_again_.clear();
  waiting_.clear();
  for (auto& input : inputs_) input->queue.start_unnumbered();
}

void ReadoutUnit::on_lost() {
  // What it held is lost to the run; it comes back as a new incarnation.
  reset();
}

// --- control -------------------------------------------------------------------------------------

bool ReadoutUnit::on_control(wire::MessageType type, std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  switch (type) {
  case wire::MessageType::welcome: {
    wire::Welcome welcome;
    return reader.read(welcome) && on_welcome(welcome);
  }
  case wire::MessageType::builder_up: {
    wire::BuilderUp up;
    if (!reader.read(up)) return false;
    const auto url = reader.text(up.text_size);
    return reader.ok() && links_->up(up.node, up.incarnation, url);
  }
  case wire::MessageType::builder_down: {
    wire::BuilderDown down;
    if (!reader.read(down) || down.node >= system_.builder_units.size()) return false;
    links_->down(down.node, down.incarnation);
    return true;
  }
  case wire::MessageType::limit: {
    wire::Limit limit;
    if (!reader.read(limit)) return false;
    limit_ = limit.event;
    read_end_ = std::min(limit.event, limit.read);
    last_ = limit.last != 0;
    paused_ = pause_wanted_ = false;
    for (auto& input : inputs_) input->queue.set_limit(read_end_, last_);
    retry_full_ = true;
    return true;
  }
  case wire::MessageType::horizon: {
    wire::Horizon horizon;
    if (!reader.read(horizon)) return false;
    heard_ = horizon.event;
    held_answered_ = std::max(held_answered_, horizon.held);
    alone_ = horizon.alone != 0;
    others_wait_ = horizon.slow != 0;
    if (horizon.equal != 0 && horizon.held == held_said_) confirm_told();
    return true;
  }
  case wire::MessageType::pause: {
    wire::Pause pause;
    if (!reader.read(pause)) return false;
    heard_ = pause.horizon;
    paused_ = pause_wanted_ = true;
    return true;
  }
  case wire::MessageType::begin: {
    wire::Begin begin;
    if (!reader.read(begin) || !begin_asked_) return false;
    on_begin(begin);
    return true;
  }
  case wire::MessageType::assign: {
    wire::Assign assign;
    return reader.read(assign) && on_assign(assign);
  }
  case wire::MessageType::clear: {
    wire::Clear clear;
    if (!reader.read(clear)) return false;
    on_clear(clear);
    return true;
  }
  case wire::MessageType::reconnect: {
    wire::Reconnect reconnect;
    if (!reader.read(reconnect) || reconnect.builder >= system_.builder_units.size()) return false;
    links_->reconnect(reconnect);
    return true;
  }
  case wire::MessageType::finish: finish_wanted_ = true; return incarnation_ != 0;
  default: return false;
  }
}

bool ReadoutUnit::on_welcome(const wire::Welcome& welcome) {
  reset();
  run_ = welcome.run;
  incarnation_ = welcome.incarnation;
  retained_->begin(run_, incarnation_);
  links_->begin(run_, incarnation_);
  limit_ = welcome.limit;
  const Time now = environment_.loop->now();
  for (auto& input : inputs_) {
    if (welcome.joining != 0) input->queue.start(welcome.first_event);
    input->queue.set_limit(limit_);
    if (welcome.joining == 0) input->queue.set_may_fall(source::FragmentQueue::Fall::yes);
    input->behind_since.reset();
    input->accepted_at.reset();
    input->slow_since.reset();
    input->silent = input->slow_said = input->passed_over = input->overtaken_said = false;
    input->away = input->given_up_slow = input->trails_said = false;
    input->overtaken_since.reset();
    input->unclear_since.reset();
    input->unclear = false;
    input->last = {};
    input->last.wake = now;
    input->gives_more = input->far_ahead = false;
    input->rest.end();
    for (std::size_t reason = 0; reason < wire::drop_reasons; ++reason) {
      input->dropped_before[reason] = input->queue.dropped(static_cast<wire::DropReason>(reason));
    }
    if (const auto started =
            input->source->start(input->queue.counter_of(welcome.first_event), now);
        !started) {
      environment_.log(LogLevel::error, fmt::format("source {} cannot start: {}", name_of(*input),
                                                    started.error().text));
      input->last = {source::ReadState::failed, never, started.error()};
    }
  }
  joined_run_ = welcome.joining != 0;
  if (joined_run_) {
    numbered_ = true;
    announced_ = joined_ = horizon_ = welcome.first_event;
    retained_->begin_at(welcome.first_event);
    for (auto& input : inputs_) input->queue.set_others(others_of(*input));
    control_->send(wire::Announce{.first = announced_, .end = announced_});
  }
  status_tick_.start(*environment_.loop, now + status_period);
  return true;
}

bool ReadoutUnit::on_assign(const wire::Assign& assign) {
  if (!numbered_ || assign.builder >= system_.builder_units.size() || assign.events == 0 ||
      assign.events > system_.batch_events || assign.range().end < assign.first) {
    return false;
  }
  set_may_fall(source::FragmentQueue::Fall::no); // the run has begun
  auto& waiting = assign.attempt > 0 ? waiting_again_ : waiting_;
  if (!waiting.empty() || !try_assign(assign)) waiting.push_back(assign);
  return waiting.size() <= waiting_max;
}

// The old ones first: what they wait for is kept for them.
void ReadoutUnit::retry_waiting() {
  for (auto* waiting : {&waiting_again_, &waiting_}) {
    while (!waiting->empty() && try_assign(waiting->front())) waiting->pop_front();
    if (!waiting->empty()) return;
  }
}

// False: it has to wait.
bool ReadoutUnit::try_assign(const wire::Assign& assign) {
  using Outcome = RetainedBatches::Outcome;
  const auto kept =
      retained_->assign(assign, queues_, [this](EventRange range) { return answered(range); });
  switch (kept.outcome) {
  case Outcome::kept:
    if (kept.cut) release_cut();
    links_->send(*kept.batch);
    return true;
  case Outcome::stale: ++counters_.stale; return true;
  case Outcome::no_pages:
  case Outcome::no_events: break;
  }
  return false;
}

// Numbers of events that were cut can be used again.
void ReadoutUnit::release_cut() {
  for (source::FragmentQueue* const queue : queues_) queue->release_until(retained_->cut_until());
  retry_full_ = true;
}

// Whether all sources have said what they have of these events. Those at their end have no more.
bool ReadoutUnit::answered(EventRange range) {
  return std::ranges::all_of(inputs_, [range](const auto& input) {
    const bool all = input->queue.numbered() && input->queue.next_event() >= range.end;
    return all || input->queue.give_up_until(range.end, wire::AbsentReason::none);
  });
}

void ReadoutUnit::on_clear(const wire::Clear& clear) {
  set_may_fall(source::FragmentQueue::Fall::no);
  if (numbered_ && retained_->on_clear(clear.range())) release_cut();
  retry_full_ = true;
  retry_waiting();
}

MetadataLayout ReadoutUnit::layout() const {
  MetadataLayout layout{.page = options_.metadata_pool->page_size(),
                        .batch_events = system_.batch_events,
                        .message_max = system_.message_max(),
                        .builders = system_.builder_units.size(),
                        .sources = inputs_.size(),
                        .source_page = inputs_.front()->pool->page_size()};
  for (const auto& input : inputs_) {
    layout.payload += std::uint64_t{input->pool->pages()} * input->pool->page_size();
    layout.source_page = std::min(layout.source_page, input->pool->page_size());
  }
  return layout;
}

void ReadoutUnit::count() {
  counters_.bytes = links_->bytes();
  counters_.messages = links_->messages();
  counters_.pages = counters_.pages_in_use = 0;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = *inputs_[i];
    counters_.pages += input.pool->pages();
    counters_.pages_in_use += input.pool->pages() - input.pool->available();
    for (std::size_t reason = 0; reason < wire::drop_reasons; ++reason) {
      source_counters_[i].dropped[reason] =
          input.queue.dropped(static_cast<wire::DropReason>(reason)) - input.dropped_before[reason];
    }
  }
  counters_.sources = static_cast<std::uint32_t>(source_counters_.size());
  counters_.text_size = 0;
  bool any = false;
  bool all = true;
  for (const auto& input : inputs_) {
    if (input->done()) continue;
    any = true;
    all = all && (input->queue.throttled() || input->far_ahead);
  }
  counters_.held_back = any && all ? 1 : 0;
}

void ReadoutUnit::say_status() {
  count();
  const std::string text = waits_for().substr(0, control_->room_max() / 4);
  if (!control_->roomy(std::as_bytes(std::span{source_counters_}).size() + text.size())) return;
  counters_.text_size = static_cast<std::uint32_t>(text.size());
  control_->send(wire::Status{counters_}, source_counters_, std::string_view{text});
}

// For people: which sources keep the run from going on.
std::string ReadoutUnit::waits_for() const {
  std::string text = apart_;
  for (const auto& input : inputs_) {
    if (!input->slow_since || !input->slow_said) continue;
    text += fmt::format("{}source {}, which is slow, to have event {}", text.empty() ? "" : "; ",
                        name_of(*input), input->queue.next_event());
  }
  return text;
}

// What the event manager has asked for, as soon as there is room for the answer.
void ReadoutUnit::answer() {
  if (pause_wanted_ && control_->roomy()) {
    pause_wanted_ = false;
    end_held();
    wire::Paused paused{.span = system_.event_window};
    std::vector<EventNumber> ends;
    for (auto& input : inputs_) {
      const source::FragmentQueue& queue = input->queue;
      if (!queue.numbered()) continue;
      paused.next_event = std::max(paused.next_event, queue.next_event());
      // Of fragments that are far apart it may hold any span, unless it has just jumped.
      const bool in_a_row = queue.in_a_row() >= source::enough_in_a_row;
      const std::uint64_t holds = in_a_row ? queue.next_event() - queue.first_event() : 0;
      paused.span = std::max<std::uint64_t>({paused.span, queue.options().window, holds});
      if (!input->done()) ends.push_back(queue.next_event());
    }
    paused.agreed = ends.empty() ? paused.next_event : source::agreed_end(ends, paused.span);
    for (auto& input : inputs_) input->queue.set_limit(paused.next_event);
    control_->send(paused);
  }
  if (finish_wanted_ && control_->roomy(std::as_bytes(std::span{source_counters_}).size())) {
    count();
    control_->send(wire::Finished{counters_}, source_counters_);
    control_->flush();
    end({});
  }
}

const wire::NodeCounters& ReadoutUnit::counters() {
  count();
  return counters_;
}

std::vector<std::pair<SourceId, std::string>> ReadoutUnit::failed_sources() const {
  std::vector<std::pair<SourceId, std::string>> failed;
  for (const auto& input : inputs_) {
    if (input->last.state != source::ReadState::failed) continue;
    failed.emplace_back(input->queue.options().source, input->last.error.text);
  }
  return failed;
}

const std::string& ReadoutUnit::name_of(const Input& input) const {
  return system_.sources[system_.find_source(input.queue.options().source)].name;
}

std::uint64_t ReadoutUnit::fragments_read() const {
  std::uint64_t sum = 0;
  for (const auto& input : inputs_) sum += input->queue.written();
  return sum;
}

} // namespace fanin::builder
