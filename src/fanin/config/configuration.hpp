/// \file
/// The configuration of one event builder, read from TOML and validated: every value is possible,
/// and every name that it refers to exists. docs/configuration.md describes the keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/tree.hpp"
#include "fanin/memory/arena.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/url.hpp"

namespace fanin::config {

struct Run {
  std::optional<RunNumber> number; ///< none: the next free one in `output`
  Duration duration{}; ///< 0: until stopped
  std::uint64_t events = 0; ///< 0: no limit
  std::string output = "fanin-data"; ///< folder; empty: built events are discarded
  Place output_place;
  bool restart = false; ///< a readout or builder unit that died is started again
  Duration drain = std::chrono::minutes{1}; ///< longest time without progress at the end of a run
  std::uint64_t seed = 1; ///< of emulated sources
};

enum class Protocol : std::uint8_t { push, pull };

struct Network {
  net::Url control; ///< where the event manager listens
  net::Url data; ///< where builder units listen that have no url of their own
  Protocol protocol = Protocol::push;
  Duration grace = std::chrono::seconds{1}; ///< a lost control connection may come back
  Duration dead_after = std::chrono::seconds{5}; ///< a silent node is given up
  Duration give_up_after = std::chrono::seconds{10}; ///< how long a node that has lost the event
                                                     ///< manager tries to reach it
  std::uint64_t transfer_window = 4U << 20; ///< bytes under way to one builder unit
  net::WaitPolicy wait = net::WaitPolicy::block; ///< of readout units, builder units, event manager
};

struct Trigger {
  double rate_hz = 0; ///< 0: none, events exist as they are announced
  std::uint64_t window = 100'000; ///< triggered and not built yet
};

struct EventRules {
  Duration deadline = std::chrono::seconds{1}; ///< longest silence before a source is given up
  Duration give_up_slow{}; ///< of a source that holds all others back; 0: never
  std::uint64_t window = 65536; ///< numbers less far apart than this confirm each other
  bool window_given = false; ///< false: at most half of the narrowest counter's range
  Place window_place;
  bool checksum = true;
  std::uint32_t batch_events = 1024; ///< a power of two
  std::uint64_t batch_bytes = 2U << 20;
  Duration batch_delay = std::chrono::microseconds{200};
  Duration latency = std::chrono::milliseconds{50}; ///< from trigger to commit, for fuller batches
};

struct Buffers {
  std::uint64_t readout = 64U << 20; ///< payload of one readout unit
  std::uint64_t builder = 256U << 20; ///< of one builder unit
  std::uint32_t page = 1U << 20;
  int numa_node = -1;
  memory::HugePages huge_pages = memory::HugePages::transparent;
  /// How long a readout unit keeps what it has read in normal operation: filling a batch, transfer,
  /// building, storage queue, flush, acknowledgement.
  Duration hold = std::chrono::milliseconds{250};
};

enum class Commit : std::uint8_t { written, synced };
enum class OnFull : std::uint8_t { wait, stop };

struct Storage {
  std::uint64_t max_file = 8ULL << 30; ///< bytes
  Commit commit = Commit::written;
  OnFull on_full = OnFull::wait;
};

struct Source {
  SourceId id = 0;
  std::string name;
  std::string type;
  std::size_t readout = 0; ///< index into Configuration::readouts
  bool required = true;
  std::uint32_t fragment_max = 1U << 20; ///< bytes
  std::optional<double> expected_bytes_per_s; ///< for the check of memory
  int counter_bits = 64; ///< of its event numbers
  std::int64_t offset = 0; ///< added to them
  std::optional<EventNumber> first; ///< fragments are dropped until this number has come
  std::map<std::string, Setting> settings;
  std::string key;
  Place place;
};

enum class Role : std::uint8_t { event_manager, readout, builder, application };

struct Node {
  Role role{};
  std::string name;
  std::string host; ///< empty: this one
  std::vector<net::Url> urls; ///< where it listens; several are rails; readout units have none
  std::vector<int> cpus; ///< empty: anywhere
  int numa_node = -1;
  std::uint64_t buffer = 0; ///< bytes
  std::string key; ///< name of its table, as "builder.0"
  Place place;
  std::string url_key; ///< the key that its addresses come from
  Place url_place;
  std::string type; ///< of an application
  std::map<std::string, Setting> settings; ///< keys that its type understands

  [[nodiscard]] bool listens_within(std::string_view network) const {
    return std::ranges::any_of(urls, [&](const auto& url) { return url.network() == network; });
  }
};

/// The nodes of one process, which run on one loop.
struct Process {
  std::string name;
  std::vector<std::size_t> nodes; ///< into Configuration::nodes
};

struct Plugin {
  std::string path;
  Place place;
};

struct Configuration {
  std::string file;
  Run run;
  Network network;
  Trigger trigger;
  EventRules event;
  Buffers buffers;
  Storage storage;
  std::vector<Plugin> plugins;
  /// The event manager, the readout units, the builder units, the applications.
  std::vector<Node> nodes;
  std::size_t readouts = 0; ///< how many of them are
  std::size_t builders = 0;
  std::vector<Source> sources; ///< in the order of their readout units, then by id
  std::vector<Process> processes; ///< every node in exactly one

  [[nodiscard]] std::size_t readout_node(std::size_t readout) const { return 1 + readout; }
  [[nodiscard]] std::size_t builder_node(std::size_t builder) const {
    return 1 + readouts + builder;
  }
  [[nodiscard]] const Node& event_manager() const { return nodes.front(); }
  /// Half-open range of indices into `sources`.
  [[nodiscard]] std::pair<std::size_t, std::size_t> sources_of(std::size_t readout) const;
  [[nodiscard]] std::optional<std::size_t> find_node(std::string_view name) const;
  [[nodiscard]] std::string node_names() const; ///< "evm, ru0, ru1, bu0"
};

/// Reads a file. `overrides` have the form "run.duration=5s" and are applied in order. Errors:
/// usage, one line with file, line, key and reason; not_found and refused for a file that cannot be
/// read.
[[nodiscard]] Result<Configuration> load(const std::string& path,
                                         const std::vector<std::string>& overrides);
/// Reads a text. `file` is used in messages; paths are relative to its folder.
[[nodiscard]] Result<Configuration> parse(std::string_view text, const std::string& file,
                                          const std::vector<std::string>& overrides = {});

} // namespace fanin::config
