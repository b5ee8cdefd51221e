#include "fanin/builder/builder_unit.hpp"

#include <algorithm>

#include "fanin/wire/checksum.hpp"

namespace fanin::builder {

namespace {
constexpr Duration status_period = std::chrono::milliseconds{250};
constexpr std::uint64_t pages_per_connection = 2; // one being filled, one just begun
constexpr std::size_t recent_size = 8192;         // a power of two

std::size_t recent_slot(EventNumber first) {
  return static_cast<std::size_t>((first * 0x9e3779b97f4a7c15U) >> 51) % recent_size;
}
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
    : system_(system), digest_(system.digest()), options_(std::move(options)), environment_(std::move(environment)),
      status_tick_([this] {
        send_status(false);
        status_tick_.start(*environment_.loop, environment_.loop->now() + status_period);
      }),
      deadline_tick_([] {}), readouts_(system.readout_units.size()), recent_(recent_size) {
  for (std::size_t i = 0; i < system_.sources.size(); ++i) {
    source_index_.emplace_back(system_.sources[i].id, i);
  }
  std::ranges::sort(source_index_);
  environment_.loop->add(*this);
}

BuilderUnit::~BuilderUnit() {
  environment_.loop->remove(*this);
  reset();
  for (auto& sink : old_sinks_) environment_.loop->remove(*sink);
  if (transport_ != nullptr) transport_->close_listener(listener_);
}

Result<> BuilderUnit::start() {
  const auto transport = environment_.transports->find(options_.data);
  if (!transport) return std::unexpected(transport.error());
  transport_ = *transport;
  const auto listener = transport_->listen(
      options_.data, {.receive_pool = options_.receive_pool, .handler = this});
  if (!listener) return std::unexpected(listener.error());
  listener_ = *listener;

  wire::Hello hello;
  hello.role = wire::Role::builder_unit;
  hello.node = options_.node;
  hello.system_digest = digest_;
  hello.capacity = build_capacity(options_.receive_pool->pages(), options_.receive_pool->page_size(),
                                  system_.readout_units.size());
  control_ = std::make_unique<ControlClient>(
      environment_,
      ControlClient::Options{
          .event_manager = options_.event_manager,
          .hello = hello,
          .text = system_.builder_units[options_.node] + "\n" +
                  transport_->listening_url(listener_).text(),
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
  deadline_tick_.cancel();
  decided_.clear();
  due_.clear();
  while (!assemblies_.empty()) release(*assemblies_.begin()->second);
  for (auto& readout : readouts_) {
    readout.data.close(true);
    readout.requests.link().close(true);
    readout = {};
  }
  for (const auto& [link, node] : links_) transport_->close(link, true);
  links_.clear();
  if (sink_) { // what it holds is still written; whether it counts is the event manager's business
    sink_->on_commit([](std::uint64_t) {});
    sink_->finish();
    old_sinks_.push_back(std::move(sink_));
  }
}

void BuilderUnit::on_lost() { reset(); }

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
    return reader.read(assign) && on_assign(assign);
  }
  case wire::MessageType::finish:
    on_finish();
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

bool BuilderUnit::on_assign(const wire::Assign& assign) {
  if (incarnation_ == 0 || assign.builder_incarnation != incarnation_ || assign.events == 0 ||
      assign.events > system_.batch_events || assign.range().end < assign.first ||
      assign.epoch > epoch_) {
    return false;
  }
  const auto found = assemblies_.find(assign.first);
  Assembly& assembly = found != assemblies_.end() ? *found->second
                                                  : open(assign.range(), assign.attempt);
  if (assembly.range != assign.range() || assembly.attempt != assign.attempt || assembly.assigned) {
    return false;
  }
  assembly.assigned = true;
  assembly.epoch = assign.epoch;
  if (system_.protocol == Protocol::pull) {
    for (std::size_t i = 0; i < readouts_.size(); ++i) request(assembly, static_cast<NodeId>(i));
  }
  due_.push_back({fair_clock() + system_.event_deadline, assembly.range.first, assembly.attempt});
  if (assembly.open_sources == 0) {
    decide(assembly);
  } else {
    give_up_lost(assembly);
  }
  return true;
}

// Pull (seed 003, figure 6): the builder unit asks each readout unit.
void BuilderUnit::request(Assembly& assembly, NodeId node) {
  wire::Assign assign;
  assign.first = assembly.range.first;
  assign.events = static_cast<std::uint32_t>(assembly.range.count());
  assign.attempt = assembly.attempt;
  assign.builder = options_.node;
  assign.builder_incarnation = incarnation_;
  assign.epoch = assembly.epoch;
  Readout& readout = readouts_[node];
  if (readout.requests && readout.requests_to == readout.member) readout.requests.append(assign);
}

void BuilderUnit::on_finish() {
  finishing_ = true;
  sink_->finish();
}

void BuilderUnit::send_status(bool last) {
  if (incarnation_ == 0) return;
  counters_.pages = options_.receive_pool->pages();
  counters_.pages_in_use = counters_.pages - options_.receive_pool->available();
  counters_.stored_bytes = sink_->bytes_written();
  std::string names;
  for (const auto& file : sink_->files()) names += file + "\n";
  if (names.size() > control_->room_max()) names.resize(control_->room_max());
  counters_.text_size = static_cast<std::uint32_t>(names.size());
  if (last) {
    control_->send(wire::Finished{counters_}, std::string_view{names});
  } else {
    control_->send(wire::Status{counters_}, std::string_view{names});
  }
}

// --- data ----------------------------------------------------------------------------------------

void BuilderUnit::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  switch (event.kind) {
  case net::EventKind::message: {
    const auto known = links_.find(event.connection);
    if (known == links_.end()) return on_hello(link, event.message);
    return on_part(readouts_[known->second], known->second, event.message);
  }
  case net::EventKind::writable:
    for (auto& readout : readouts_) {
      if (readout.requests.link() == link) readout.requests.flush();
    }
    break;
  case net::EventKind::closed:
    for (auto& readout : readouts_) {
      if (readout.requests.link() == link) readout.requests = {};
    }
    if (const auto known = links_.find(event.connection); known != links_.end()) {
      readouts_[known->second].data = {};
      readouts_[known->second].connected = 0;
      links_.erase(known);
      give_up_lost();
    }
    break;
  case net::EventKind::accepted:
  case net::EventKind::connected: break;
  }
}

void BuilderUnit::hang_up(net::Link link, std::string_view why) {
  environment_.log(LogLevel::error, fmt::format("{}: {}; connection closed", link.peer(), why));
  if (const auto known = links_.find(link.id); known != links_.end()) {
    readouts_[known->second].data = {};
    readouts_[known->second].connected = 0;
    links_.erase(known);
  }
  link.close(true);
  give_up_lost();
}

void BuilderUnit::on_hello(net::Link link, const memory::View& page) {
  wire::Hello hello;
  const bool good = message::for_each_message(
      page.bytes(), [&](wire::MessageType type, std::span<const std::byte> body) {
        wire::MessageReader reader{body};
        return type == wire::MessageType::hello && reader.read(hello);
      });
  if (!good || hello.version != wire::protocol_version || hello.node >= readouts_.size() ||
      (hello.role != wire::Role::data && hello.role != wire::Role::request)) {
    return hang_up(link, "not a readout unit of this version");
  }
  if (incarnation_ == 0 || hello.run != run_ || hello.peer_incarnation != incarnation_ ||
      hello.system_digest != digest_) {
    ++counters_.stale;
    link.close(true);
    return;
  }
  Readout& readout = readouts_[hello.node];
  if (hello.role == wire::Role::request) {
    readout.requests.link().close(true);
    readout.requests = message::Gather{link, *environment_.control_pool};
    readout.requests_to = hello.incarnation;
    for (auto& [first, assembly] : assemblies_) {
      if (assembly->assigned && !assembly->decided) request(*assembly, hello.node);
    }
    return;
  }
  if (readout.data) {
    links_.erase(readout.data.id);
    readout.data.close(true);
  }
  readout.data = link;
  readout.connected = hello.incarnation;
  links_[link.id] = hello.node;
  give_up_lost();
}

void BuilderUnit::on_part(Readout& readout, NodeId node, const memory::View& message) {
  const net::Link link = readout.data;
  const auto part = wire::decode_part(message.bytes());
  if (!part) return hang_up(link, part.error().text);
  const wire::PartHeader& header = part->header;
  counters_.bytes += header.payload_size;
  ++counters_.messages;
  if (header.run != run_ || header.builder_incarnation != incarnation_ ||
      header.readout_incarnation != readout.connected) {
    ++counters_.stale;
    return;
  }
  const auto index = std::ranges::lower_bound(source_index_, header.source, {},
                                              &std::pair<SourceId, std::size_t>::first);
  if (index == source_index_.end() || index->first != header.source ||
      system_.sources[index->second].readout_unit != node || header.readout_unit != node ||
      header.batch_events > system_.batch_events) {
    return hang_up(link, fmt::format("part of source {}, which is not its own", header.source));
  }
  auto found = assemblies_.find(header.batch_first);
  if (found == assemblies_.end()) {
    if (was_decided(header.batch_first, header.attempt)) {
      ++counters_.late;
      return;
    }
    // Nothing is ordered across connections: the data may be here before the assignment.
    Assembly& early = open(header.batch(), header.attempt);
    due_.push_back({fair_clock() + system_.event_deadline, early.range.first, early.attempt});
    found = assemblies_.find(header.batch_first);
  }
  Assembly& assembly = *found->second;
  if (assembly.range != header.batch() || assembly.attempt != header.attempt) {
    ++counters_.stale;
    return;
  }
  if (assembly.decided) {
    ++counters_.late;
    return;
  }
  Progress& progress = assembly.progress[index->second];
  if (header.first_event < progress.next ||
      (header.first_event == progress.next && header.payload_offset < progress.payload_offset)) {
    ++counters_.stale; // sent again after a lost connection
    return;
  }
  if (header.first_event != progress.next || header.payload_offset != progress.payload_offset) {
    return hang_up(link, fmt::format("source {} left out a part of event {}", header.source,
                                     progress.next));
  }
  const auto table_size = static_cast<std::uint32_t>(part->table.size_bytes());
  assembly.batch.pieces.push_back({.source = header.source,
                                   .range = header.events(),
                                   .table = message.part(sizeof header, table_size),
                                   .payload = message.part(sizeof header + table_size, header.payload_size),
                                   .payload_offset = header.payload_offset});
  assembly.bytes += header.payload_size;
  if (part->partial()) {
    accept_partial(assembly, progress, *part);
  } else {
    check_fragments(assembly, *part);
    progress.next = header.events().end;
  }
  if (progress.next == assembly.range.end) {
    --assembly.open_sources;
    if (assembly.open_sources == 0 && assembly.assigned) decide(assembly);
  }
}

// A piece of a fragment that spans messages: its checksum is known with the last one.
void BuilderUnit::accept_partial(Assembly& assembly, Progress& progress,
                                 const wire::PartView& part) {
  const wire::FragmentEntry& entry = part.table.front();
  if (system_.checksum) progress.crc32c = wire::crc32c(part.payload, progress.crc32c);
  progress.payload_offset += part.header.payload_size;
  if (progress.payload_offset < entry.size()) return;
  std::uint32_t flags = entry.flags();
  if (system_.checksum && progress.crc32c != entry.crc32c) flags |= wire::fragment_bad_checksum;
  if (flags != 0) assembly.bad.push_back({part.header.first_event, part.header.source, flags});
  progress = {part.header.first_event + 1, 0, 0};
}

// The hot path: once per fragment.
void BuilderUnit::check_fragments(Assembly& assembly, const wire::PartView& part) {
  const std::byte* payload = part.payload.data();
  const bool checksum = system_.checksum;
  EventNumber event = part.header.first_event;
  for (const wire::FragmentEntry& entry : part.table) {
    const std::uint32_t size = entry.size();
    std::uint32_t flags = entry.flags();
    if (checksum && size != 0 && wire::crc32c({payload, size}) != entry.crc32c) {
      flags |= wire::fragment_bad_checksum;
    }
    if (flags != 0) [[unlikely]] {
      if ((flags & wire::fragment_absent) != 0) {
        add_missing(assembly, part.header.source, {event, event + 1},
                    storage::MissingReason::absent);
      } else {
        assembly.bad.push_back({event, part.header.source, flags});
      }
    }
    payload += size;
    ++event;
  }
}

// --- deciding ------------------------------------------------------------------------------------

BuilderUnit::Assembly& BuilderUnit::open(EventRange range, Attempt attempt) {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<Assembly>());
    spare_.push_back(all_.back().get());
  }
  Assembly& assembly = *spare_.back();
  spare_.pop_back();
  assembly.range = range;
  assembly.attempt = attempt;
  assembly.assigned = assembly.decided = false;
  assembly.bytes = 0;
  assembly.incomplete = 0;
  assembly.open_sources = static_cast<std::uint32_t>(system_.sources.size());
  assembly.progress.assign(system_.sources.size(), Progress{range.first, 0, 0});
  assemblies_[range.first] = &assembly;
  return assembly;
}

void BuilderUnit::release(Assembly& assembly) {
  assemblies_.erase(assembly.range.first);
  assembly.batch.pieces.clear();
  assembly.batch.missing.clear();
  assembly.batch.gaps.clear();
  assembly.batch.bad.clear();
  assembly.missing.clear();
  assembly.bad.clear();
  assembly.gaps.clear();
  spare_.push_back(&assembly);
}

void BuilderUnit::add_missing(Assembly& assembly, SourceId source, EventRange events,
                              storage::MissingReason reason) {
  const auto why = static_cast<std::uint32_t>(reason);
  if (!assembly.missing.empty()) {
    wire::MissingRun& last = assembly.missing.back();
    if (last.source == source && last.reason == why && last.first + last.count == events.first) {
      last.count += static_cast<std::uint32_t>(events.count());
      return;
    }
  }
  assembly.missing.push_back(
      {source, static_cast<std::uint32_t>(events.count()), events.first, why, 0});
}

void BuilderUnit::give_up_source(Assembly& assembly, std::size_t source,
                                 storage::MissingReason reason) {
  Progress& progress = assembly.progress[source];
  if (progress.next == assembly.range.end) return;
  if (progress.payload_offset != 0) { // a fragment of which only a part has come
    auto& pieces = assembly.batch.pieces;
    std::erase_if(pieces, [&](const storage::SourcePiece& piece) {
      if (piece.source != system_.sources[source].id || piece.range.first != progress.next) return false;
      assembly.bytes -= piece.payload.size;
      return true;
    });
  }
  add_missing(assembly, system_.sources[source].id, {progress.next, assembly.range.end}, reason);
  progress = {assembly.range.end, 0, 0};
  --assembly.open_sources;
}

// Sources whose readout unit is dead, for good and with nothing left on its connection.
void BuilderUnit::give_up_lost(Assembly& assembly) {
  if (!assembly.assigned || assembly.decided) return;
  for (std::size_t node = 0; node < readouts_.size(); ++node) {
    const Readout& readout = readouts_[node];
    const bool is_member = readout.member != 0 && readout.member_since <= assembly.epoch;
    const bool drained = readout.connected == 0 || readout.connected == readout.member;
    if (is_member || !drained) continue;
    const auto [first, last] = system_.sources_of(static_cast<NodeId>(node));
    for (std::size_t source = first; source < last; ++source) {
      give_up_source(assembly, source, storage::MissingReason::lost);
    }
  }
  if (assembly.open_sources == 0) decide(assembly);
}

void BuilderUnit::give_up_lost() {
  for (auto entry = assemblies_.begin(); entry != assemblies_.end();) {
    Assembly& assembly = *entry->second;
    ++entry; // deciding may end in a commit, which releases the assembly
    give_up_lost(assembly);
  }
}

void BuilderUnit::decide(Assembly& assembly) {
  assembly.decided = true;
  if (!assembly.missing.empty()) find_gaps(assembly);
  if (!assembly.bad.empty()) {
    environment_.log(LogLevel::error,
                     fmt::format("{} damaged fragments in events {} to {}, the first of source {}",
                                 assembly.bad.size(), assembly.range.first, assembly.range.end - 1,
                                 assembly.bad.front().source));
  }
  note_decided(assembly.range.first, assembly.attempt);
  storage::BuiltBatch& batch = assembly.batch;
  batch.ticket = assembly.range.first;
  batch.range = assembly.range;
  batch.attempt = assembly.attempt;
  for (const auto& run : assembly.missing) {
    batch.missing.push_back({{run.first, run.first + run.count}, run.source,
                             static_cast<storage::MissingReason>(run.reason)});
  }
  for (const auto& gap : assembly.gaps) batch.gaps.push_back({gap.first, gap.end});
  for (const auto& bad : assembly.bad) batch.bad.push_back({bad.event, bad.source, bad.flags});
  control_->send(wire::Received{assembly.range.first, assembly.attempt});
  decided_.push_back(&assembly);
  submit_decided();
}

// Numbers that no source has are gaps, not events; what is missing for the others makes them
// incomplete if the source is required.
void BuilderUnit::find_gaps(Assembly& assembly) {
  const auto count = static_cast<std::size_t>(assembly.range.count());
  std::vector<std::uint32_t> missing(count);
  std::vector<bool> incomplete(count);
  std::vector<bool> someone_says_absent(count);
  for (const auto& run : assembly.missing) {
    const bool absent = run.reason == static_cast<std::uint32_t>(storage::MissingReason::absent);
    const bool late = run.reason == static_cast<std::uint32_t>(storage::MissingReason::deadline);
    const bool required = system_.sources[system_.find_source(run.source)].required;
    for (std::size_t i = 0; i < run.count; ++i) {
      const auto at = static_cast<std::size_t>(run.first - assembly.range.first) + i;
      missing[at] += late ? 0 : 1;
      if (absent) someone_says_absent[at] = true;
      if (required) incomplete[at] = true;
    }
  }
  const auto is_gap = [&](EventNumber event) {
    const auto at = static_cast<std::size_t>(event - assembly.range.first);
    return missing[at] == system_.sources.size() && someone_says_absent[at];
  };
  for (EventNumber event = assembly.range.first; event < assembly.range.end; ++event) {
    if (!is_gap(event)) {
      assembly.incomplete += incomplete[static_cast<std::size_t>(event - assembly.range.first)] ? 1U : 0U;
    } else if (!assembly.gaps.empty() && assembly.gaps.back().end == event) {
      ++assembly.gaps.back().end;
    } else {
      assembly.gaps.push_back({event, event + 1});
    }
  }
  if (assembly.gaps.empty()) return;
  const auto runs = std::exchange(assembly.missing, {});
  for (const auto& run : runs) {
    for (EventNumber event = run.first; event < run.first + run.count; ++event) {
      if (is_gap(event)) continue;
      add_missing(assembly, run.source, {event, event + 1},
                  static_cast<storage::MissingReason>(run.reason));
    }
  }
}

void BuilderUnit::submit_decided() {
  while (!decided_.empty()) {
    Assembly& assembly = *decided_.front();
    if (sink_->submit(assembly.batch) == storage::SubmitOutcome::busy) return;
    decided_.pop_front();
  }
}

void BuilderUnit::on_commit(std::uint64_t ticket) {
  const auto found = assemblies_.find(ticket);
  FANIN_ASSERT(found != assemblies_.end() && found->second->decided);
  report(*found->second);
  release(*found->second);
}

// Says what was built; long lists of exceptions go ahead in messages of their own.
void BuilderUnit::report(const Assembly& assembly) {
  std::span missing{assembly.missing};
  std::span bad{assembly.bad};
  std::span gaps{assembly.gaps};
  wire::Built built;
  built.first = assembly.range.first;
  built.events = static_cast<std::uint32_t>(assembly.range.count());
  built.attempt = assembly.attempt;
  built.bytes = assembly.bytes;
  built.incomplete = assembly.incomplete;
  const std::size_t records = control_->room_max() / sizeof(wire::MissingRun) / 3;
  do {
    const auto some_missing = missing.first(std::min(missing.size(), records));
    const auto some_bad = bad.first(std::min(bad.size(), records));
    const auto some_gaps = gaps.first(std::min(gaps.size(), records));
    missing = missing.subspan(some_missing.size());
    bad = bad.subspan(some_bad.size());
    gaps = gaps.subspan(some_gaps.size());
    built.missing_runs = static_cast<std::uint32_t>(some_missing.size());
    built.bad = static_cast<std::uint32_t>(some_bad.size());
    built.gaps = static_cast<std::uint32_t>(some_gaps.size());
    built.more = missing.empty() && bad.empty() && gaps.empty() ? 0 : 1;
    control_->send(built, some_missing, some_bad, some_gaps);
  } while (built.more != 0);
}

void BuilderUnit::note_decided(EventNumber first, Attempt attempt) {
  recent_[recent_slot(first)] = {first + 1, attempt}; // 0: an empty slot
}

bool BuilderUnit::was_decided(EventNumber first, Attempt attempt) const {
  return recent_[recent_slot(first)] == std::pair{first + 1, attempt};
}

// Time that stands still while this node or its storage has no buffer: a slow disk makes no event
// incomplete.
Duration BuilderUnit::fair_clock() {
  const Time now = environment_.loop->now();
  const bool stalled = !decided_.empty() || options_.receive_pool->available() == 0;
  if (stalled && stalled_since_ == never) stalled_since_ = now;
  if (!stalled && stalled_since_ != never) {
    stalled_ += now - stalled_since_;
    stalled_since_ = never;
  }
  return (stalled_since_ == never ? now : stalled_since_).time_since_epoch() - stalled_;
}

void BuilderUnit::check_deadlines() {
  const Duration now = fair_clock();
  while (!due_.empty()) {
    const auto [due, first, attempt] = due_.front();
    const auto found = assemblies_.find(first);
    const bool open = found != assemblies_.end() && found->second->attempt == attempt &&
                      !found->second->decided;
    if (open && due > now) break;
    due_.pop_front();
    if (!open) continue;
    Assembly& assembly = *found->second;
    if (!assembly.assigned) { // late parts of a batch decided long ago, or of no batch at all
      counters_.late += assembly.batch.pieces.size();
      release(assembly);
      continue;
    }
    for (std::size_t source = 0; source < system_.sources.size(); ++source) {
      give_up_source(assembly, source, storage::MissingReason::deadline);
    }
    decide(assembly);
  }
  if (due_.empty()) {
    deadline_tick_.cancel();
  } else if (!deadline_tick_.active()) {
    const Duration wait = due_.front().due - now;
    deadline_tick_.start(*environment_.loop,
                         environment_.loop->now() + std::max<Duration>(wait, std::chrono::microseconds{50}));
  }
}

bool BuilderUnit::poll() {
  std::erase_if(old_sinks_, [this](const auto& sink) {
    if (!sink->finished()) return false;
    environment_.loop->remove(*sink);
    return true;
  });
  if (incarnation_ != 0) {
    submit_decided();
    check_deadlines();
    for (auto& readout : readouts_) {
      if (!readout.requests) continue;
      readout.requests.flush();
      if (readout.requests.failed()) readout.requests.link().close(true);
    }
    if (failure_) {
      end(std::unexpected(*failure_));
      return false;
    }
    if (finishing_ && sink_->finished()) {
      send_status(true);
      control_->flush();
      end({});
      return false;
    }
  }
  if (control_) control_->flush();
  return false;
}

} // namespace fanin::builder
