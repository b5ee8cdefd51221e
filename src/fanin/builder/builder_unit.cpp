// Its life and what the event manager tells it. Receiving parts: builder_unit_receive.cpp; what
// becomes of a batch: builder_unit_decide.cpp.
#include "fanin/builder/builder_unit.hpp"

#include <algorithm>

#include "fanin/builder/rails.hpp"

namespace fanin::builder {

namespace {
constexpr std::uint64_t pages_per_connection = 2; // one being filled, one just begun
constexpr Duration path_timeout_least = std::chrono::milliseconds{100};
} // namespace

std::uint64_t receive_pages(std::uint64_t capacity, std::uint32_t page_size,
                            std::size_t readout_units) {
  return 2 * ((capacity + page_size - 1) / page_size) + pages_per_connection * readout_units;
}

std::uint64_t build_capacity(std::uint64_t pages, std::uint32_t page_size,
                             std::size_t readout_units) {
  const std::uint64_t begun = pages_per_connection * readout_units;
  return pages <= begun ? 0 : (pages - begun) / 2 * page_size;
}

BuilderUnit::BuilderUnit(const System& system, BuilderOptions options, NodeEnvironment environment)
    : system_(system),
      digest_(system.digest()),
      sources_(system),
      options_(std::move(options)),
      environment_(std::move(environment)),
      status_tick_([this] {
        (void)send_counters<wire::Status>();
        status_tick_.start(*environment_.loop, environment_.loop->now() + status_period);
      }),
      path_tick_([] {}),
      stranger_tick_([this] { close_silent_strangers(); }),
      readouts_(system.readout_units.size()),
      path_timeout_(std::max(system.event_deadline, path_timeout_least)),
      clock_(path_timeout_ / 4) {
  environment_.loop->add(*this);
}

BuilderUnit::~BuilderUnit() {
  environment_.loop->remove(*this);
  reset();
  for (auto& stranger : strangers_) stranger.link.close(true);
  for (auto& sink : old_sinks_) environment_.loop->remove(*sink);
  for (const Listener& listener : listeners_) listener.transport->close_listener(listener.id);
}

Result<> BuilderUnit::start() {
  std::vector<net::Url> rails;
  Error failure{ErrorKind::usage, "no address to listen at"};
  for (const net::Url& url : options_.data) {
    const auto transport = environment_.transports->find(url);
    if (!transport) return std::unexpected(transport.error());
    const auto listener =
        (*transport)
            ->listen(url,
                     {.receive_pool = options_.receive_pool, .handler = this, .strangers = true});
    if (!listener) {
      failure = listener.error();
      if (options_.data.size() > 1) environment_.log(LogLevel::error, failure.text);
      continue;
    }
    listeners_.push_back({*transport, *listener});
    rails.push_back((*transport)->listening_url(*listener));
  }
  if (rails.empty()) return std::unexpected(failure);

  wire::Hello hello;
  hello.role = wire::Role::builder_unit;
  hello.node = options_.node;
  hello.system_digest = digest_;
  hello.capacity = build_capacity(options_.receive_pool->pages() - options_.posted_pages,
                                  options_.receive_pool->page_size(), system_.readout_units.size());
  control_ = std::make_unique<ControlClient>(
      environment_,
      ControlClient::Options{
          .event_manager = options_.event_manager,
          .hello = hello,
          .text = system_.builder_units[options_.node] + "\n" + rails_text(rails),
          .give_up_after = options_.give_up_after,
          .on_message = [this](wire::MessageType type,
                               std::span<const std::byte> body) { return on_control(type, body); },
          .on_lost = [this] { on_lost(); },
          .on_given_up = [this](const Error& error) { end(std::unexpected(error)); }});
  control_->start();
  return {};
}

std::vector<std::string> BuilderUnit::files() const {
  std::vector<std::string> files;
  for (const auto& sink : old_sinks_) std::ranges::copy(sink->files(), std::back_inserter(files));
  if (sink_) std::ranges::copy(sink_->files(), std::back_inserter(files));
  return files;
}

void BuilderUnit::end(Result<> result) {
  if (ended_) return;
  ended_ = true;
  reset();
  if (control_) control_->stop();
  options_.on_end(result);
}

void BuilderUnit::reset() {
  incarnation_ = 0;
  finishing_ = false;
  status_tick_.cancel();
  path_tick_.cancel();
  decided_.clear();
  received_.clear();
  handed_back_.clear();
  recently_decided_ = {};
  committed_.clear();
  files_said_ = 0;
  while (!assemblies_.empty()) release(*assemblies_.begin()->second);
  for (auto& readout : readouts_) {
    readout.data.close(true);
    readout.requests.link().close(true);
    readout = {};
  }
  for (const auto& [link, node] : links_) link.transport->close(link.id, true);
  links_.clear();
  if (sink_) { // what it holds is still written; whether it counts is the event manager's business
    sink_->on_commit([](std::uint64_t) {});
    sink_->on_failure([this](const Error& error, bool fatal) {
      environment_.log(fatal ? LogLevel::error : LogLevel::warning, error.text);
    });
    sink_->finish();
    old_sinks_.push_back(std::move(sink_));
  }
}

void BuilderUnit::on_lost() {
  if (failure_) return end(std::unexpected(*failure_));
  reset();
}

// --- control -------------------------------------------------------------------------------------

bool BuilderUnit::on_control(wire::MessageType type, std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  switch (type) {
  case wire::MessageType::welcome: {
    wire::Welcome welcome;
    return reader.read(welcome) && on_welcome(welcome);
  }
  case wire::MessageType::members: {
    wire::Members members;
    if (!reader.read(members)) return false;
    const auto incarnations = reader.records<Incarnation>(members.count);
    return reader.ok() && on_members(members, incarnations);
  }
  case wire::MessageType::assign: {
    wire::Assign assign;
    return reader.read(assign) && on_assign(assign, reader);
  }
  case wire::MessageType::lost: {
    wire::Lost lost;
    if (!reader.read(lost)) return false;
    const auto runs = reader.records<wire::MissingRun>(lost.runs);
    return reader.ok() && on_lost_fragments(runs);
  }
  case wire::MessageType::finish:
    if (incarnation_ == 0 || finishing_) return false;
    finishing_ = true;
    sink_->finish();
    return true;
  default: return false;
  }
}

bool BuilderUnit::on_welcome(const wire::Welcome& welcome) {
  reset();
  auto sink = options_.make_sink(welcome.run, welcome.incarnation);
  if (!sink) {
    end(std::unexpected(sink.error()));
    return true;
  }
  run_ = welcome.run;
  incarnation_ = welcome.incarnation;
  epoch_ = 0;
  sink_ = std::move(*sink);
  sink_->on_commit([this](std::uint64_t ticket) { on_commit(ticket); });
  sink_->on_failure([this](const Error& error, bool fatal) {
    environment_.log(fatal ? LogLevel::error : LogLevel::warning, error.text);
    if (fatal) failure_ = error;
  });
  environment_.loop->add(*sink_);
  status_tick_.start(*environment_.loop, environment_.loop->now() + status_period);
  return true;
}

bool BuilderUnit::on_members(const wire::Members& members,
                             std::span<const Incarnation> incarnations) {
  if (incarnation_ == 0 || incarnations.size() != readouts_.size() || members.epoch <= epoch_) {
    return false;
  }
  epoch_ = members.epoch;
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    if (readouts_[i].member == incarnations[i]) continue;
    readouts_[i].member = incarnations[i];
    readouts_[i].member_since = epoch_;
  }
  give_up_lost();
  return true;
}

bool BuilderUnit::on_assign(const wire::Assign& assign, wire::MessageReader& reader) {
  const auto gaps = reader.records<wire::Gap>(assign.gaps);
  const auto lost = reader.records<wire::MissingRun>(assign.lost);
  if (!reader.ok() || incarnation_ == 0 || assign.builder_incarnation != incarnation_ ||
      assign.events == 0 || assign.events > system_.batch_events ||
      assign.range().end < assign.first || assign.epoch > epoch_) {
    return false;
  }
  auto found = assemblies_.find(assign.first);
  if (found != assemblies_.end() && found->second->assigned) return false;
  bool spoiled = recently_decided_.contains(assign.first, assign.attempt);
  if (found != assemblies_.end()) { // blocks that came early: the event manager's word counts
    Assembly& early = *found->second;
    const bool same = early.range == assign.range() && early.attempt == assign.attempt;
    spoiled = spoiled || early.spoiled || (!same && early.attempt >= assign.attempt);
    if (!same) throw_away(early);
  }
  found = assemblies_.find(assign.first);
  Assembly& assembly =
      found != assemblies_.end() ? *found->second : open(assign.range(), assign.attempt);
  for (const auto& gap : gaps) {
    if (gap.end <= gap.first || gap.end > assign.range().end) return false;
    assembly.gaps.push_back(gap);
  }
  assembly.lost.insert(assembly.lost.end(), lost.begin(), lost.end());
  if (assign.more != 0) return true;
  assembly.assigned = true;
  --early_;
  assembly.epoch = assign.epoch;
  assembly.assigned_at = assembly.heard_at = fair_now();
  if (spoiled) {
    hand_back(assembly, std::nullopt);
    return true;
  }
  if (system_.protocol == Protocol::pull) {
    for (Readout& readout : readouts_) {
      if (readout.requests) readout.to_request.push_back(assign.first);
    }
  }
  if (assembly.open_sources == 0) {
    decide(assembly);
  } else {
    give_up_lost(assembly);
  }
  return true;
}

// A readout unit has died, which had these fragments; members that say so follow.
bool BuilderUnit::on_lost_fragments(std::span<const wire::MissingRun> lost) {
  if (incarnation_ == 0) return false;
  for (const wire::MissingRun& run : lost) {
    const EventNumber end = run.first + run.count;
    if (end < run.first || sources_.find(run.source) == System::npos) return false;
    auto at = assemblies_.upper_bound(run.first);
    if (at != assemblies_.begin()) --at;
    for (; at != assemblies_.end() && at->first < end; ++at) {
      Assembly& assembly = *at->second;
      const EventNumber first = std::max(run.first, assembly.range.first);
      const EventNumber until = std::min(end, assembly.range.end);
      if (!assembly.assigned || assembly.decided || first >= until) continue;
      assembly.lost.push_back({.source = run.source,
                               .count = static_cast<std::uint32_t>(until - first),
                               .first = first,
                               .reason = run.reason});
    }
  }
  return true;
}

// Pull (Moser 2007, figure 6): the builder unit asks each readout unit.
void BuilderUnit::send_requests(Readout& readout) {
  if (!readout.requests || readout.requests_to != readout.member) return;
  for (; !readout.to_request.empty() && readout.requests.roomy(); readout.to_request.pop_front()) {
    const auto found = assemblies_.find(readout.to_request.front());
    if (found == assemblies_.end() || !found->second->assigned || found->second->decided) continue;
    const Assembly& assembly = *found->second;
    wire::Assign assign;
    assign.first = assembly.range.first;
    assign.events = static_cast<std::uint32_t>(assembly.range.count());
    assign.attempt = assembly.attempt;
    assign.builder = options_.node;
    assign.builder_incarnation = incarnation_;
    assign.epoch = assembly.epoch;
    readout.requests.append(assign);
  }
  readout.requests.flush();
  if (readout.requests.failed()) readout.requests.link().close(true);
}

// Counters, and the names of files that are new. False: there is no room for all of it now.
template <class Message>
bool BuilderUnit::send_counters() {
  counters_.pages = options_.receive_pool->pages();
  counters_.pages_in_use = counters_.pages - options_.receive_pool->available();
  counters_.stored_bytes = sink_->bytes_written();
  const auto files = sink_->files();
  std::string names;
  std::size_t said = files_said_;
  for (; said < files.size(); ++said) {
    if (names.size() + files[said].size() + 1 > control_->room_max()) break;
    names += files[said] + "\n";
  }
  if (!control_->roomy(names.size())) return false;
  counters_.text_size = static_cast<std::uint32_t>(names.size());
  control_->send(Message{counters_}, std::string_view{names});
  files_said_ = said;
  return files_said_ == files.size();
}

// Before what is in them. False: there is no room to say it now.
bool BuilderUnit::say_files() {
  if (sink_->file_count() != files_said_) (void)send_counters<wire::Status>();
  return sink_->file_count() == files_said_;
}

// What was committed until now counts, and is said before. False: not all of it is on its way.
bool BuilderUnit::say_failed() {
  if (failure_said_) return control_->sent();
  report_progress();
  if (!received_.empty() || !handed_back_.empty() || !committed_.empty() ||
      !send_counters<wire::Status>())
    return false;
  const std::string_view why = std::string_view{failure_->text}.substr(0, control_->room_max());
  if (!control_->roomy(why.size())) return false;
  const wire::Failed failed{static_cast<std::uint32_t>(why.size()),
                            options_.failure_ends_run ? 1U : 0U};
  control_->send(failed, why);
  control_->flush();
  failure_said_ = true;
  return control_->sent();
}

void BuilderUnit::finish_if_written() {
  if (!finishing_ || !sink_->finished() || !received_.empty() || !committed_.empty()) return;
  while (files_said_ < sink_->files().size()) {
    if (!send_counters<wire::Status>() && !control_->roomy()) return;
  }
  if (!send_counters<wire::Finished>()) return;
  control_->flush();
  end({});
}

} // namespace fanin::builder
