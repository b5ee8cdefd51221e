/// \file
/// The control messages of event building (Forrest 2014; Moser 2007, figure 6). Both flows, push
/// and pull, use the same messages. A message is a fixed body and arrays of fixed records, 8-byte
/// aligned, little-endian. Many messages travel in one page, as frames
/// (builder/control/control_batcher.hpp). docs/modules/builder/protocol.md has trigger, effect and
/// failure of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "fanin/base/identity.hpp"
#include "fanin/base/random.hpp"
#include "fanin/wire/reasons.hpp"

namespace fanin::wire {

/// Nodes of different versions refuse each other. From release 0.1.0 on it rises with every change
/// of a message.
inline constexpr std::uint16_t protocol_version = 2;

enum class MessageType : std::uint16_t {
  hello = 1, ///< node -> event manager, and readout unit -> builder unit: who I am
  welcome, ///< event manager -> node: your incarnation; for a readout unit, where to begin
  refuse, ///< event manager -> node: its hello was not accepted, with the reason as text
  builder_up, ///< event manager -> readout unit: connect to this builder unit
  builder_down,
  members, ///< event manager -> builder unit: the readout units that take part from now on
  limit, ///< event manager -> readout unit: read up to this event (trigger, or end of run)
  horizon, ///< event manager -> readout unit: others have events up to here
  pause, ///< event manager -> readout unit: stop reading and say how far you got
  paused, ///< the answer
  announce, ///< readout unit -> event manager: events that it holds
  assign, ///< event manager -> builder unit and (push) readout units; builder unit -> readout units
          ///< (pull)
  received, ///< builder unit -> event manager: returns the transfer window
  built, ///< builder unit -> event manager: committed
  clear, ///< event manager -> readout unit: forget this batch
  status, ///< node -> event manager: counters, and a sign of life
  finish, ///< event manager -> node: the run is over; close files
  finished, ///< the answer: final counters and files
  failed, ///< builder unit -> event manager: its storage cannot continue
  numbered, ///< first frame of each page of control messages: its number, and how many pages have
            ///< come
  acknowledge, ///< how many pages have come, if there is no page to send
  resumed, ///< event manager -> node: the conversation continues over this connection
  reached, ///< builder unit -> event manager: whether a readout unit is connected to it
  reconnect, ///< event manager -> readout unit: the path to a builder unit is dead; take the next
             ///< rail
  hand_back, ///< builder unit -> event manager: an attempt that it cannot complete
  uncut, ///< readout unit -> event manager (pull): a batch that nobody asks for holds it up
  held, ///< readout unit -> event manager: it holds a number that nothing has confirmed
  reset_request, ///< readout unit -> event manager: a counter was reset before the run has an event
                 ///< of it: may its numbers begin again?
  lost, ///< event manager -> builder unit: what a dead readout unit had announced of its batches
  grant, ///< builder unit -> readout unit (shaping): how much it may send
  reset_reply, ///< the answer to reset_request
  new_file, ///< builder unit -> event manager: the name of a run file, as text
  ready, ///< readout unit -> event manager: whether its sources are ready for the run to begin
  release, ///< event manager -> readout unit (welcome.held): start the sources
};

enum class Role : std::uint8_t { readout_unit = 1, builder_unit = 2, data = 3, request = 4 };

struct Hello { // followed by text: the node's name, '\n', and a builder unit's data URLs
  static constexpr MessageType type = MessageType::hello;
  std::uint16_t version = protocol_version;
  Role role{};
  std::uint8_t lane = 0; ///< data: which one of them this is
  NodeId node = 0;
  std::uint8_t lanes =
      1; ///< data: connections over which the sources are spread (builder/lane.hpp)
  std::uint8_t rail = 0; ///< data: of the builder unit's addresses
  std::uint64_t system_digest = 0; ///< of the configuration; equal on all nodes
  RunNumber run = 0; ///< data, request
  Incarnation incarnation = 0; ///< data, request: of the readout unit
  std::uint64_t capacity = 0; ///< bytes: under construction (builder unit), kept (readout unit)
  std::uint32_t text_size = 0;
  Incarnation peer_incarnation = 0; ///< data, request: of the builder unit
  std::uint64_t metadata = 0; ///< readout unit: bytes for each source (builder/metadata.hpp)
  std::uint64_t session = 0; ///< a random number of the process, which identifies it over
                             ///< connections
  std::uint64_t received = 0; ///< to resume: pages of the conversation that have come
  Incarnation resumes = 0; ///< to resume: the incarnation that continues; 0: a new one
  std::uint32_t connection = 0; ///< data, request: number of the readout unit's connection to this
                                ///< builder unit; all lanes together are one
};
static_assert(sizeof(Hello) == 72);

/// A page of control messages between a node and the event manager is kept until it is
/// acknowledged, and sent again over the next connection (builder/control/control_channel.hpp).
struct Numbered {
  static constexpr MessageType type = MessageType::numbered;
  std::uint64_t number = 0; ///< number of the page in this conversation, from 1
  std::uint64_t received = 0; ///< pages that have come
};
struct Acknowledge {
  static constexpr MessageType type = MessageType::acknowledge;
  std::uint64_t received = 0;
};
struct Resumed {
  static constexpr MessageType type = MessageType::resumed;
  std::uint64_t received = 0;
};
static_assert(sizeof(Numbered) == 16 && sizeof(Acknowledge) == 8 && sizeof(Resumed) == 8);

struct Welcome {
  static constexpr MessageType type = MessageType::welcome;
  RunNumber run = 0;
  Incarnation incarnation = 0;
  EventNumber first_event = 0; ///< readout unit: begin here
  EventNumber limit = 0; ///< readout unit: read up to here for now
  std::uint32_t joining = 0; ///< 1: the run is under way, first_event is binding
  std::uint16_t run_id_is_shared = 0; ///< 1: by all event builders of two stages (RunIdentity)
  std::uint16_t held = 0; ///< 1: readout unit: start no source before `release`
  std::uint64_t seal_key = 0; ///< readout unit: of Assign::seal; builder units do not get it
  std::uint64_t run_id = 0; ///< random, since other runs may have the same number
};
static_assert(sizeof(Welcome) == 48);

enum class RefusalKind : std::uint32_t {
  for_good = 0, ///< trying again would change nothing
  for_now = 1, ///< try again: an earlier process of this name may still live
  run_ending = 2 ///< the run takes nobody any more
};
struct Refuse { // followed by text
  static constexpr MessageType type = MessageType::refuse;
  std::uint32_t text_size = 0;
  RefusalKind kind{};
};
static_assert(sizeof(Refuse) == 8);

/// The first one follows the welcome. It is sent on change until the run begins.
struct Ready {
  static constexpr MessageType type = MessageType::ready;
  std::uint64_t yes = 0; ///< 1: the run may begin, as far as its sources know
};
static_assert(sizeof(Ready) == 8);

/// Run control starts the run.
struct Release {
  static constexpr MessageType type = MessageType::release;
  std::uint64_t reserved = 0;
};
static_assert(sizeof(Release) == 8);

struct BuilderUp { // followed by text: the data URLs, a line each (builder/rails.hpp)
  static constexpr MessageType type = MessageType::builder_up;
  NodeId node = 0;
  std::uint16_t reserved = 0;
  Incarnation incarnation = 0;
  std::uint32_t text_size = 0;
  std::uint32_t reserved2 = 0;
};
static_assert(sizeof(BuilderUp) == 16);

struct BuilderDown {
  static constexpr MessageType type = MessageType::builder_down;
  NodeId node = 0;
  std::uint16_t reserved = 0;
  Incarnation incarnation = 0;
};
static_assert(sizeof(BuilderDown) == 8);

struct Members { // followed by one Incarnation per readout unit, 0: takes no part; padded to 8
  static constexpr MessageType type = MessageType::members;
  std::uint64_t epoch = 0;
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
  std::int64_t began_unix_ns = 0; ///< when the run began, UTC
};
static_assert(sizeof(Members) == 24);

struct Limit {
  static constexpr MessageType type = MessageType::limit;
  EventNumber event = 0;
  std::uint64_t last = 0; ///< 1: nothing will follow; answer with a final announcement
  /// Sources are read up to here. At the end of a run some sources may hold numbers that no other
  /// source will reach.
  EventNumber read = 0;
};
static_assert(sizeof(Limit) == 24);

struct Horizon {
  static constexpr MessageType type = MessageType::horizon;
  EventNumber event = 0; ///< numbers below exist, as far as readout units agree
  std::uint32_t held = 0; ///< the last Held that it answers
  std::uint8_t alone = 0; ///< 1: all other readout units are at their end
  std::uint8_t equal = 0; ///< 1: another readout unit holds or has the same number
  std::uint8_t slow = 0; ///< 1: all other readout units have more, and wait for this one
  std::uint8_t reserved = 0;
};
static_assert(sizeof(Horizon) == 16);

/// The event manager answers with a horizon: at once, when the horizon has reached the number, when
/// another readout unit holds the same number, and when all others are at their end.
struct Held {
  static constexpr MessageType type = MessageType::held;
  EventNumber event = 0;
  std::uint32_t count = 0; ///< of such messages
  std::uint32_t ended = 0; ///< 1: all its sources are at their end
};
static_assert(sizeof(Held) == 16);

struct ResetRequest {
  static constexpr MessageType type = MessageType::reset_request;
  std::uint64_t reserved = 0;
};
struct ResetReply {
  static constexpr MessageType type = MessageType::reset_reply;
  EventNumber horizon = 0;
  std::uint64_t granted = 0; ///< 1: what the readout unit has announced is taken back
};
static_assert(sizeof(ResetRequest) == 8 && sizeof(ResetReply) == 16);

struct Pause {
  static constexpr MessageType type = MessageType::pause;
  EventNumber horizon = 0;
};
struct Paused {
  static constexpr MessageType type = MessageType::paused;
  EventNumber next_event = 0; ///< the furthest of its sources
  EventNumber horizon = 0; ///< the furthest number that is not more than `span` ahead of the others
  std::uint64_t span = 0; ///< how far apart right sources can be: as much as one can hold
  std::uint64_t few = 0; ///< 1: what its sources have may be left over from an earlier run
};
static_assert(sizeof(Pause) == 8 && sizeof(Paused) == 32);

struct AbsentRange { // source `source` of the readout unit has no fragment for these events
  SourceId source = 0;
  std::uint32_t count_and_flag = 0;
  EventNumber first = 0;

  /// Dropped: it sent some, which could not be taken. Those are numbers of events all the same.
  [[nodiscard]] static AbsentRange make(SourceId source, EventNumber first, std::uint32_t count,
                                        bool dropped = false) {
    return {source, count | (dropped ? dropped_flag : 0), first};
  }
  [[nodiscard]] std::uint32_t count() const { return count_and_flag & ~dropped_flag; }
  [[nodiscard]] bool dropped() const { return (count_and_flag & dropped_flag) != 0; }
  [[nodiscard]] EventRange range() const { return {first, first + count()}; }
  static constexpr std::uint32_t dropped_flag = 1U << 31;
};
static_assert(sizeof(AbsentRange) == 16);

struct Announce { // followed by AbsentRange[absent_ranges]
  static constexpr MessageType type = MessageType::announce;
  EventNumber first = 0;
  EventNumber end = 0;
  std::uint64_t bytes = 0; ///< on the wire, at most
  std::uint32_t absent_ranges = 0;
  std::uint8_t final = 0; ///< 1: nothing will follow
  std::uint8_t few = 0; ///< 1: the run has no event yet, and each source has so few fragments that
                        ///< they may be left over from an earlier run
  std::uint8_t silent = 0; ///< 1: all sources of the readout unit were given up as silent, or have
                           ///< come to their end; where it begins, it may begin further on in the
                           ///< next message
  std::uint8_t nothing = 0; ///< 1: no source has any of these events; there may be any number of
                            ///< them
};
static_assert(sizeof(Announce) == 32);

struct Assign { // to a builder unit; followed by Gap[gaps], MissingRange[lost]
  static constexpr MessageType type = MessageType::assign;
  EventNumber first = 0;
  std::uint32_t events = 0;
  Attempt attempt = 0;
  NodeId builder = 0;
  Incarnation builder_incarnation = 0;
  std::uint32_t more = 0; ///< 1: further gaps and lost fragments follow in another such message
  std::uint64_t epoch = 0; ///< of the members that take part
  std::uint64_t bytes = 0; ///< reserved for it
  std::uint32_t gaps = 0; ///< numbers that no source has, in the batch or right before it
  std::uint32_t lost = 0; ///< fragments of readout units that died before
  std::uint64_t seal = 0; ///< seal_of() it: a builder unit asks with the event manager's words
  std::int64_t cut_unix_ns = 0; ///< when the event manager cut the batch, UTC
  [[nodiscard]] EventRange range() const { return {first, first + events}; }
};
static_assert(sizeof(Assign) == 64);

/// What shows a readout unit that the event manager has made this assignment: batch, attempt,
/// builder unit and members. It finds errors of builder units. It is no cryptography.
[[nodiscard]] constexpr std::uint64_t seal_of(const Assign& assign, std::uint64_t key) {
  const std::uint64_t who = std::uint64_t{assign.events} << 32 |
                            std::uint64_t{assign.attempt} << 16 | std::uint64_t{assign.builder};
  std::uint64_t seal = splitmix64(key);
  for (const std::uint64_t word :
       {assign.first, who, std::uint64_t{assign.builder_incarnation}, assign.epoch}) {
    seal = splitmix64(seal ^ word);
  }
  return splitmix64(seal + key);
}

struct Received {
  static constexpr MessageType type = MessageType::received;
  EventNumber first = 0;
  Attempt attempt = 0;
  std::uint16_t set_aside = 0; ///< 1: again, and its capacity is free before it is built
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Received) == 16);

struct MissingRange { // why: MissingReason
  SourceId source = 0;
  std::uint32_t count = 0;
  EventNumber first = 0;
  std::uint16_t reason = 0;
  std::uint16_t within = 0; ///< 1: of a super-fragment that came
  SourceId member = 0; ///< with `within`: one that `source` merges, and that the super-fragment
                       ///< lacks; or `source` itself: the super-fragment does not fit

  [[nodiscard]] bool does_not_fit() const { return within != 0 && member == source; }
  [[nodiscard]] bool lacks_member() const { return within != 0 && member != source; }
};
static_assert(sizeof(MissingRange) == 24);

struct Lost { // followed by MissingRange[runs]; only of batches of this builder unit
  static constexpr MessageType type = MessageType::lost;
  std::uint64_t runs = 0;
};
static_assert(sizeof(Lost) == 8);

struct BadFragment { // flags of FragmentFlag
  EventNumber event = 0;
  SourceId source = 0;
  std::uint32_t flags = 0;
};
static_assert(sizeof(BadFragment) == 16);

struct Gap {
  EventNumber first = 0;
  EventNumber end = 0;
};
static_assert(sizeof(Gap) == 16);

/// How many numbers of a batch are events. `gaps`: as Assign has them.
[[nodiscard]] inline std::uint64_t events_of(EventRange batch, std::span<const Gap> gaps) {
  std::uint64_t events = batch.count();
  for (const Gap& gap : gaps) {
    if (gap.first >= batch.first) events -= gap.end - gap.first;
  }
  return events;
}

struct Built { // followed by MissingRange[missing_ranges], BadFragment[bad]
  static constexpr MessageType type = MessageType::built;
  EventNumber first = 0;
  std::uint32_t events = 0;
  Attempt attempt = 0;
  std::uint16_t more = 0; ///< 1: more missing or bad fragments follow in another such message
  std::uint64_t bytes = 0; ///< payload
  std::uint32_t missing_ranges = 0;
  std::uint32_t bad = 0;
  std::uint32_t incomplete = 0; ///< events that lack a required source
  std::uint32_t rejected = 0; ///< events that the filter rejected
  std::uint32_t undecided = 0; ///< events that no filter unit could decide
  std::uint32_t undelivered = 0; ///< events that their slice did not get
  [[nodiscard]] EventRange range() const { return {first, first + events}; }
};
static_assert(sizeof(Built) == 48);

struct Reached { // on change
  static constexpr MessageType type = MessageType::reached;
  NodeId readout_unit = 0;
  std::uint16_t yes = 0; ///< 1: all lanes of its data connection have said hello, and in the pull
                         ///< flow its request connection too
  Incarnation incarnation = 0; ///< of the readout unit
  std::uint32_t connection = 0; ///< Hello::connection
  std::uint32_t lane = 0; ///< which one has ended, unless `yes`
};
static_assert(sizeof(Reached) == 16);

struct Reconnect {
  static constexpr MessageType type = MessageType::reconnect;
  NodeId builder = 0;
  std::uint16_t reserved = 0;
  Incarnation incarnation = 0; ///< of the builder unit
  std::uint32_t connection = 0; ///< Hello::connection of the dead connection; 0: any
  std::uint32_t lane = 0; ///< of that connection, which one is dead
};
static_assert(sizeof(Reconnect) == 16);

struct HandBack {
  static constexpr MessageType type = MessageType::hand_back;
  EventNumber first = 0;
  Attempt attempt = 0;
  NodeId readout_unit = 0; ///< the readout unit whose data do not come, if `blames`
  std::uint32_t blames = 0; ///< 0: no readout unit; data that came too early were thrown away
};
static_assert(sizeof(HandBack) == 16);

struct Uncut {
  static constexpr MessageType type = MessageType::uncut;
  EventNumber event = 0; ///< the first event that is announced and not cut
};
static_assert(sizeof(Uncut) == 8);

/// Over the data connection, or before the first request (pull). Bytes count from the beginning of
/// the connection, whatever they are of.
struct Grant {
  static constexpr MessageType type = MessageType::grant;
  std::uint64_t bytes = 0; ///< that may be sent over this lane in all
  Incarnation readout_incarnation = 0;
  Incarnation builder_incarnation = 0;
  std::uint32_t connection = 0; ///< Hello::connection of the data connection
  std::uint32_t lane = 0; ///< of that connection
};
static_assert(sizeof(Grant) == 24);

struct Clear { // a batch, or a gap, or all below the first event
  static constexpr MessageType type = MessageType::clear;
  EventNumber first = 0;
  EventNumber end = 0;
  [[nodiscard]] EventRange range() const { return {first, end}; }
};
static_assert(sizeof(Clear) == 16);

struct SourceCounters { // since the incarnation began
  SourceId source = 0;
  std::uint32_t reserved = 0;
  std::uint64_t accepted = 0; ///< fragments
  EventNumber last_refused = 0; ///< the number of the last fragment that was dropped or late
  std::array<std::uint64_t, drop_reasons> dropped{}; ///< by DropReason
};
static_assert(sizeof(SourceCounters) == 24 + 8 * drop_reasons);

/// The body of status (periodic) and finished (last). It is followed by SourceCounters[sources],
/// then as text what the node waits for.
struct NodeCounters {
  std::uint64_t bytes = 0; ///< sent by a readout unit, received by a builder unit
  std::uint64_t stored_bytes = 0; ///< builder unit
  std::uint64_t messages = 0;
  std::uint64_t stale = 0; ///< messages ignored: of another run, attempt or incarnation
  std::uint64_t late = 0; ///< data messages that came after their batch was decided
  std::uint64_t throttled_us = 0; ///< readout unit: time in which a source was held back
  std::uint32_t pages_in_use = 0;
  std::uint32_t pages = 0;
  std::uint32_t sources = 0;
  std::uint32_t waits_for_size = 0; ///< of the text
  std::uint32_t held_back = 0; ///< 1: all sources of a readout unit have more than it may read
  /// Time in which a readout unit could announce no more since the source that has come least far
  /// was held back. It wraps.
  std::uint32_t held_up_us = 0;
};
static_assert(sizeof(NodeCounters) == 72);

struct Status {
  static constexpr MessageType type = MessageType::status;
  NodeCounters counters;
};
struct Finish {
  static constexpr MessageType type = MessageType::finish;
  std::uint64_t reserved = 0;
};
struct Finished {
  static constexpr MessageType type = MessageType::finished;
  NodeCounters counters;
};

struct NewFile { // followed by text: its name
  static constexpr MessageType type = MessageType::new_file;
  std::uint32_t text_size = 0;
  std::uint32_t reserved = 0;
};

struct Failed { // followed by text: why
  static constexpr MessageType type = MessageType::failed;
  std::uint32_t text_size = 0;
  std::uint32_t ends_run = 0; ///< 1: by setting
};
static_assert(sizeof(NewFile) == 8 && sizeof(Failed) == 8);

/// Reads the parts of a message. Every read is checked against the end of the message. After the
/// first failure all further reads fail, and ok() is false.
class MessageReader {
public:
  explicit MessageReader(std::span<const std::byte> message) : rest_(message) {}

  template <class T>
  [[nodiscard]] bool read(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!ok_ || rest_.size() < sizeof(T)) return ok_ = false;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return true;
  }
  /// `count` records, in place (messages are 8-byte aligned).
  template <class T>
  [[nodiscard]] std::span<const T> records(std::uint64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    if (!ok_ || rest_.size() / sizeof(T) < count ||
        reinterpret_cast<std::uintptr_t>(rest_.data()) % alignof(T) != 0) {
      ok_ = false;
      return {};
    }
    const std::span<const T> found{reinterpret_cast<const T*>(rest_.data()),
                                   static_cast<std::size_t>(count)};
    rest_ = rest_.subspan(found.size_bytes());
    return found;
  }
  [[nodiscard]] std::string_view text(std::uint32_t size) {
    const auto bytes = records<char>(size);
    return {bytes.data(), bytes.size()};
  }
  [[nodiscard]] bool ok() const { return ok_; }

private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

} // namespace fanin::wire
