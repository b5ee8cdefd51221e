#include "fanin/builder/readout/readout_unit.hpp"

#include <algorithm>
#include <utility>

#include "fanin/builder/control/take_message.hpp"

namespace fanin::builder {

namespace {
// A source that does not become readable when it is ready is asked again.
constexpr Duration ready_period = std::chrono::milliseconds{250};

class ControlOut final : public Announcer::Out {
public:
  explicit ControlOut(ControlClient& control) : control_(control) {}
  [[nodiscard]] bool roomy(std::size_t absent_bytes) override {
    return control_.roomy(absent_bytes);
  }
  [[nodiscard]] std::size_t room_max() const override { return control_.room_max(); }
  void send(const wire::Announce& message, std::span<const wire::AbsentRange> absent) override {
    control_.send(message, absent);
  }

private:
  ControlClient& control_;
};
} // namespace

class ReadoutUnit::Readable final : public net::Service {
public:
  Readable(net::Loop& loop, const SourceReader& reader, std::function<bool()> reads)
      : loop_(loop), reader_(reader), reads_(std::move(reads)) {
    loop_.add(*this);
  }
  ~Readable() override { loop_.remove(*this); }
  bool poll() override { return false; } // being woken is enough: the readout unit reads each turn
  [[nodiscard]] int descriptor() const override {
    return reads_() ? reader_.descriptor(loop_.now()) : -1;
  }

private:
  net::Loop& loop_;
  const SourceReader& reader_;
  const std::function<bool()> reads_; // it is read in each turn now
};

ReadoutUnit::ReadoutUnit(const System& system, ReadoutOptions options, NodeEnvironment environment)
    : system_(system),
      options_(std::move(options)),
      environment_(std::move(environment)),
      sources_(system, std::move(options_.inputs), environment_.log),
      status_tick_([this] {
        send_status();
        status_tick_.start(*environment_.loop, environment_.loop->now() + status_period);
      }),
      announcer_(system, sources_.queues()),
      uncut_(system.event_deadline / 16) {
  const auto [first, last] = system_.sources_of(options_.node);
  FANIN_ASSERT(sources_.size() == last - first);
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (!sources_.reader(i).has_descriptor()) continue;
    readables_.push_back(std::make_unique<Readable>(*environment_.loop, sources_.reader(i),
                                                    [this] { return state_ == State::joined; }));
  }
  FANIN_ASSERT(environment_.control_pool->page_size() >= control_page_least(sources_.size()));
  const MetadataLayout metadata{.page = options_.metadata_pool->page_size(),
                                .batch_events = system_.batch_events,
                                .message_max = system_.message_max(),
                                .builders = system_.builder_units.size(),
                                .sources = sources_.size(),
                                .payload = sources_.payload_max(),
                                .source_page = sources_.page_least(),
                                .fills_carriers = system_.shaping.fills_carriers()};
  retained_.emplace(system_, options_.node, *options_.metadata_pool, metadata);
  links_.emplace(system_, options_.node, environment_, *retained_,
                 [this](const wire::Assign& assign) {
                   return assign.seal == wire::seal_of(assign, seal_key_) && on_assign(assign);
                 });
  wire::Hello hello;
  hello.role = wire::Role::readout_unit;
  hello.node = options_.node;
  hello.system_digest = system_.digest();
  hello.capacity = metadata.payload;
  hello.metadata = metadata.capacity(options_.metadata_pool->pages());
  control_ = std::make_unique<ControlClient>(
      environment_,
      ControlClient::Options{
          .event_manager = options_.event_manager,
          .hello = hello,
          .text = system_.readout_units[options_.node] + "\n",
          .patience = system_.control_patience(),
          .grace = system_.grace,
          .give_up_after = options_.give_up_after,
          .on_message = [this](wire::MessageType type,
                               std::span<const std::byte> body) { return on_control(type, body); },
          // What it held is lost to the run; it comes back as a new incarnation.
          .on_lost = [this] { reset(); },
          .on_given_up = [this](const Error& error) { end(std::unexpected(error)); }});
  environment_.loop->add(*this);
}

ReadoutUnit::~ReadoutUnit() { environment_.loop->remove(*this); }

void ReadoutUnit::start() {
  state_ = State::away;
  control_->start();
}

bool ReadoutUnit::poll() {
  if (state_ != State::joined) {
    control_->flush();
    return false;
  }
  const Time now = environment_.loop->now();
  const bool more = watch_readiness(now) && read_sources(now);
  answer();
  control_->flush();
  return more;
}

// True: there is more to do at once.
bool ReadoutUnit::read_sources(Time now) {
  const bool more = sources_.read(view(), now);
  report_held();
  request_reset();
  ask_for_uncut(now);
  sources_.watch(view(), now);
  announce(!more && !sources_.any_far_ahead(), now);
  const bool cut = retry_waiting(); // pages come home when they are sent, maybe after their clear
  arm_tick(now);
  return more || cut || sources_.take_decided(); // what was cut is acknowledged at the next read
}

void ReadoutUnit::end(Result<> result) {
  if (state_ == State::ended) return;
  reset();
  state_ = State::ended;
  control_->stop();
  options_.on_end(result);
}

void ReadoutUnit::reset() {
  if (state_ == State::joined) state_ = State::away;
  view_ = {};
  to_start_.reset();
  held_ = said_ready_ = false;
  reset_requested_ = run_begun_ = pause_wanted_ = finish_wanted_ = false;
  status_tick_.cancel();
  announcer_.reset();
  held_report_ = HeldReport{};
  uncut_.reset();
  waiting_.clear();
  links_->end();
  retained_->clear();
  sources_.reset();
}

// --- what the event manager says -----------------------------------------------------------------

bool ReadoutUnit::on_control(wire::MessageType type, std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  const auto take = [&](auto on) { return take_message(reader, *this, on); };
  switch (type) {
  case wire::MessageType::welcome: return take(&ReadoutUnit::on_welcome);
  case wire::MessageType::release: held_ = false; return state_ == State::joined;
  case wire::MessageType::builder_up: return on_builder_up(reader);
  case wire::MessageType::builder_down: return take(&ReadoutUnit::on_builder_down);
  case wire::MessageType::limit: return take(&ReadoutUnit::on_limit);
  case wire::MessageType::horizon: return take(&ReadoutUnit::on_horizon);
  case wire::MessageType::pause: return take(&ReadoutUnit::on_pause);
  case wire::MessageType::reset_reply: return take(&ReadoutUnit::on_reset_reply);
  case wire::MessageType::assign: return take(&ReadoutUnit::on_assign);
  case wire::MessageType::clear: return take(&ReadoutUnit::on_clear);
  case wire::MessageType::reconnect: return take(&ReadoutUnit::on_reconnect);
  case wire::MessageType::finish: finish_wanted_ = true; return state_ == State::joined;
  default: return false;
  }
}

bool ReadoutUnit::on_welcome(const wire::Welcome& welcome) {
  reset();
  state_ = State::joined;
  run_ = welcome.run;
  seal_key_ = welcome.seal_key;
  retained_->begin(run_, welcome.incarnation);
  links_->begin(run_, welcome.incarnation);
  view_.limit = welcome.limit;
  held_ = welcome.held != 0;
  if (welcome.joining != 0) view_.joined_at = welcome.first_event;
  const Time now = environment_.loop->now();
  sources_.joined({.number = run_, .id = welcome.run_id, .shared = welcome.run_id_is_shared != 0});
  to_start_ = welcome;
  if (view_.begun()) start_sources(now); // nobody waits for them
  status_tick_.start(*environment_.loop, now + status_period);
  return true;
}

bool ReadoutUnit::on_builder_up(wire::MessageReader& reader) {
  wire::BuilderUp up;
  if (!reader.read(up)) return false;
  const auto url = reader.text(up.text_size);
  return reader.ok() && links_->up(up.node, up.incarnation, url);
}

bool ReadoutUnit::on_builder_down(const wire::BuilderDown& down) {
  if (down.node >= system_.builder_units.size()) return false;
  links_->down(down.node, down.incarnation);
  return true;
}

bool ReadoutUnit::on_reconnect(const wire::Reconnect& reconnect) {
  if (reconnect.builder >= system_.builder_units.size()) return false;
  links_->reconnect(reconnect);
  return true;
}

bool ReadoutUnit::on_limit(const wire::Limit& limit) {
  pause_wanted_ = false;
  view_.set_limit(limit);
  sources_.set_limit(view_.read_end, view_.last);
  sources_.retry();
  return true;
}

bool ReadoutUnit::on_pause(const wire::Pause& pause) {
  pause_wanted_ = true;
  view_.pause(pause);
  return true;
}

bool ReadoutUnit::on_horizon(const wire::Horizon& horizon) {
  view_.set_horizon(horizon);
  held_report_.on_answer(horizon);
  if (held_report_.confirmed_by(horizon)) sources_.confirm(held_report_.number());
  return true;
}

bool ReadoutUnit::on_reset_reply(const wire::ResetReply& reply) {
  if (!std::exchange(reset_requested_, false)) return false;
  sources_.retry();
  if (reply.granted == 0) {
    begin_run();
    return true;
  }
  sources_.allow_reset(source::CounterReset::yes);
  view_.horizon = reply.horizon;
  announcer_.reset();
  sources_.forget_numbers();
  retained_->begin_at(0);
  return true;
}

void ReadoutUnit::begin_run() {
  run_begun_ = true;
  sources_.allow_reset(source::CounterReset::no);
}

bool ReadoutUnit::on_assign(const wire::Assign& assign) {
  if (!announcer_.begun() || assign.builder >= system_.builder_units.size() || assign.events == 0 ||
      assign.events > system_.batch_events - assign.first % system_.batch_events ||
      assign.range().end < assign.first) {
    return false;
  }
  // Sources would be given up as far as that.
  if (!announcer_.ended() && assign.range().end > announcer_.announced()) return false;
  begin_run();
  return waiting_.add(assign, [this](const wire::Assign& taken) { return try_assign(taken); });
}

bool ReadoutUnit::on_clear(const wire::Clear& clear) {
  begin_run();
  if (announcer_.begun() && retained_->on_clear(clear.range())) release_cut();
  sources_.retry();
  (void)retry_waiting();
  return true;
}

// --- batches -------------------------------------------------------------------------------------

bool ReadoutUnit::retry_waiting() {
  return waiting_.retry([this](const wire::Assign& assign) { return try_assign(assign); });
}

// False: it has to wait.
bool ReadoutUnit::try_assign(const wire::Assign& assign) {
  using Outcome = RetainedBatches::Outcome;
  const auto kept = retained_->assign(
      assign, sources_.queues(), [this](EventRange range) { return sources_.answer_for(range); });
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

// Numbers of events that were cut can be used again. The event manager has assigned them, so that
// it knows what was announced of them, also if this node dies now.
void ReadoutUnit::release_cut() {
  sources_.release_until(retained_->cut_until());
  sources_.announced(retained_->cut_until());
  sources_.retry();
}

// --- what the event manager is told --------------------------------------------------------------

const RunView& ReadoutUnit::view() {
  view_.announced = announcer_.begun() ? std::optional{announcer_.announced()} : std::nullopt;
  return view_;
}

// Joins the run there: what is below is absent. `given_up`: as for Announcer::begin().
void ReadoutUnit::begin_at(EventNumber first, bool given_up) {
  ControlOut out{*control_};
  announcer_.begin(first, given_up, sources_.have_few(view_), out);
  retained_->begin_at(first);
}

void ReadoutUnit::start_sources(Time now) {
  sources_.start(*std::exchange(to_start_, std::nullopt), view(), now);
  if (view_.joined_at) begin_at(*view_.joined_at, false);
}

// Until the run begins, sources may become ready, and not ready again. False: the run waits for
// them, and they are not read.
bool ReadoutUnit::watch_readiness(Time now) {
  if (view_.begun()) return true;
  const bool ready = sources_.ready(now) && !held_;
  if (ready) sources_.all_are_ready();
  if (ready && to_start_) start_sources(now);
  if (ready != said_ready_ && control_->roomy()) {
    control_->send(wire::Ready{ready ? 1U : 0U});
    said_ready_ = ready;
    send_status();
  }
  if (!ready) tick_.set(*environment_.loop, now + ready_period);
  return ready;
}

// Numbers that sources hold, and that others may know.
void ReadoutUnit::report_held() {
  const bool single = system_.readout_units.size() == 1;
  const auto lowest = sources_.held();
  const bool all_done = sources_.all_done();
  if (lowest) sources_.judge_held(view(), single || held_report_.answered(lowest, all_done));
  if (single) return;
  const auto message = held_report_.next(lowest, all_done);
  if (!message || !control_->roomy()) return;
  control_->send(*message);
  held_report_.reported(*message);
}

// A source's counter was reset after its numbers had been announced, or numbers fell below where a
// source was given up. While the run has no event of this readout unit, which waits for others,
// that can be taken back.
void ReadoutUnit::request_reset() {
  const bool may_reset = announcer_.begun() && !view_.joined_at && !view_.last && !run_begun_;
  const bool fell = sources_.requests_reset() || (may_reset && sources_.any_beyond());
  if (reset_requested_ || !fell || !control_->roomy()) return;
  reset_requested_ = true;
  control_->send(wire::ResetRequest{});
}

void ReadoutUnit::ask_for_uncut(Time now) {
  if (system_.protocol != Protocol::pull) return;
  const bool held_up = announcer_.announced() > retained_->cut_until() && sources_.any_held_back();
  if (!uncut_.due(held_up, retained_->cut_until(), now) || !control_->roomy()) return;
  control_->send(wire::Uncut{retained_->cut_until()});
  uncut_.asked(now);
}

void ReadoutUnit::announce(bool idle, Time now) {
  if (reset_requested_) return; // maybe all of it is taken back
  // Numbers beyond its end that others have are absent here, as the event manager knows.
  if (announcer_.ended()) return;
  const auto answered = sources_.to_announce(view());
  if (!answered) return;
  if (!announcer_.begun()) {
    sources_.allow_reset(source::CounterReset::ask);
    begin_at(sources_.first_event(), sources_.none_begins());
  }
  ControlOut out{*control_};
  announcer_.announce({.end = answered->end,
                       .limit = view_.limit,
                       .final = answered->final,
                       .idle = idle,
                       .held_up = sources_.any_held_back(),
                       .silent = sources_.all_silent(),
                       .few = sources_.have_few(view_),
                       .now = now},
                      out);
}

// What the event manager has asked for, as soon as there is room for the answer.
void ReadoutUnit::answer() {
  if (pause_wanted_ && control_->roomy()) {
    pause_wanted_ = false;
    control_->send(sources_.pause(view()));
  }
  if (!finish_wanted_) return;
  const auto sources = count();
  if (!control_->roomy(sources.size_bytes())) return;
  control_->send(wire::Finished{counters_}, sources);
  control_->flush();
  end({});
}

void ReadoutUnit::send_status() {
  const auto sources = count();
  const std::string text = (view_.begun() ? sources_.waits_for(view()) : sources_.not_ready())
                               .substr(0, control_->text_max(sources.size_bytes()));
  if (!control_->roomy(sources.size_bytes() + text.size())) return;
  counters_.waits_for_size = static_cast<std::uint32_t>(text.size());
  control_->send(wire::Status{counters_}, sources, std::string_view{text});
}

std::span<const wire::SourceCounters> ReadoutUnit::count() {
  counters_.bytes = links_->bytes();
  counters_.messages = links_->messages();
  counters_.waits_for_size = 0;
  return sources_.count(counters_, environment_.loop->now());
}

void ReadoutUnit::arm_tick(Time now) {
  Time due = std::min(announcer_.due(), sources_.next_turn(now));
  if (!waiting_.empty() || uncut_.watching()) {
    due = std::min(due, now + system_.event_deadline / 16);
  }
  tick_.set(*environment_.loop, std::max(due, now));
}

const wire::NodeCounters& ReadoutUnit::counters() {
  (void)count();
  return counters_;
}

std::vector<std::pair<SourceId, std::string>> ReadoutUnit::failed_sources() const {
  std::vector<std::pair<SourceId, std::string>> failed;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const SourceReader& reader = sources_.reader(i);
    if (!reader.failed()) continue;
    failed.emplace_back(reader.queue().options().source, reader.error().text);
  }
  return failed;
}

ReadoutUnit::SourceRead ReadoutUnit::read_of(std::size_t source) const {
  const source::EventNumbers& numbers = sources_.reader(source).queue().numbers();
  return {numbers.written(), numbers.payload_bytes()};
}

std::uint64_t ReadoutUnit::fragments_read() const {
  std::uint64_t sum = 0;
  for (const source::FragmentQueue* const queue : sources_.queues())
    sum += queue->numbers().written();
  return sum;
}

} // namespace fanin::builder
