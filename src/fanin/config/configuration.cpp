#include "fanin/config/configuration.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/config/detail/sections.hpp"
#include "fanin/config/reader.hpp"

namespace fanin::config {

namespace detail {

std::string resolve_path(const std::string& path, const Place& place) {
  const auto slash = place.file.rfind('/');
  const bool from_file = place.file != "--set" && slash != std::string::npos;
  if (path.empty() || path.front() == '/' || !from_file) return path;
  return place.file.substr(0, slash + 1) + path;
}

void read_run(TableReader reader, Run& run) {
  if (reader.has("number")) {
    run.number = static_cast<RunNumber>(reader.integer("number", 1, 1, 999'999'999));
  }
  run.duration = reader.duration("duration", run.duration);
  if (reader.has("duration") && run.duration == Duration{0}) {
    reader.reject("duration", "is zero; leave it out to run until stopped");
  }
  run.events = reader.integer("events", run.events, 1);
  run.output = reader.text("output", run.output);
  run.output_place = reader.place_of("output");
  if (run.output.empty()) {
    reader.reject("output", "is empty; name a folder, or \"discard\" to write nothing");
  }
  if (run.output == "discard") run.output.clear();
  run.restart = reader.boolean("restart", run.restart);
  run.drain = reader.duration("drain", run.drain);
  run.seed = reader.integer("seed", run.seed);
  reader.finish();
}

void read_network(TableReader reader, Network& network) {
  const net::Url common = reader.url("url").value_or(net::Url{.scheme = "tcp"});
  network.control = reader.url("control").value_or(common);
  network.data = reader.url("data").value_or(common);
  network.protocol = static_cast<Protocol>(reader.choice("protocol", {"push", "pull"}));
  network.dead_after = reader.duration("dead_after", network.dead_after);
  if (network.dead_after < std::chrono::milliseconds{600}) {
    reader.reject("dead_after", "nodes report every 250 ms; set 600ms or more");
  }
  network.grace = reader.duration("grace", std::min(network.grace, network.dead_after / 2));
  if (network.grace >= network.dead_after) {
    reader.reject(
        "grace", "must be shorter than network.dead_after: a node that was given up cannot resume");
  }
  network.give_up_after =
      reader.duration("give_up_after", std::max(network.give_up_after, 2 * network.dead_after));
  if (network.give_up_after <= network.dead_after) {
    reader.reject("give_up_after", "must be longer than network.dead_after: until then an earlier "
                                   "process may still have the node's name");
  }
  network.transfer_window = reader.size("transfer_window", network.transfer_window);
  network.wait = static_cast<net::WaitPolicy>(reader.choice("wait", {"block", "poll"}));
  reader.finish();
}

void read_trigger(TableReader reader, Trigger& trigger) {
  trigger.rate_hz = reader.rate_hz("rate", 0);
  trigger.window = reader.integer("window", trigger.window, 1);
  if (reader.value() != nullptr && !reader.has("rate")) {
    reader.reject("rate", "is missing; without a trigger leave the section out");
  }
  reader.finish();
}

void read_event(TableReader reader, EventRules& event) {
  event.deadline = reader.duration("deadline", event.deadline);
  if (event.deadline < std::chrono::milliseconds{1}) {
    reader.reject("deadline", "below 1ms every event would be incomplete");
  }
  if (reader.has("give_up_slow")) {
    event.give_up_slow = reader.duration("give_up_slow", event.give_up_slow);
    if (event.give_up_slow < event.deadline) {
      reader.reject("give_up_slow", "is below event.deadline; leave it out to wait for ever");
    }
  }
  event.window = reader.integer("window", event.window, 2, std::uint64_t{1} << 62);
  event.window_given = reader.has("window");
  event.window_place = reader.place_of("window");
  event.checksum = reader.choice("integrity", {"crc32c", "none"}) == 0;
  event.batch_events =
      static_cast<std::uint32_t>(reader.integer("batch_events", event.batch_events, 1, 4096));
  if (!std::has_single_bit(event.batch_events)) {
    reader.reject("batch_events",
                  fmt::format("{} is not a power of two, as 1024 is", event.batch_events));
  }
  event.batch_bytes = reader.size("batch_size", event.batch_bytes);
  if (event.batch_bytes < 4096) reader.reject("batch_size", "a batch takes at least 4KiB");
  event.batch_delay = reader.duration("batch_delay", event.batch_delay);
  event.latency = reader.duration("latency", std::min(event.latency, event.deadline / 4));
  if (event.latency >= event.deadline) {
    reader.reject("latency",
                  "must be shorter than event.deadline, after which a source is given up");
  }
  reader.finish();
}

memory::HugePages read_huge_pages(TableReader& reader, memory::HugePages fallback) {
  return static_cast<memory::HugePages>(reader.choice(
      "huge_pages", {"off", "transparent", "required"}, static_cast<std::size_t>(fallback)));
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

void read_buffers(TableReader reader, Buffers& buffers) {
  buffers.readout = read_buffer(reader, "readout", buffers.readout);
  buffers.builder = read_buffer(reader, "builder", buffers.builder);
  const std::uint64_t page = reader.size("page", buffers.page);
  if (!std::has_single_bit(page) || page < (64U << 10) || page > (64U << 20)) {
    reader.reject("page",
                  fmt::format("{} is not a power of two from 64KiB to 64MiB", format_size(page)));
  }
  buffers.page = static_cast<std::uint32_t>(page);
  buffers.numa_node = read_numa_node(reader, buffers.numa_node);
  buffers.huge_pages = read_huge_pages(reader, buffers.huge_pages);
  buffers.hold = reader.duration("hold", buffers.hold);
  reader.finish();
}

void read_storage(TableReader reader, Storage& storage) {
  storage.max_file = reader.size("max_file", storage.max_file);
  if (reader.has("max_file") && storage.max_file < (1U << 20)) {
    reader.reject("max_file", "a file takes at least 1MiB");
  }
  storage.commit = static_cast<Commit>(reader.choice("commit", {"written", "synced"}));
  storage.on_full = static_cast<OnFull>(reader.choice("on_full", {"wait", "stop"}));
  reader.finish();
}

} // namespace detail

namespace {

// Whatever text was quoted in the message.
Result<Configuration> in_one_line(Result<Configuration> result) {
  if (!result) result.error().text = one_line(result.error().text);
  return result;
}

// At most half of a counter's range: beyond that a step ahead is one back.
void fit_window(Configuration& configuration, Problems& problems) {
  EventRules& event = configuration.event;
  for (const Source& source : configuration.sources) {
    const std::uint64_t half = std::uint64_t{1} << (source.counter_bits - 1);
    if (event.window <= half) continue;
    if (event.window_given) {
      problems.add(event.window_place, "event.window",
                   fmt::format("{} is more than half the range of source {}'s counter of {} bits: "
                               "at most {}",
                               event.window, source.name, source.counter_bits, half));
      return;
    }
    event.window = half;
  }
}

Result<Configuration> interpret(Result<Value> parsed, const std::string& file,
                                const std::vector<std::string>& overrides) {
  if (!parsed) return std::unexpected(parsed.error());
  Value& root = *parsed;
  std::uint32_t ordinal = 0;
  for (const auto& assignment : overrides) {
    if (auto done = override_value(root, assignment, ++ordinal); !done) {
      return std::unexpected(done.error());
    }
  }
  Problems problems;
  TableReader reader(&root, "", problems);
  Configuration configuration;
  configuration.file = file;
  detail::read_run(reader.table("run"), configuration.run);
  detail::read_network(reader.table("network"), configuration.network);
  detail::read_trigger(reader.table("trigger"), configuration.trigger);
  detail::read_event(reader.table("event"), configuration.event);
  detail::read_buffers(reader.table("buffers"), configuration.buffers);
  detail::read_storage(reader.table("storage"), configuration.storage);
  for (auto& plugin : reader.tables("plugin")) {
    const std::string path = plugin.text("path", "");
    if (path.empty()) plugin.reject("path", "is missing: the shared object to load");
    configuration.plugins.push_back(
        {detail::resolve_path(path, plugin.place_of("path")), plugin.place_of("path")});
    plugin.finish();
  }
  detail::read_nodes(reader, configuration, problems);
  fit_window(configuration, problems);
  reader.finish();
  if (!problems.first) detail::check_consistency(configuration, problems);
  if (problems.first) return std::unexpected(*problems.first);
  return configuration;
}

} // namespace

std::pair<std::size_t, std::size_t> Configuration::sources_of(std::size_t readout) const {
  const auto [first, last] = std::ranges::equal_range(sources, readout, {}, &Source::readout);
  return {static_cast<std::size_t>(first - sources.begin()),
          static_cast<std::size_t>(last - sources.begin())};
}

std::optional<std::size_t> Configuration::find_node(std::string_view name) const {
  const auto found = std::ranges::find(nodes, name, &Node::name);
  if (found == nodes.end()) return std::nullopt;
  return static_cast<std::size_t>(found - nodes.begin());
}

std::string Configuration::node_names() const {
  std::string names;
  for (const Node& node : nodes) names += (names.empty() ? "" : ", ") + node.name;
  return names;
}

Result<Configuration> parse(std::string_view text, const std::string& file,
                            const std::vector<std::string>& overrides) {
  return in_one_line(interpret(parse_toml(text, file), file, overrides));
}

Result<Configuration> load(const std::string& path, const std::vector<std::string>& overrides) {
  return in_one_line(interpret(read_toml(path), path, overrides));
}

} // namespace fanin::config
