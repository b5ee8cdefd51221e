#include "fanin/config/configuration.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/home.hpp"
#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/builder/lane.hpp"
#include "fanin/config/detail/sections.hpp"
#include "fanin/settings/reader.hpp"
#include "fanin/storage/sink_registry.hpp"

namespace fanin::config {

namespace detail {

std::string resolve_path(const std::string& written, const Place& place) {
  std::string path = expand_home(written);
  const auto slash = place.file.rfind('/');
  const bool from_file = !place.is_override() && slash != std::string::npos;
  if (path.empty() || path.front() == '/' || !from_file) return path;
  return place.file.substr(0, slash + 1) + path;
}

int read_numa_node(TableReader& reader, int fallback) {
  if (!reader.has("numa_node")) return fallback;
  return static_cast<int>(reader.integer("numa_node", 0, 0, 1023));
}

std::uint64_t read_buffer(TableReader& reader, std::string_view key, std::uint64_t fallback) {
  const std::uint64_t bytes = reader.size(key, fallback);
  if (bytes > buffer_max) {
    reader.reject(key, fmt::format("{} is more than any host has", format_size(bytes)));
  }
  return bytes;
}

} // namespace detail

namespace {

using detail::Problems;
using detail::read_buffer;
using detail::read_numa_node;
using detail::TableReader;
using detail::Value;

// The value whose name is there; without the key the first one.
template <class Enum, std::size_t count>
Enum read_choice(TableReader& reader, std::string_view key, const std::array<Enum, count>& values) {
  const auto choose = [&]<std::size_t... index>(std::index_sequence<index...>) {
    return values[reader.choice(key, {name(values[index])...})];
  };
  return choose(std::make_index_sequence<count>{});
}

constexpr std::size_t metadata_max = 1000; // keys

void read_metadata(TableReader reader, std::vector<storage::Metadata>& metadata) {
  if (reader.value() == nullptr) return;
  const auto& entries = reader.value()->entries;
  if (entries.size() > metadata_max) {
    return reader.reject("", fmt::format("has {} keys: at most {}", entries.size(), metadata_max));
  }
  for (const auto& [key, value] : entries) {
    const std::string& text = value.text;
    if (key.empty() || key.size() > 255 || key.contains('\0')) {
      reader.reject(key, "is no name for a key: 1 to 255 bytes without NUL");
    } else if (value.kind == Value::Kind::text) {
      if (text.size() > storage::text_attribute_max)
        reader.reject(
            key, fmt::format("has {} bytes: at most {}", text.size(), storage::text_attribute_max));
      metadata.push_back({key, reader.text(key, "")});
    } else if (value.kind == Value::Kind::boolean) {
      metadata.push_back({key, text == "true"});
    } else if (const auto number = parse_number<std::int64_t>(text);
               value.kind == Value::Kind::integer && number) {
      metadata.push_back({key, *number});
    } else if (const auto real = parse_number<double>(text);
               value.kind == Value::Kind::real && real) {
      metadata.push_back({key, *real});
    } else {
      reader.reject(key, "is not a text, a number, true or false");
    }
  }
}

void read_run(TableReader reader, Configuration& configuration) {
  Run& run = configuration.run;
  if (reader.has("number")) {
    run.number = static_cast<RunNumber>(reader.integer("number", 1, 1, run_number_max));
  }
  run.duration = reader.duration("duration", run.duration);
  if (reader.has("duration") && run.duration == Duration{0}) {
    reader.reject("duration", "is zero; leave it out to run until stopped");
  }
  configuration.system.events_max = reader.integer("events", configuration.system.events_max, 1);
  run.output = expand_home(reader.text("output", run.output));
  if (run.output.empty()) {
    reader.reject("output", "is empty; name a folder, or \"discard\" to write nothing");
  } else if (run.output.contains('\n')) {
    reader.reject("output", "has a line break in it; name a folder without one");
  }
  if (run.output == "discard") run.output.clear();
  run.restart = reader.boolean("restart", run.restart);
  configuration.system.drain = reader.duration("drain", configuration.system.drain);
  run.seed = reader.integer("seed", run.seed);
  run.registry = expand_home(reader.text("registry", run.registry));
  if (reader.has("registry") && run.registry.empty())
    reader.reject("registry", "is empty; name a file, or leave it out");
  run.kind = reader.choice("kind", {"physics", "test"}) == 0 ? "physics" : "test";
  run.comment = reader.text("comment", "");
  if (run.comment.size() > storage::text_attribute_max) {
    reader.reject("comment", fmt::format("has {} bytes: at most {}", run.comment.size(),
                                         storage::text_attribute_max));
  }
  read_metadata(reader.table("metadata"), run.metadata);
  run.without = reader.words("without");
  reader.finish();
}

void read_network(TableReader reader, Network& network, builder::System& system) {
  const net::Url common = reader.url("url").value_or(net::Url{.scheme = "tcp"});
  network.control = reader.urls("control");
  if (network.control.size() > builder::rails_max) {
    reader.reject("control", fmt::format("names more than {} addresses", builder::rails_max));
  }
  if (network.control.empty()) network.control = {common};
  network.data = reader.url("data").value_or(common);
  system.protocol = read_choice(reader, "protocol", builder::protocols);
  system.dead_after = reader.duration("dead_after", system.dead_after);
  if (system.dead_after < std::chrono::milliseconds{600}) {
    reader.reject("dead_after", "nodes report every 250 ms; set 600ms or more");
  }
  system.grace = reader.duration("grace", std::min(system.grace, system.dead_after / 2));
  if (system.grace >= system.dead_after) {
    reader.reject(
        "grace", "must be shorter than network.dead_after: a node that was given up cannot resume");
  }
  network.give_up_after =
      reader.duration("give_up_after", std::max(network.give_up_after, 2 * system.dead_after));
  if (network.give_up_after <= system.dead_after) {
    reader.reject("give_up_after", "must be longer than network.dead_after: until then an earlier "
                                   "process may still have the node's name");
  }
  system.transfer_window = reader.size("transfer_window", system.transfer_window);
  network.wait = static_cast<net::WaitPolicy>(reader.choice("wait", {"block", "poll"}));
  reader.finish();
}

void read_trigger(TableReader reader, builder::System& system) {
  system.trigger_rate_hz = reader.rate_hz("rate", 0);
  system.trigger_window = reader.integer("window", system.trigger_window, 1);
  if (reader.value() != nullptr && !reader.has("rate")) {
    reader.reject_missing("rate", "is missing; without a trigger leave the section out");
  }
  reader.finish();
}

void read_event(TableReader reader, builder::System& system) {
  system.event_deadline = reader.duration("deadline", system.event_deadline);
  if (system.event_deadline < std::chrono::milliseconds{1}) {
    reader.reject("deadline", "below 1ms every event would be incomplete");
  }
  if (reader.has("give_up_slow")) {
    system.event_give_up_slow = reader.duration("give_up_slow", system.event_give_up_slow);
    if (system.event_give_up_slow < system.event_deadline) {
      reader.reject("give_up_slow", "is below event.deadline; leave it out to wait for ever");
    }
  }
  system.event_window = reader.integer("window", system.event_window, 2, std::uint64_t{1} << 62);
  system.integrity = reader.choice("integrity", {"crc32c", "none"}) == 0;
  system.batch_events =
      static_cast<std::uint32_t>(reader.integer("batch_events", system.batch_events, 1, 4096));
  if (!std::has_single_bit(system.batch_events)) {
    reader.reject("batch_events",
                  fmt::format("{} is not a power of two, as 1024 is", system.batch_events));
  }
  system.batch_size = reader.size("batch_size", system.batch_size);
  if (system.batch_size < 4096) reader.reject("batch_size", "a batch takes at least 4KiB");
  system.assignment = read_choice(reader, "assignment", builder::assignment_policies);
  system.batch_delay = reader.duration("batch_delay", system.batch_delay);
  system.latency = reader.duration("latency", std::min(system.latency, system.event_deadline / 4));
  if (system.latency >= system.event_deadline) {
    reader.reject("latency",
                  "must be shorter than event.deadline, after which a source is given up");
  }
  reader.finish();
}

// Its sizes are fitted to the topology later.
void read_shaping(TableReader reader, builder::System& system) {
  builder::shaping::Shaping& shaping = system.shaping;
  shaping.policy = read_choice(reader, "policy", builder::shaping::policies);
  for (const char* key : {"carrier", "window"}) {
    if (reader.has(key) && !reader.has("policy"))
      reader.reject(key, "counts only with a shaping.policy");
  }
  if (reader.has("tokens") && shaping.policy != builder::shaping::Policy::tokens) {
    reader.reject("tokens", "counts only with shaping.policy = \"tokens\"");
  }
  (void)reader.size("carrier", 0);
  (void)reader.size("window", 0);
  reader.finish();
}

void read_buffers(TableReader reader, Configuration& configuration) {
  Buffers& buffers = configuration.buffers;
  buffers.readout = read_buffer(reader, "readout", buffers.readout);
  buffers.builder = read_buffer(reader, "builder", buffers.builder);
  const std::uint64_t page = reader.size("page", configuration.system.data_page);
  if (!std::has_single_bit(page) || page < (64U << 10) || page > (64U << 20)) {
    reader.reject("page",
                  fmt::format("{} is not a power of two from 64KiB to 64MiB", format_size(page)));
  }
  configuration.system.data_page = static_cast<std::uint32_t>(page);
  buffers.numa_node = read_numa_node(reader, buffers.numa_node);
  buffers.huge_pages =
      static_cast<memory::HugePages>(reader.choice("huge_pages", {"off", "transparent", "required"},
                                                   static_cast<std::size_t>(buffers.huge_pages)));
  buffers.hold = reader.duration("hold", buffers.hold);
  reader.finish();
}

// What is read here of [storage] where a plug-in's sink reads the rest.
constexpr auto sink_keys = std::to_array<std::string_view>({"sink", "on_full"});

// How built events are kept: in files, nowhere, by the slices of a second stage, or by a plug-in.
void read_sink(TableReader& reader, TableReader slice, Configuration& configuration) {
  const std::string sink = reader.text("sink", "file");
  const bool forwards = sink == "forward";
  if (sink == "discard" || forwards) configuration.run.output.clear();
  if (!storage::is_own_sink(sink)) {
    configuration.sink.type = sink;
    configuration.sink.common_keys = sink_keys;
    detail::read_own_settings(reader, sink_keys, configuration.sink.settings);
  }
  if (forwards && !slice.has("urls"))
    reader.reject_missing("sink", "\"forward\" needs slice.urls: where to");
  if (!forwards && slice.has("urls"))
    slice.reject_missing("urls", "counts only with storage.sink = \"forward\"");
}

void read_storage(TableReader reader, const Sink& sink, storage::FileSinkOptions& options) {
  options.on_full = static_cast<storage::OnFull>(reader.choice("on_full", {"wait", "stop"}));
  if (!sink.type.empty()) return reader.finish();
  options.file.max_file = reader.size("max_file", options.file.max_file);
  if (reader.has("max_file") && options.file.max_file < (1U << 20)) {
    reader.reject("max_file", "a file takes at least 1MiB");
  }
  options.file.commit =
      static_cast<storage::CommitMode>(reader.choice("commit", {"written", "synced"}));
  reader.finish();
}

void read_monitoring(TableReader reader, Monitoring& monitoring) {
  if (reader.value() == nullptr) return;
  monitoring.every = static_cast<std::uint32_t>(
      reader.integer("every", 1, 1, std::numeric_limits<std::uint32_t>::max()));
  monitoring.rate_hz = reader.rate_hz("rate", 0);
  if (!reader.has("every") && !reader.has("rate")) {
    reader.reject_missing("every", "is missing, or rate: how many events are published");
  } else if (reader.has("rate") && monitoring.rate_hz < 1e-3) {
    reader.reject("rate", "is too low; leave [monitoring] out to publish nothing");
  }
  reader.finish();
}

// Of the same file, for fanin sim: a run has another network and real sources.
constexpr auto simulation_tables = std::to_array<std::string_view>({"fabric", "traffic"});

// Whatever text was quoted in the message.
Result<Configuration> in_one_line(Result<Configuration> result) {
  if (!result) result.error().text = settings::one_line(result.error().text);
  return result;
}

// While the run ends, events still wait for a silent source: this must not look like a run that
// does not go on.
void fit_drain(TableReader run, builder::System& system) {
  if (!run.has("drain")) {
    system.drain = std::max(system.drain, 2 * system.event_deadline);
  } else if (system.drain <= system.event_deadline) {
    run.reject("drain",
               fmt::format("{} is not longer than event.deadline = {}, for which events "
                           "wait for a silent source: raise run.drain, or lower "
                           "event.deadline",
                           format_duration(system.drain), format_duration(system.event_deadline)));
  }
}

// At most half of a counter's range: beyond that a step ahead is one back.
void fit_window(TableReader event, Configuration& configuration) {
  const bool given = event.has("window");
  std::uint64_t& window = configuration.system.event_window;
  for (const Source& source : configuration.sources) {
    const std::uint64_t half = std::uint64_t{1} << (source.queue.counter_bits - 1);
    if (window <= half) continue;
    if (given) {
      event.reject("window",
                   fmt::format("{} is more than half the range of source {}'s counter of {} bits: "
                               "at most {}",
                               window, source.settings.name, source.queue.counter_bits, half));
      return;
    }
    window = half;
  }
}

// A batch has a data block of each readout unit, which is worth a message of its own. With shaping,
// a builder unit gets its blocks in turn with others: with two batches it often waits for the last
// readout unit of one while the others have sent all of the next.
void fit_batches(TableReader event, TableReader network, Configuration& configuration) {
  constexpr std::uint64_t block = 64U << 10;
  builder::System& system = configuration.system;
  if (!event.has("batch_size")) {
    system.batch_size = std::max(system.batch_size, configuration.readouts() * block);
  }
  if (!network.has("transfer_window")) {
    const std::uint64_t batches = system.shaping.on() ? 4 : 2;
    system.transfer_window = std::max(system.transfer_window, batches * system.batch_size);
  }
}

// A carrier is a message, in which a batch's table takes at most half. All readout units can be
// granted something at the same time. Who knows the buffers of the switch says the window, and the
// rest follows.
void fit_shaping(TableReader reader, TableReader event, Configuration& configuration) {
  using builder::shaping::carriers_least;
  constexpr std::uint64_t carrier_least = 2U << 10;
  builder::System& system = configuration.system;
  builder::shaping::Shaping& shaping = system.shaping;
  if (!shaping.on()) return;
  const std::uint64_t readouts = configuration.readouts();
  const std::uint64_t tokens_max = readouts + configuration.readouts_left_out.size();
  const std::uint64_t tokens =
      reader.integer("tokens", shaping.tokens, 1, std::max<std::uint64_t>(tokens_max, 1));
  shaping.tokens = static_cast<std::uint32_t>(std::min(tokens, readouts));
  const std::uint64_t connections = std::max<std::uint64_t>(readouts * system.rails, 1);
  const auto carrier_for = [](std::uint32_t events) {
    return std::bit_ceil(2 * detail::table_bytes_max(events));
  };
  const std::uint64_t most = system.data_page / 2;
  if (most < carrier_least) return; // buffers.page is refused
  std::uint64_t usual =
      std::min(std::max<std::uint64_t>(shaping.carrier, carrier_for(system.batch_events)), most);
  if (reader.has("window")) {
    const std::uint64_t share = reader.size("window", 0) / connections;
    usual = std::clamp(share / carriers_least / 1024 * 1024, carrier_least, usual);
  }
  const std::uint64_t carrier = reader.size("carrier", usual);
  if (carrier > most) {
    return reader.reject("carrier",
                         fmt::format("{} is more than half a page (buffers.page = {}): at most {}",
                                     format_size(carrier), format_size(system.data_page),
                                     exact_size(most)));
  }
  if (carrier < carrier_least) {
    return reader.reject("carrier", fmt::format("takes at least {}", exact_size(carrier_least)));
  }
  shaping.carrier = static_cast<std::uint32_t>(carrier);
  shaping.window = reader.size("window", shaping.window_usual(connections));
  const std::uint64_t window_least = shaping.window_least(connections);
  if (shaping.window < window_least) {
    return reader.reject(
        "window",
        fmt::format("{} is less than {} carriers of {} for each readout unit ({} of them){}: "
                    "take {}{}",
                    format_size(shaping.window), carriers_least, format_size(carrier), readouts,
                    system.rails == 1 ? std::string()
                                      : fmt::format(" over each of {} rails", system.rails),
                    exact_size(window_least),
                    reader.has("carrier") ? " or a smaller shaping.carrier" : ""));
  }
  const std::uint32_t asked = system.batch_events;
  while (carrier < 2 * detail::table_bytes_max(system.batch_events)) system.batch_events /= 2;
  if (system.batch_events < asked && event.has("batch_events")) {
    const bool needs_page = carrier_for(asked) > most;
    const bool by_window = reader.has("window") && !reader.has("carrier");
    const std::uint64_t factor = needs_page ? 2 : by_window ? carriers_least * connections : 1;
    event.reject("batch_events",
                 fmt::format("{} are too many for carriers of {}: take {}, or {} = {}", asked,
                             format_size(carrier), system.batch_events,
                             needs_page  ? "buffers.page"
                             : by_window ? "shaping.window"
                                         : "shaping.carrier",
                             exact_size(factor * carrier_for(asked))));
  }
}

// Nodes that read other files than each other may differ in where data come from, not in how events
// are numbered, nor in how large fragments may be, for which all reserve memory.
std::string numbering_of(const Source& source) {
  const source::FragmentQueueOptions& queue = source.queue;
  return fmt::format("{} {} {} {} {}", source.settings.type, queue.counter_bits, queue.offset,
                     queue.first ? fmt::to_string(*queue.first) : "", queue.fragment_max);
}

// What all nodes agree on, and what follows from it for each source.
void finish_system(Configuration& configuration) {
  builder::System& system = configuration.system;
  for (Source& source : configuration.sources) {
    source.settings.seed = configuration.run.seed;
    source.queue.checksum = system.integrity;
    source.queue.near = system.event_window;
    source.queue.deadline = system.event_deadline;
    system.sources.push_back({.id = source.settings.id,
                              .name = source.settings.name,
                              .readout_unit = static_cast<NodeId>(source.readout),
                              .required = source.required,
                              .numbering = numbering_of(source),
                              .merged = source.merged});
  }
}

// With an override to `blame`, it is the place of all errors.
Result<Configuration> interpret(Value parsed, const std::string& file,
                                std::span<const std::string> overrides,
                                std::optional<settings::Place> blame = {}) {
  Configuration configuration;
  configuration.file = file;
  configuration.written = std::move(parsed);
  Value& root = configuration.written;
  std::uint32_t ordinal = 0;
  for (const auto& assignment : overrides)
    FANIN_TRY(settings::override_value(root, assignment, ++ordinal));
  Problems problems;
  problems.blame = std::move(blame);
  TableReader reader(&root, "", problems);
  read_run(reader.table("run"), configuration);
  read_network(reader.table("network"), configuration.network, configuration.system);
  read_trigger(reader.table("trigger"), configuration.system);
  read_event(reader.table("event"), configuration.system);
  fit_drain(reader.table("run"), configuration.system);
  read_shaping(reader.table("shaping"), configuration.system);
  read_buffers(reader.table("buffers"), configuration);
  TableReader storage = reader.table("storage");
  read_sink(storage, reader.table("slice"), configuration);
  read_storage(storage, configuration.sink, configuration.storage);
  for (auto& plugin : reader.tables("plugin")) {
    const std::string path = plugin.text("path", "");
    if (path.empty()) plugin.reject_missing("path", "is missing: the shared object to load");
    configuration.plugins.push_back(detail::resolve_path(path, plugin.place_of("path")));
    plugin.finish();
  }
  if (!configuration.sink.type.empty() && configuration.plugins.empty()) {
    storage.reject("sink", fmt::format("there is no sink \"{}\": \"file\", \"discard\" or "
                                       "\"forward\", or that of a [[plugin]]",
                                       configuration.sink.type));
  }
  read_monitoring(reader.table("monitoring"), configuration.monitoring);
  detail::read_slice(reader.table("slice"), configuration);
  detail::read_streams(reader, configuration.system);
  detail::read_nodes(reader, configuration, problems);
  detail::check_streams(configuration, reader);
  fit_window(reader.table("event"), configuration);
  fit_batches(reader.table("event"), reader.table("network"), configuration);
  fit_shaping(reader.table("shaping"), reader.table("event"), configuration);
  detail::check_block(reader.table("slice"), configuration.system);
  finish_system(configuration);
  reader.know(simulation_tables);
  // A misspelled section may be why anything else is wrong.
  problems.first_is_of_missing_key = problems.first.has_value();
  reader.finish();
  if (!problems.first) detail::check_consistency(configuration, problems);
  if (problems.first) return std::unexpected(*problems.first);
  return configuration;
}

// Where an override has made wrong what was right before, it is at fault, whichever key shows that.
Result<Configuration> interpret_and_blame(const Value& parsed, const std::string& file,
                                          std::span<const std::string> overrides) {
  auto result = interpret(parsed, file, overrides);
  for (std::size_t good = overrides.size(); !result && good-- > 0;) {
    if (!interpret(parsed, file, overrides.first(good))) continue;
    const settings::Place blame{"--set", static_cast<std::uint32_t>(good + 1)};
    return interpret(parsed, file, overrides, blame);
  }
  return result;
}

} // namespace

settings::Place Configuration::place_of(std::string_view key,
                                        std::span<const std::string> causes) const {
  for (const std::string& cause : causes) {
    const Value* const value = settings::find_path(written, cause);
    const Value* const given = value == nullptr ? nullptr : settings::find_override(*value);
    if (given != nullptr) return given->place;
  }
  // A source has what it does not say itself from [source].
  const auto dot = key.rfind('.');
  if (key.contains(".source") && settings::find_path(written, key) == nullptr) {
    const Value* const common =
        settings::find_path(written, fmt::format("source{}", key.substr(dot)));
    if (common != nullptr) return common->place;
  }
  return settings::place_of(written, key);
}

Error Configuration::wrong(std::string_view key, std::string_view reason,
                           std::span<const std::string> causes) const {
  return {ErrorKind::usage, fmt::format("{}: {}: {}", place_of(key, causes).text(), key, reason)};
}

std::optional<std::size_t> Configuration::find_node(std::string_view name) const {
  const auto found = std::ranges::find(nodes, name, &Node::name);
  if (found == nodes.end()) return std::nullopt;
  return static_cast<std::size_t>(found - nodes.begin());
}

// Over shared memory and within a process a name is an address: that of the event manager makes it
// different from those of other event builders on this host.
net::Url Configuration::filter_address(std::size_t builder, const net::Url& event_manager) const {
  const Node& node = nodes[builder_node(builder)];
  net::Url url = *node.filter_url;
  if (!url.host.empty()) return url;
  url.host = fmt::format("{}.{}.{}.filter", event_manager.host, event_manager.port, node.name);
  url.port = 1;
  return url;
}

std::vector<std::size_t> Configuration::builders_of(std::size_t filter) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < builders(); ++i) {
    const Node& node = nodes[builder_node(i)];
    const bool same_host = node.filter_url->reach() == net::Reach::host;
    if (!same_host || node.host == nodes[filter].host) found.push_back(i);
  }
  return found;
}

source::SourceSettings Configuration::settings_of(const Node& node, LogFunction log) const {
  return {.name = node.name,
          .type = node.type,
          .key = node.key,
          .place = node.place,
          .seed = run.seed,
          .values = node.settings,
          .common_keys = node.common_keys,
          .log = std::move(log)};
}

std::string Configuration::node_names() const {
  std::string names;
  for (const Node& node : nodes) names += (names.empty() ? "" : ", ") + node.name;
  return names;
}

Result<Configuration> parse(std::string_view text, const std::string& file,
                            const std::vector<std::string>& overrides) {
  const auto parsed = settings::parse_toml(text, file);
  return in_one_line(parsed ? interpret_and_blame(*parsed, file, overrides)
                            : std::unexpected(parsed.error()));
}

Result<Configuration> load(const std::string& path, const std::vector<std::string>& overrides) {
  const auto text = settings::read_text(path);
  if (!text) return in_one_line(std::unexpected(text.error()));
  return parse(*text, path, overrides);
}

} // namespace fanin::config
