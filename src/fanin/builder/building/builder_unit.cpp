#include "fanin/builder/building/builder_unit.hpp"

#include <algorithm>

#include "fanin/base/counted.hpp"
#include "fanin/base/try.hpp"
#include "fanin/builder/control/take_message.hpp"
#include "fanin/builder/rails.hpp"

namespace fanin::builder {

namespace {
constexpr Duration block_timeout_least = std::chrono::milliseconds{100};

Duration block_timeout(const System& system) {
  return std::max(system.event_deadline, block_timeout_least);
}
} // namespace

BuilderUnit::BuilderUnit(const System& system, BuilderOptions options, NodeEnvironment environment)
    : system_(system),
      sources_(system),
      options_(std::move(options)),
      environment_(std::move(environment)),
      status_tick_([this] {
        (void)send_counters<wire::Status>();
        status_tick_.start(*environment_.loop, environment_.loop->now() + status_period);
      }),
      members_(system.readout_units.size()),
      links_(system, environment_, *this),
      assembler_(system, sources_),
      storage_(*environment_.loop, environment_.log),
      overdue_(system.readout_units.size(), system.rails, block_timeout(system), system.dead_after,
               system.shaping.fills_carriers()),
      clock_(overdue_.period()),
      shortage_(block_timeout(system_)) {
  environment_.loop->add(*this);
}

BuilderUnit::~BuilderUnit() {
  environment_.loop->remove(*this);
  reset();
}

Result<> BuilderUnit::start() {
  const auto rails = FANIN_TRY(links_.listen(options_.data, *options_.receive_pool));
  wire::Hello hello;
  hello.role = wire::Role::builder_unit;
  hello.node = options_.node;
  hello.system_digest = system_.digest();
  hello.capacity = build_capacity(options_.receive_pool->pages() - options_.reserved_pages,
                                  options_.receive_pool->page_size(), system_.lanes());
  control_ = std::make_unique<ControlClient>(
      environment_,
      ControlClient::Options{
          .event_manager = options_.event_manager,
          .hello = hello,
          .text = system_.builder_units[options_.node] + "\n" + rails_text(rails),
          .patience = system_.control_patience(),
          .give_up_after = options_.give_up_after,
          .on_message = [this](wire::MessageType type,
                               std::span<const std::byte> body) { return on_control(type, body); },
          .on_lost = [this] { on_lost(); },
          .on_given_up = [this](const Error& error) { end(std::unexpected(error)); }});
  control_->start();
  return {};
}

bool BuilderUnit::poll() {
  storage_.forget_finished();
  if (working()) {
    storage_.submit();
    watch_blocks();
    send_requests();
    if (!storage_.failure()) {
      report();
      finish_if_written();
    } else if (report_failure()) {
      end(std::unexpected(*storage_.failure()));
      return false;
    }
  }
  if (control_) control_->flush();
  return false;
}

void BuilderUnit::end(Result<> result) {
  if (state_ == State::ended) return;
  reset();
  state_ = State::ended;
  if (control_) control_->stop();
  options_.on_end(result);
}

void BuilderUnit::reset() {
  if (state_ != State::ended) state_ = State::waiting;
  incarnation_ = 0;
  status_tick_.cancel();
  block_tick_.cancel();
  reporter_.clear();
  status_.clear();
  assembler_.clear();
  order_.clear();
  links_.end();
  members_.clear();
  for (std::size_t i = 0; i < members_.size(); ++i) overdue_.forget(static_cast<NodeId>(i));
  storage_.end();
}

void BuilderUnit::on_lost() {
  if (storage_.failure()) return end(std::unexpected(*storage_.failure()));
  reset();
}

// --- what the event manager says -----------------------------------------------------------------

bool BuilderUnit::on_control(wire::MessageType type, std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  switch (type) {
  case wire::MessageType::welcome: return take_message(reader, *this, &BuilderUnit::on_welcome);
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
  case wire::MessageType::lost: { // a readout unit has died; members that say so follow
    wire::Lost lost;
    if (!reader.read(lost)) return false;
    const auto runs = reader.records<wire::MissingRange>(lost.runs);
    return reader.ok() && working() && assembler_.add_lost(runs);
  }
  case wire::MessageType::finish: return on_finish();
  default: return false;
  }
}

bool BuilderUnit::on_welcome(const wire::Welcome& welcome) {
  reset();
  auto sink = options_.make_sink(welcome);
  if (!sink) {
    (void)send_failed(sink.error().text);
    end(std::unexpected(sink.error()));
    return true;
  }
  run_ = welcome.run;
  incarnation_ = welcome.incarnation;
  state_ = State::building;
  links_.begin(run_, incarnation_);
  assembler_.begin(run_);
  storage_.begin(
      std::move(*sink), [this](const storage::Committed& committed) { on_commit(committed); },
      [this](std::uint64_t ticket) { on_set_aside(ticket); });
  status_tick_.start(*environment_.loop, environment_.loop->now() + status_period);
  return true;
}

bool BuilderUnit::on_finish() {
  if (state_ != State::building) return false;
  state_ = State::finishing;
  storage_.sink().run_ended();
  storage_.sink().finish();
  return true;
}

bool BuilderUnit::on_members(const wire::Members& members,
                             std::span<const Incarnation> incarnations) {
  const bool first = members_.epoch() == 0;
  if (!working() || !members_.update(members.epoch, incarnations)) return false;
  if (first && state_ == State::building) {
    storage_.sink().run_began(members.began_unix_ns);
  }
  connections_changed();
  return true;
}

bool BuilderUnit::on_assign(const wire::Assign& assign, wire::MessageReader& reader) {
  const auto gaps = reader.records<wire::Gap>(assign.gaps);
  const auto lost = reader.records<wire::MissingRange>(assign.lost);
  if (!reader.ok() || !working() || assign.builder_incarnation != incarnation_ ||
      assign.events == 0 || assign.events > system_.batch_events ||
      assign.range().end < assign.first || assign.epoch > members_.epoch()) {
    return false;
  }
  const auto assigned = assembler_.assign(assign, gaps, lost);
  if (!assigned.valid || assigned.assembly == nullptr) return assigned.valid;
  Assembly& assembly = *assigned.assembly;
  assembly.assigned_at = assembly.heard_at = deadline_clock();
  if (system_.in_order) order_.assigned(assembly.range.first);
  if (assigned.blocks_dropped) {
    hand_back(assembly, std::nullopt);
    return true;
  }
  if (system_.protocol == Protocol::pull) links_.request(assign.first);
  if (assembly.open_sources == 0) {
    decide(assembly);
  } else {
    decide_without_lost(assembly);
  }
  return true;
}

// --- blocks --------------------------------------------------------------------------------------

void BuilderUnit::block(const Lane& lane, const net::Event& event) {
  const NodeId node = lane.readout;
  const auto block = wire::decode_data_block(event.message.bytes(), event.rest.bytes());
  if (!block) return links_.hang_up(lane, block.error().text);
  const wire::DataBlockHeader& header = block->header;
  if (header.fills_carrier != 0) links_.carrier_filled(lane);
  counters_.bytes += header.payload_size;
  ++counters_.messages;
  if (header.run != run_ || header.builder_incarnation != incarnation_ ||
      header.readout_incarnation != links_.connected(node)) {
    assembler_.count_stale();
    return;
  }
  const std::size_t source = sources_.find(header.source);
  if (source == System::npos || system_.sources[source].readout_unit != node ||
      !lane.carries(source - system_.sources_of(node).first) || header.readout_unit != node ||
      header.batch_events > system_.batch_events) {
    return links_.hang_up(
        lane, fmt::format("block of source {:#x}, which is not its own", header.source));
  }
  if (system_.integrity && header.checksum == 0) {
    return links_.hang_up(lane,
                          fmt::format("block of source {:#x} without a checksum", header.source));
  }
  overdue_.heard(lane);
  const auto added = assembler_.add({*block, event.message, event.rest, source});
  if (added.early != nullptr) added.early->heard_at = deadline_clock();
  if (added.batch != nullptr) overdue_.heard(lane, *added.batch);
  if (!added.wrong.empty()) return links_.hang_up(lane, added.wrong);
  if (added.complete != nullptr) decide(*added.complete);
}

// It connects again and sends all that it owes. If this comes again and again, whatever good blocks
// come between, nobody waits for it longer than for one of which nothing comes.
void BuilderUnit::data_refused(const Lane& lane) {
  const Duration long_ago = deadline_clock() - block_timeout(system_);
  if (assembler_.owes(lane, long_ago)) give_back(lane, "nothing valid comes");
}

void BuilderUnit::connections_changed() {
  const auto& assemblies = assembler_.assemblies();
  for (auto entry = assemblies.begin(); entry != assemblies.end();) {
    Assembly& assembly = *(entry++)->second; // deciding may end in a commit, which releases it
    decide_without_lost(assembly);
  }
}

// Gives up sources whose readout unit is dead, for good and with nothing left on its connection.
// The event manager has said what it had, which is lost, and what it did not read. Of the rest
// there was nothing.
void BuilderUnit::decide_without_lost(Assembly& assembly) {
  if (assembly.state != AssemblyState::assigned) return;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    if (!members_.gives_nothing(node, assembly.epoch, links_.connected(node))) continue;
    assembler_.give_up(assembly, node);
  }
  if (assembly.open_sources == 0) decide(assembly);
}

void BuilderUnit::decide(Assembly& assembly) {
  assembler_.decide(assembly);
  const auto damaged = [](const wire::BadFragment& one) {
    return (one.flags & ~wire::fragment_in_doubt) != 0;
  };
  if (const auto first = std::ranges::find_if(assembly.bad, damaged); first != assembly.bad.end()) {
    const auto count = static_cast<std::uint64_t>(std::ranges::count_if(assembly.bad, damaged));
    damage_lines_.write(environment_.log, environment_.loop->now(), LogLevel::error,
                        fmt::format("{} in events {} to {}, the first of source {:#x}",
                                    counted(count, "damaged fragment"), assembly.range.first,
                                    assembly.range.end - 1, first->source));
  }
  for (const MergedContents::NotFitting& not_fitting : assembler_.merged().not_fitting()) {
    not_fitting_lines_.write(environment_.log, environment_.loop->now(), LogLevel::error,
                             text_of(not_fitting, system_));
  }
  reporter_.received(assembly);
  if (!system_.in_order) return storage_.add(assembly);
  order_.decided(assembly);
  while (Assembly* const next = order_.next()) storage_.add(*next);
}

void BuilderUnit::on_commit(const storage::Committed& committed) {
  Assembly* const assembly = assembler_.find(committed.ticket);
  FANIN_ASSERT(assembly != nullptr && assembly->state == AssemblyState::decided);
  assembly->rejected = committed.rejected;
  assembly->undecided = committed.undecided;
  assembly->undelivered = committed.undelivered;
  reporter_.committed(*assembly);
}

void BuilderUnit::on_set_aside(std::uint64_t ticket) {
  const Assembly* const assembly = assembler_.find(ticket);
  FANIN_ASSERT(assembly != nullptr && assembly->state == AssemblyState::decided);
  reporter_.set_aside(*assembly);
}

void BuilderUnit::hand_back(Assembly& assembly, std::optional<NodeId> blamed) {
  reporter_.handed_back(assembly, blamed);
  assembler_.hand_back(assembly);
}

// --- blocks that do not come ---------------------------------------------------------------------

// Stands still also while this node or its storage has no buffer: a slow disk is nobody else's
// fault.
Duration BuilderUnit::deadline_clock() {
  const bool held_up = storage_.held_up() || options_.receive_pool->available() == 0;
  return clock_.read(environment_.loop->now(), held_up);
}

void BuilderUnit::watch_blocks() {
  if (assembler_.assemblies().empty()) {
    block_tick_.cancel();
    clock_.pause();
    (void)shortage_.lasts(false, environment_.loop->now());
    return;
  }
  watch_pages();
  const Duration now = deadline_clock();
  if (overdue_.due(now)) {
    const std::vector<Lane> lanes = member_lanes();
    for (const Lane& lane : lanes) {
      if (links_.take_progress(lane) || links_.waits_for_grant(lane)) overdue_.heard(lane);
    }
    const auto found = overdue_.check(assembler_, now, lanes);
    for (Assembly* const assembly : found.stuck) {
      if (assembly->state == AssemblyState::assigned) {
        hand_back(*assembly, assembler_.owing(*assembly, lanes));
      } else {
        assembler_.throw_away(*assembly); // of no batch, or of one that was decided long ago
      }
    }
    for (const Lane& lane : found.unreachable) give_back(lane, "nothing comes");
  }
  if (!block_tick_.active()) {
    block_tick_.start(*environment_.loop, environment_.loop->now() + overdue_.period());
  }
}

void BuilderUnit::watch_pages() {
  const bool none = options_.receive_pool->available() == 0 && !storage_.writes_earlier() &&
                    !PageShortage::storage_has_any(assembler_, system_.in_order);
  if (!shortage_.lasts(none, environment_.loop->now())) return;
  const std::vector<Assembly*> given_up = PageShortage::to_give_up(assembler_);
  std::vector<std::uint64_t> bytes(system_.readout_units.size());
  for (Assembly* const assembly : given_up) {
    for (const auto& piece : assembly->batch.pieces) {
      bytes[system_.sources[sources_.find(piece.source)].readout_unit] +=
          std::uint64_t{piece.table.size} + piece.payload.size;
    }
    if (assembly->state == AssemblyState::assigned) {
      hand_back(*assembly, std::nullopt);
    } else {
      assembler_.throw_away(*assembly);
    }
  }
  const auto most = static_cast<std::size_t>(std::ranges::max_element(bytes) - bytes.begin());
  shortage_lines_.write(
      environment_.log, environment_.loop->now(), LogLevel::warning,
      fmt::format("no buffer is free, and nothing is being stored: {} given up, to be built again; "
                  "most of the data are from readout unit '{}'",
                  counted(given_up.size(), "batch is", "batches are"),
                  system_.readout_units[most]));
}

std::vector<Lane> BuilderUnit::member_lanes() const {
  std::vector<Lane> lanes;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    if (members_.incarnation(node) == 0) continue;
    const std::size_t count = links_.lanes(node);
    for (std::size_t lane = 0; lane < count; ++lane) lanes.push_back({node, lane, count});
  }
  return lanes;
}

// What was to come over this lane is built elsewhere, or comes over another one.
void BuilderUnit::give_back(const Lane& lane, std::string_view what) {
  const std::vector<Assembly*> owed = assembler_.owed_by(lane);
  std::uint64_t events = 0;
  for (const Assembly* const assembly : owed)
    events += wire::events_of(assembly->range, assembly->gaps);
  environment_.log(LogLevel::warning,
                   fmt::format("{} from readout unit '{}'{}: {} given back, to be built elsewhere",
                               what, system_.readout_units[lane.readout], links_.rail_text(lane),
                               counted(events, "event is", "events are")));
  links_.drop(lane);
  for (Assembly* const assembly : owed) hand_back(*assembly, lane.readout);
}

// --- requests and reports ------------------------------------------------------------------------

void BuilderUnit::requests_opened(NodeId readout) {
  for (const auto& [first, assembly] : assembler_.assemblies()) {
    if (assembly->state == AssemblyState::assigned) links_.request(readout, first);
  }
}

// Pull (Moser 2007, figure 6): the builder unit asks each readout unit. With shaping it grants what
// they may send, in both flows.
void BuilderUnit::send_requests() {
  links_.grant([this](const Lane& lane) { return assembler_.owes(lane); });
  links_.send_requests([this](NodeId node) { return members_.incarnation(node); },
                       [this](EventNumber first) -> std::optional<wire::Assign> {
                         const Assembly* const assembly = assembler_.find(first);
                         if (assembly == nullptr || assembly->state != AssemblyState::assigned) {
                           return {};
                         }
                         return assembly->request(options_.node, incarnation_);
                       });
  links_.send_grants();
}

const wire::NodeCounters& BuilderUnit::counters() {
  counters_.pages = options_.receive_pool->pages();
  counters_.pages_in_use = counters_.pages - options_.receive_pool->available();
  if (working()) counters_.stored_bytes = storage_.sink().bytes_written();
  counters_.late = assembler_.late();
  counters_.stale = assembler_.stale() + links_.stale();
  return counters_;
}

template <class Message>
bool BuilderUnit::send_counters() {
  (void)counters();
  return status_.send<Message>(*control_, storage_.sink(), counters_);
}

void BuilderUnit::report() {
  links_.report(*control_); // before what follows from it
  for (Assembly* const assembly : reporter_.report(*control_, status_, storage_.sink())) {
    assembler_.release(*assembly);
  }
}

// What was committed until now counts, and is said before. False: not all of it is on its way.
bool BuilderUnit::report_failure() {
  if (failure_reported_) return control_->sent();
  report();
  if (!reporter_.done() || !send_counters<wire::Status>()) return false;
  failure_reported_ = send_failed(storage_.failure()->text);
  return failure_reported_ && control_->sent();
}

bool BuilderUnit::send_failed(std::string_view why) {
  why = why.substr(0, control_->room_max());
  if (!control_->roomy(why.size())) return false;
  const wire::Failed failed{static_cast<std::uint32_t>(why.size()),
                            options_.failure_ends_run ? 1U : 0U};
  control_->send(failed, why);
  control_->flush();
  return true;
}

void BuilderUnit::finish_if_written() {
  if (state_ != State::finishing || !storage_.sink().finished() || !reporter_.done()) return;
  if (!send_counters<wire::Finished>()) return;
  control_->flush();
  end({});
}

} // namespace fanin::builder
