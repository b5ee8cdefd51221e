// Connections of readout units and the parts that come over them.
#include "fanin/builder/builder_unit.hpp"

#include <algorithm>

#include "fanin/wire/checksum.hpp"

namespace fanin::builder {

namespace {
// Batches of which blocks have come before their assignment; what is beyond is thrown away, and
// sent again.
constexpr std::size_t early_max = 4096;

storage::MissingReason reason_of(const wire::FragmentEntry& absent) {
  switch (static_cast<wire::AbsentReason>(absent.crc32c)) {
  case wire::AbsentReason::silent: return storage::MissingReason::deadline;
  case wire::AbsentReason::dropped: return storage::MissingReason::dropped;
  case wire::AbsentReason::none: break;
  }
  return storage::MissingReason::absent;
}
} // namespace

void BuilderUnit::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  switch (event.kind) {
  case net::EventKind::message: {
    const auto known = links_.find(link);
    if (known == links_.end()) return on_hello(link, event.message);
    return on_part(readouts_[known->second], known->second, event);
  }
  case net::EventKind::writable:
    for (auto& readout : readouts_) {
      if (readout.requests.link() == link) readout.requests.flush();
    }
    break;
  case net::EventKind::accepted: {
    const Time now = environment_.loop->now();
    if (strangers_.empty()) stranger_tick_.start(*environment_.loop, now + system_.dead_after);
    strangers_.push_back({link, now});
    break;
  }
  case net::EventKind::closed:
    forget_stranger(link);
    for (auto& readout : readouts_) {
      if (readout.requests.link() != link) continue;
      readout.requests = {};
      readout.requests_to = 0;
      readout.to_request.clear();
    }
    if (const auto known = links_.find(link); known != links_.end()) {
      disconnect(readouts_[known->second]);
      give_up_lost();
    }
    break;
  case net::EventKind::connected: break;
  }
}

void BuilderUnit::forget_stranger(net::Link link) {
  std::erase_if(strangers_, [&](const Stranger& stranger) { return stranger.link == link; });
}

void BuilderUnit::close_silent_strangers() {
  const Time now = environment_.loop->now();
  while (!strangers_.empty() && now - strangers_.front().since >= system_.dead_after) {
    const net::Link link = strangers_.front().link;
    strangers_.erase(strangers_.begin());
    hang_up(link, "connected, and never said hello");
  }
  if (!strangers_.empty()) {
    stranger_tick_.start(*environment_.loop, strangers_.front().since + system_.dead_after);
  }
}

void BuilderUnit::hang_up(net::Link link, std::string_view why) {
  const std::string text = fmt::format("{}: {}; connection closed", link.peer(), why);
  if (const auto known = links_.find(link); known != links_.end()) {
    environment_.log(LogLevel::error, text);
    disconnect(readouts_[known->second]);
  } else {
    refusals_.say(environment_.log, environment_.loop->now(), LogLevel::error, text);
  }
  link.close(true);
  give_up_lost();
}

void BuilderUnit::disconnect(Readout& readout) {
  links_.erase(readout.data);
  readout.data.close(true);
  readout.connected = 0;
}

void BuilderUnit::on_hello(net::Link link, const memory::View& page) {
  forget_stranger(link);
  wire::Hello hello;
  const bool good =
      for_each_message(page.bytes(), [&](wire::MessageType type, std::span<const std::byte> body) {
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
  link.trust();
  Readout& readout = readouts_[hello.node];
  if (hello.role == wire::Role::request) {
    readout.requests.link().close(true);
    readout.requests = Gather{link, *environment_.control_pool};
    readout.requests_to = hello.incarnation;
    readout.to_request.clear();
    for (auto& [first, assembly] : assemblies_) {
      if (assembly->assigned && !assembly->decided) readout.to_request.push_back(first);
    }
    return;
  }
  if (readout.data) {
    links_.erase(readout.data);
    readout.data.close(true);
  }
  readout.data = link;
  readout.connected = hello.incarnation;
  readout.connection = hello.connection;
  links_[link] = hello.node;
  give_up_lost();
}

void BuilderUnit::on_part(Readout& readout, NodeId node, const net::Event& event) {
  const net::Link link = readout.data;
  const memory::View& message = event.message;
  const auto part = wire::decode_part(message.bytes(), event.rest.bytes());
  if (!part) return hang_up(link, part.error().text);
  const wire::PartHeader& header = part->header;
  counters_.bytes += header.payload_size;
  ++counters_.messages;
  if (header.run != run_ || header.builder_incarnation != incarnation_ ||
      header.readout_incarnation != readout.connected) {
    ++counters_.stale;
    return;
  }
  const std::size_t source = sources_.find(header.source);
  if (source == System::npos || system_.sources[source].readout_unit != node ||
      header.readout_unit != node || header.batch_events > system_.batch_events) {
    return hang_up(link, fmt::format("part of source {:#x}, which is not its own", header.source));
  }
  if (system_.checksum && header.checksum == 0) {
    return hang_up(link, fmt::format("part of source {:#x} without a checksum", header.source));
  }
  readout.heard = true;
  Assembly* const found = find_or_open(header);
  if (found == nullptr) return;
  Assembly& assembly = *found;
  assembly.heard = true;
  Progress& progress = assembly.progress[source];
  if (header.first_event < progress.next ||
      (header.first_event == progress.next && header.payload_offset < progress.payload_offset)) {
    ++counters_.stale; // sent again after a lost connection
    return;
  }
  if (header.first_event != progress.next || header.payload_offset != progress.payload_offset) {
    return hang_up(link, fmt::format("source {:#x} left out a part of event {}", header.source,
                                     progress.next));
  }
  if (header.payload_offset != 0 && part->table.front() != progress.entry) {
    return hang_up(link, fmt::format("source {:#x}: parts of event {} that disagree", header.source,
                                     progress.next));
  }
  const auto table_size = static_cast<std::uint32_t>(part->table.size_bytes());
  assembly.batch.pieces.push_back(
      {.source = header.source,
       .range = header.events(),
       .table = message.part(sizeof header, table_size),
       .payload = event.rest.size > 0
                      ? event.rest
                      : message.part(sizeof header + table_size, header.payload_size),
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

// The batch that a block belongs to, which may be here before its assignment, since nothing is
// ordered across connections. Null: the block is of no use.
BuilderUnit::Assembly* BuilderUnit::find_or_open(const wire::PartHeader& header) {
  auto found = assemblies_.find(header.batch_first);
  if (found != assemblies_.end() && !found->second->assigned &&
      header.attempt > found->second->attempt) {
    throw_away(*found->second); // of an attempt before
    found = assemblies_.end();
  }
  if (found != assemblies_.end()) {
    Assembly& assembly = *found->second;
    const bool same = assembly.range == header.batch() && assembly.attempt == header.attempt;
    if (same && !assembly.decided) return &assembly;
    ++(same ? counters_.late : counters_.stale);
    if (!same && header.attempt == assembly.attempt) assembly.spoiled = true; // one of them lies
    return nullptr;
  }
  if (recently_decided_.contains(header.batch_first, header.attempt)) {
    ++counters_.late;
    return nullptr;
  }
  if (early_ >= early_max) {
    ++counters_.late;
    recently_decided_.note(header.batch_first, header.attempt);
    return nullptr;
  }
  Assembly& early = open(header.batch(), header.attempt);
  early.heard_at = fair_now();
  return &early;
}

// A piece of a fragment that spans messages: its checksum is known with the last one.
void BuilderUnit::accept_partial(Assembly& assembly, Progress& progress,
                                 const wire::PartView& part) {
  const wire::FragmentEntry& entry = part.table.front();
  progress.entry = entry;
  if (system_.checksum) progress.crc32c = wire::crc32c(part.payload, progress.crc32c);
  progress.payload_offset += part.header.payload_size;
  if (progress.payload_offset < entry.size()) return;
  std::uint32_t flags = entry.flags();
  if (system_.checksum && progress.crc32c != entry.crc32c) flags |= wire::fragment_bad_checksum;
  if (flags != 0) assembly.bad.push_back({part.header.first_event, part.header.source, flags});
  progress = {.next = part.header.first_event + 1};
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
        add_missing(assembly, part.header.source, {event, event + 1}, reason_of(entry));
      } else {
        assembly.bad.push_back({event, part.header.source, flags});
      }
    }
    payload += size;
    ++event;
  }
}

} // namespace fanin::builder
