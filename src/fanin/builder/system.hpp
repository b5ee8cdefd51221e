// What all nodes of one event builder must agree on: who there is, which sources, which protocol.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/builder/shaping/shaping.hpp"
#include "fanin/storage/layout.hpp"
#include "fanin/wire/slice.hpp"

namespace fanin::builder {

enum class Protocol : std::uint8_t {
  push, // the event manager instructs the readout units, which send (Forrest 2014, section 4)
  pull // the event manager tells the builder unit, which asks each readout unit (Moser 2007, figure
       // 6)
};

inline constexpr std::array protocols{Protocol::push, Protocol::pull};
// As in the configuration: "push", "pull".
[[nodiscard]] FANIN_INTERNAL_API std::string_view name(Protocol protocol);

// Which builder unit comes first for a batch (assignment_policies.hpp).
enum class AssignmentPolicy : std::uint8_t { round_robin, least_loaded, weighted, by_number };
inline constexpr std::array assignment_policies{
    AssignmentPolicy::round_robin, AssignmentPolicy::least_loaded, AssignmentPolicy::weighted,
    AssignmentPolicy::by_number};
// As in the configuration: "round-robin", ...
[[nodiscard]] constexpr std::string_view name(AssignmentPolicy policy) {
  switch (policy) {
  case AssignmentPolicy::round_robin: break;
  case AssignmentPolicy::least_loaded: return "least-loaded";
  case AssignmentPolicy::weighted: return "weighted";
  case AssignmentPolicy::by_number: return "by-number";
  }
  return "round-robin";
}
inline constexpr std::uint32_t weight_max = 1000; // of a builder unit

struct SourceInfo {
  SourceId id = 0;
  std::string name;
  NodeId readout_unit = 0;
  bool required = true; // completeness rule: without a required source an event is incomplete
  std::string numbering; // how it gets its event numbers, for the digest
  std::vector<storage::SourceInfo> merged{}; // its fragments are super-fragments of these, by id
};

struct System {
  RunNumber run = 1;
  std::vector<std::string> readout_units; // names; the index is the NodeId
  std::vector<std::string> builder_units;
  std::vector<SourceInfo> sources; // sorted by readout unit, then id; ids are unique
  Protocol protocol = Protocol::push;
  AssignmentPolicy assignment = AssignmentPolicy::round_robin;
  std::vector<std::uint32_t> builder_weights; // of each builder unit, where that is `weighted`
  bool integrity = true; // CRC32C per fragment, set at the source, checked by the BU

  // A batch is a range of event numbers that never crosses a multiple of batch_events. At low rate
  // batches are shorter, so that no event waits for others longer than `latency` allows.
  std::uint32_t batch_events = 1024; // a power of two
  std::uint64_t batch_size = 2U << 20; // bytes of all sources together; cut earlier beyond this
  std::uint32_t data_page = 1U << 20; // bytes; a data message is at most half of it
  std::uint64_t read_ahead = 4U << 20; // bytes not assigned yet, of sources on demand
  std::uint64_t transfer_window = 4U << 20; // bytes under way per builder unit
  std::size_t rails = 1; // of each builder unit; data are spread over them (lane.hpp)
  shaping::Shaping shaping; // of data on their way to builder units
  Duration batch_delay = std::chrono::microseconds{200}; // longest wait for a fuller batch
  // From trigger to commit, to be spent on fuller batches; 0: as fast as it goes.
  Duration latency = std::chrono::milliseconds{50};
  Duration event_deadline = std::chrono::seconds{1}; // longest silence before a source is missing
  Duration grace = std::chrono::seconds{1}; // a lost control connection may come back
  Duration event_give_up_slow{}; // a source that holds all others back so long; 0: never given up
  std::uint64_t event_window = 65536; // numbers less far apart confirm each other
  Duration dead_after = std::chrono::seconds{5}; // a silent node is given up
  Duration drain = std::chrono::minutes{1}; // no event is built for so long while the run ends

  double trigger_rate_hz = 0; // 0: no trigger source, events exist as they are announced
  std::uint64_t trigger_window = 100'000; // triggered and not yet built, at most
  // What filter units accept events into; empty: there are no filter units.
  std::vector<storage::StreamInfo> streams;
  std::uint64_t events_max = 0; // stop after so many; 0: no limit
  wire::Slice slice; // of the second of two stages
  // Names of those that get what the first of two stages builds: blocks of batch_events numbers are
  // dealt to them in turn. Empty: it is stored.
  std::vector<std::string> slices;
  // Each builder unit gives its batches to storage in the order of their events, as the first of
  // two stages does. A batch that is handed back must be assigned to the same builder unit again:
  // there is no other one, or the assignment is by number.
  bool in_order = false;

  // How long a node waits for an answer of the event manager before it tries its next rail.
  [[nodiscard]] Duration control_patience() const { return dead_after / 2; }
  // Bytes of the largest data message.
  [[nodiscard]] std::uint32_t message_max() const {
    return shaping.on() ? shaping.carrier : data_page / 2;
  }
  // How long triggers, or fragments that are not triggered, are gathered at the start of their way.
  // The rest of the latency is for transfer, building and storage.
  [[nodiscard]] Duration gather_time() const { return latency / 4 * 3; }
  // A part of the latency: how long at most a source that gives little is not read (ReadPause).
  [[nodiscard]] Duration read_pause() const { return latency / 8; }

  // Equal for nodes that can work together: who there is, the protocol, and how events are cut.
  [[nodiscard]] std::uint64_t digest() const;
  // The most lanes to each builder unit: each has a source or more, and a rail of its own.
  [[nodiscard]] std::size_t lanes(NodeId readout_unit) const;
  [[nodiscard]] std::size_t lanes() const; // of all readout units
  // Half-open range of indices into `sources` of one readout unit.
  [[nodiscard]] std::pair<std::size_t, std::size_t> sources_of(NodeId readout_unit) const;
  // Index into `sources`, or npos. Looks at all of them: SourceIndex is for where it counts.
  [[nodiscard]] std::size_t find_source(SourceId id) const;
  static constexpr std::size_t npos = ~std::size_t{0};
  // How many there are that others merge.
  [[nodiscard]] std::size_t merged_sources() const;
  // Of a source, or of one that is merged; in hexadecimal where there is no such source.
  [[nodiscard]] std::string name_of(SourceId id) const;

  // Errors: usage, naming what cannot work together and why.
  [[nodiscard]] Result<> validate() const;
};

// Finds a source by its id.
class SourceIndex {
public:
  explicit SourceIndex(const System& system);
  // Index into System::sources, or System::npos.
  [[nodiscard]] std::size_t find(SourceId id) const;

private:
  std::vector<std::pair<SourceId, std::size_t>> by_id_; // sorted
};

} // namespace fanin::builder
