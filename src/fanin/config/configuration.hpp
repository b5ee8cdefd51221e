/// \file
/// The configuration of one event builder, read from TOML and validated: every value is possible,
/// and every name that it refers to exists. docs/configuration.md describes the keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/memory/arena.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/url.hpp"
#include "fanin/settings/tree.hpp"
#include "fanin/source/fragment_queue.hpp"
#include "fanin/source/settings.hpp"
#include "fanin/storage/file_sink.hpp"

namespace fanin::config {

struct Run {
  std::optional<RunNumber> number; ///< none: the next free one in `output`
  /// Random: given by the process that starts this one, which has also reserved the number. No key.
  std::optional<std::uint64_t> id;
  bool id_is_shared = false; ///< by several configurations; no key
  bool controlled = false; ///< by run control: it begins when that starts it; no key
  Duration duration{}; ///< 0: until stopped
  std::string output = "fanin-data"; ///< folder; empty: built events are discarded
  bool restart = false; ///< a readout or builder unit that died is started again
  std::uint64_t seed = 1; ///< of emulated sources
  std::string registry; ///< a file, which its number comes from; empty: none
  std::string kind = "physics"; ///< or "test"
  std::string comment; ///< kept in run files, as what follows
  std::vector<storage::Metadata> metadata;
  std::vector<std::string> without; ///< names of sources that are left out, as written
};

/// What the nodes need besides builder::System.
struct Network {
  std::vector<net::Url> control; ///< rails where the event manager listens
  net::Url data; ///< where builder units listen that have no url of their own
  Duration give_up_after = std::chrono::seconds{10}; ///< how long a node that has lost the event
                                                     ///< manager tries to reach it
  net::WaitPolicy wait = net::WaitPolicy::block; ///< of readout units, builder units, event manager
};

struct Buffers {
  std::uint64_t readout = 64U << 20; ///< payload of one readout unit
  std::uint64_t builder = 256U << 20; ///< of one builder unit
  int numa_node = -1;
  memory::HugePages huge_pages = memory::HugePages::transparent;
  /// How long a readout unit keeps what it has read in normal operation: filling a batch, transfer,
  /// building, storage queue, flush, acknowledgement.
  Duration hold = std::chrono::milliseconds{250};
};

struct Source {
  source::SourceSettings settings; ///< with its id and name; without a log
  source::FragmentQueueOptions queue; ///< but for the window, which depends on the memory
  std::size_t readout = 0; ///< index of its readout unit
  bool required = true;
  std::optional<double> expected_bytes_per_s; ///< for the check of memory
  std::vector<storage::SourceInfo> merged; ///< its fragments are super-fragments of these, by id
};

enum class Role : std::uint8_t { event_manager, readout, builder, application, filter };

struct Node {
  Role role{};
  std::string name;
  std::string host; ///< empty: this one
  std::vector<net::Url> urls; ///< where it listens; several are rails; readout units have none
  std::vector<int> cpus; ///< empty: anywhere
  int numa_node = -1;
  std::uint64_t buffer = 0; ///< bytes
  std::string key; ///< name of its table, as "builder.0"
  settings::Place place;
  std::string url_key; ///< the key that its addresses come from
  std::optional<net::Url> filter_url; ///< of a builder unit: where filter units reach it; without
                                      ///< a host over shared memory (filter_address())
  std::optional<net::Url> monitoring_url; ///< of a builder unit: where it publishes events
  std::uint32_t filter_ahead = 2; ///< of a filter unit: batches that it asks each builder unit for
  Duration filter_latency{}; ///< of a filter unit: from a built batch to its decisions
  Duration filter_time_limit{}; ///< of a filter unit: for one event
  std::string type; ///< of an application or a filter
  std::map<std::string, settings::Setting> settings; ///< keys that its type understands
  std::span<const std::string_view> common_keys; ///< of its table, whatever the type

  [[nodiscard]] bool listens_within_process() const {
    return std::ranges::any_of(urls,
                               [](const auto& url) { return url.reach() == net::Reach::process; });
  }
};

/// The nodes of one process, which run on one loop.
struct Process {
  std::string name;
  std::string key; ///< name of its table, as "process.0"; else of its node's
  std::vector<std::size_t> nodes; ///< into Configuration::nodes
  std::size_t place = 0; ///< among all processes, with those that are left out: its host of a list
};

/// In the first of two stages: where what is built goes.
struct Forward {
  std::vector<net::Url> urls; ///< where the source of each slice listens; empty: it is stored
  SourceId source = 0; ///< of the super-fragments, in each slice
  Duration give_up = std::chrono::seconds{30}; ///< how long a slice is waited for
};

/// Of a plug-in, where what is built goes.
struct Sink {
  std::string type; ///< empty: there is none
  std::map<std::string, settings::Setting> settings; ///< keys that its type understands
  std::span<const std::string_view> common_keys; ///< of [storage], whatever the type
};

/// Samples of built events, which builder units publish for whoever wants to look at them.
struct Monitoring {
  std::uint32_t every = 0; ///< one event in so many; 0: none is published
  double rate_hz = 0; ///< most of each builder unit; 0: no limit

  [[nodiscard]] bool on() const { return every != 0; }
};

struct Configuration {
  std::string file;
  settings::Value written; ///< with the overrides
  Run run;
  Network network;
  Buffers buffers;
  /// Its run number is not known before the run begins.
  builder::System system;
  storage::FileSinkOptions storage; ///< what the keys of [storage] say; each run adds the rest
  Forward forward;
  Sink sink;
  Monitoring monitoring;
  std::vector<std::string> plugins; ///< paths
  /// The event manager, the readout units, the builder units, the applications, the filter units.
  std::vector<Node> nodes;
  std::vector<Source> sources; ///< in the order of system.sources
  std::vector<Process> processes; ///< every node in exactly one; their places ascend
  /// What this run is without (`enabled`, run.without): it is nowhere else.
  std::vector<Source> sources_left_out; ///< their `readout` means nothing
  std::vector<std::string> readouts_left_out; ///< names of units that had no other sources

  [[nodiscard]] std::size_t readouts() const { return system.readout_units.size(); }
  [[nodiscard]] std::size_t builders() const { return system.builder_units.size(); }
  [[nodiscard]] std::size_t readout_node(std::size_t readout) const { return 1 + readout; }
  [[nodiscard]] std::size_t builder_node(std::size_t builder) const {
    return 1 + readouts() + builder;
  }
  [[nodiscard]] const Node& event_manager() const { return nodes.front(); }
  [[nodiscard]] std::size_t filters() const {
    return static_cast<std::size_t>(std::ranges::count(nodes, Role::filter, &Node::role));
  }
  [[nodiscard]] bool forwards() const { return !forward.urls.empty(); }
  [[nodiscard]] bool has_filters() const { return !system.streams.empty(); }
  /// Where a builder unit waits for filter units, of the event builder whose event manager listens
  /// there.
  [[nodiscard]] FANIN_INTERNAL_API net::Url filter_address(std::size_t builder,
                                                           const net::Url& event_manager) const;
  /// The builder units that a filter unit, a node, takes events from: all that it reaches.
  [[nodiscard]] FANIN_INTERNAL_API std::vector<std::size_t> builders_of(std::size_t filter) const;
  /// Of an application or a filter, for its factory.
  [[nodiscard]] source::SourceSettings settings_of(const Node& node, LogFunction log) const;
  /// Half-open range of indices into `sources`.
  [[nodiscard]] std::pair<std::size_t, std::size_t> sources_of(std::size_t readout) const {
    return system.sources_of(static_cast<NodeId>(readout));
  }
  /// Where a key was written, for messages; of one that is not there, its table or the file. If an
  /// override gives one of `causes`, which are keys or tables, its place: without it the key may be
  /// right.
  [[nodiscard]] FANIN_INTERNAL_API settings::Place
  place_of(std::string_view key, std::span<const std::string> causes = {}) const;
  /// "file:line: key: reason", of kind usage, with this place.
  [[nodiscard]] FANIN_INTERNAL_API Error wrong(std::string_view key, std::string_view reason,
                                               std::span<const std::string> causes = {}) const;
  [[nodiscard]] std::optional<std::size_t> find_node(std::string_view name) const;
  [[nodiscard]] std::string node_names() const; ///< "evm, ru0, ru1, bu0"
};

/// Reads a file. `overrides` have the form "run.duration=5s" and are applied in order. Errors:
/// usage, one line with file, line, key and reason; not_found and refused for a file that cannot be
/// read.
[[nodiscard]] FANIN_INTERNAL_API Result<Configuration>
load(const std::string& path, const std::vector<std::string>& overrides);
/// Reads a text. `file` is used in messages; paths are relative to its folder.
[[nodiscard]] FANIN_INTERNAL_API Result<Configuration>
parse(std::string_view text, const std::string& file,
      const std::vector<std::string>& overrides = {});

} // namespace fanin::config
