// The nodes, their sources and their processes.
#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/number.hpp"
#include "fanin/builder/lane.hpp"
#include "fanin/config/detail/sections.hpp"
#include "fanin/wire/filter.hpp"

namespace fanin::config::detail {
namespace {

constexpr std::uint64_t nodes_max = 4096; // of one role
constexpr std::size_t sources_max = 65'536;
constexpr std::int64_t offset_max = std::int64_t{1} << 62;

// What is read here of a table whose other keys are its type's own.
constexpr auto source_keys = std::to_array<std::string_view>(
    {"enabled", "count", "id", "name", "type", "required", "fragment_max", "expected",
     "counter_bits", "offset", "first", "merged", "merged_optional"});
constexpr auto application_keys =
    std::to_array<std::string_view>({"name", "host", "cpu", "numa_node", "type"});
constexpr auto filter_keys = std::to_array<std::string_view>(
    {"name", "count", "host", "cpu", "numa_node", "type", "ahead", "latency", "time_limit"});

// Several alike share the CPUs of their entry evenly, in order.
std::vector<int> share_of_cpus(const std::vector<int>& cpus, std::uint64_t copy,
                               std::uint64_t count) {
  if (cpus.size() % count != 0) return {};
  const auto share = static_cast<std::ptrdiff_t>(cpus.size() / count);
  const auto first = cpus.begin() + share * static_cast<std::ptrdiff_t>(copy);
  return {first, first + share};
}

// The keys that every node has.
Node read_node(TableReader& reader, Role role, const Buffers& buffers, std::uint64_t buffer = 0) {
  Node node;
  node.role = role;
  node.name = reader.text("name", "");
  node.cpus = reader.cpus("cpu");
  node.host = reader.text("host", "");
  node.numa_node = read_numa_node(reader, buffers.numa_node);
  if (role == Role::readout || role == Role::builder)
    node.buffer = read_buffer(reader, "buffer", buffer);
  node.key = reader.key();
  node.place = reader.place();
  return node;
}

// How many nodes an entry stands for.
std::uint64_t read_count(TableReader& reader) { return reader.integer("count", 1, 1, nodes_max); }

// So many nodes like that one, which has the name and the CPUs of the entry. They are named "left"
// or, if there are several, "left0", "left1", ...; without a name by the prefix and their number.
template <class Finish> // void(Node&, std::uint64_t copy)
void add_nodes(TableReader& reader, Configuration& configuration, const Node& alike,
               std::uint64_t count, std::string_view prefix, const Finish& finish) {
  if (alike.cpus.size() % count != 0) {
    reader.reject("cpu", fmt::format("{} cannot be shared evenly by {} nodes",
                                     counted(alike.cpus.size(), "CPU"), count));
  }
  const auto first = std::ranges::count(configuration.nodes, alike.role, &Node::role);
  for (std::uint64_t copy = 0; copy < count; ++copy) {
    Node node = alike;
    if (alike.name.empty()) {
      node.name = fmt::format("{}{}", prefix, static_cast<std::uint64_t>(first) + copy);
    } else if (count > 1) {
      node.name += fmt::to_string(copy);
    }
    node.cpus = share_of_cpus(alike.cpus, copy, count);
    finish(node, copy);
    configuration.nodes.push_back(std::move(node));
  }
}

// Where what a type lacks is missed: its table, or the override that has named the type.
Place place_of_type(const TableReader& reader) {
  const Place type = reader.place_of("type");
  return type.is_override() ? type : reader.place();
}

// By convention, of plug-ins too.
bool is_path(std::string_view key) {
  return key == "path" || key == "master" || key.ends_with("_path");
}

} // namespace

void read_own_settings(TableReader& reader, std::span<const std::string_view> common,
                       std::map<std::string, settings::Setting>& settings) {
  for (const Entry& entry : reader.value()->entries) {
    if (std::ranges::find(common, entry.key) != common.end()) continue;
    std::string text = entry.value.kind == Value::Kind::list
                           ? fmt::format("{}", fmt::join(reader.texts(entry.key), ", "))
                           : reader.text(entry.key, "");
    const Place& place = entry.value.place;
    if (is_path(entry.key)) text = resolve_path(text, place);
    settings[entry.key] = {std::move(text), place};
  }
}

namespace {

class SourceReader {
public:
  SourceReader(const Value* defaults, Configuration& configuration, Problems& problems)
      : defaults_(defaults), configuration_(configuration), problems_(problems) {}

  // All copies of one [[readout]] together, since ids run on from one to the next.
  void read(TableReader& readout, std::size_t first_readout, std::uint64_t readouts) {
    for (auto& table : readout.tables("source")) {
      if (table.value() == nullptr) continue;
      Value merged = *table.value();
      if (defaults_ != nullptr && defaults_->kind == Value::Kind::table) {
        for (const Entry& entry : defaults_->entries) {
          if (merged.find(entry.key) == nullptr) merged.entries.push_back(entry);
        }
      }
      TableReader reader(&merged, table.key(), problems_);
      read_alike(reader, first_readout, readouts);
    }
  }

private:
  // One that its counter can say before it has wrapped.
  static EventNumber read_first(TableReader& reader, const source::FragmentQueueOptions& queue) {
    const EventNumber first = reader.integer("first", 0, 0, event_number_end - 1);
    const std::uint64_t counter = first - static_cast<std::uint64_t>(queue.offset);
    if (queue.counter_bits == 64 || counter >> queue.counter_bits == 0) return first;
    const std::uint64_t last = first - counter + (std::uint64_t{1} << queue.counter_bits) - 1;
    reader.reject(
        "first",
        fmt::format("{} is not between {} and {}, the first range of its counter of {} bits", first,
                    queue.offset, static_cast<std::int64_t>(last), queue.counter_bits));
    return first;
  }

  static source::FragmentQueueOptions read_queue(TableReader& reader) {
    source::FragmentQueueOptions queue;
    const std::uint64_t fragment_max = reader.size("fragment_max", queue.fragment_max);
    if (fragment_max == 0 || fragment_max > (256U << 20) - 1) {
      reader.reject("fragment_max", "a fragment has up to 134217727 B (128 MiB - 1)");
    }
    queue.fragment_max = static_cast<std::uint32_t>(fragment_max);
    queue.counter_bits = static_cast<int>(reader.integer("counter_bits", 64, 8, 64));
    queue.offset = reader.signed_integer("offset", 0, -offset_max, offset_max);
    if (reader.has("first")) queue.first = read_first(reader, queue);
    return queue;
  }

  void read_alike(TableReader& reader, std::size_t first_readout, std::uint64_t readouts) {
    const std::uint64_t count = reader.integer("count", 1, 1, sources_max);
    const std::uint64_t first_id =
        reader.integer("id", next_id_, 0, std::numeric_limits<SourceId>::max());
    const std::size_t before =
        configuration_.sources.size() + configuration_.sources_left_out.size();
    if (before + count * readouts > sources_max) {
      reader.reject("count", fmt::format("more than {} sources in all", sources_max));
      return;
    }
    if (first_id + count * readouts - 1 > std::numeric_limits<SourceId>::max()) {
      reader.reject("id", "ids go up to 4294967295 (32 bits)");
      return;
    }
    Source source;
    const std::string name = reader.text("name", "");
    source.settings.type = reader.text("type", "");
    if (source.settings.type.empty()) {
      reader.reject_missing("type", "is missing, as in type = \"emulator\"");
    }
    source.required = reader.boolean("required", source.required);
    if (reader.has("expected")) source.expected_bytes_per_s = reader.bandwidth("expected", 0);
    source.queue = read_queue(reader);
    source.merged = read_merged(reader, source.required);
    check_super_fragments(reader, source);
    const auto is_required = [](const storage::SourceInfo& one) { return one.required; };
    if (!source.merged.empty()) source.required = std::ranges::any_of(source.merged, is_required);
    if (!source.merged.empty() && count * readouts > 1)
      reader.reject("merged", "several sources cannot merge the same ones: leave out count");
    auto& sources =
        reader.boolean("enabled", true) ? configuration_.sources : configuration_.sources_left_out;
    source.settings.key = reader.key();
    source.settings.place = place_of_type(reader);
    source.settings.common_keys = source_keys;
    read_own_settings(reader, source_keys, source.settings.values);
    for (std::uint64_t copy = 0; copy < count * readouts; ++copy) {
      Source one = source;
      const auto id = static_cast<SourceId>(first_id + copy);
      one.settings.id = one.queue.source = id;
      one.readout = first_readout + copy / count;
      one.settings.name = name.empty()           ? fmt::format("{:#x}", id)
                          : count * readouts > 1 ? fmt::format("{}{}", name, copy)
                                                 : name;
      sources.push_back(std::move(one));
    }
    next_id_ = first_id + count * readouts;
  }

  const Value* defaults_;
  Configuration& configuration_;
  Problems& problems_;
  std::uint64_t next_id_ = 0;
};

void read_event_manager(TableReader reader, Configuration& configuration) {
  Node node = read_node(reader, Role::event_manager, configuration.buffers);
  if (node.place.file.empty()) node.place = configuration.place_of("event_manager");
  if (node.name.empty()) node.name = "evm";
  reader.finish();
  configuration.nodes.push_back(std::move(node));
}

void read_readouts(TableReader& root, Configuration& configuration, Problems& problems) {
  SourceReader sources(root.find("source"), configuration, problems);
  (void)root.table("source"); // says so if it is something else
  for (auto& reader : root.tables("readout")) {
    const std::uint64_t count = read_count(reader);
    const Node alike =
        read_node(reader, Role::readout, configuration.buffers, configuration.buffers.readout);
    if (configuration.readouts() + count > nodes_max) {
      reader.reject("count", fmt::format("more than {} readout units", nodes_max));
      return;
    }
    sources.read(reader, configuration.readouts(), count);
    add_nodes(reader, configuration, alike, count, "ru", [&](const Node& node, std::uint64_t) {
      configuration.system.readout_units.push_back(node.name);
    });
    reader.finish();
  }
  std::ranges::sort(configuration.sources, [](const Source& a, const Source& b) {
    return std::pair{a.readout, a.settings.id} < std::pair{b.readout, b.settings.id};
  });
}

std::uint32_t read_weight(TableReader& reader, builder::AssignmentPolicy assignment) {
  if (reader.has("weight") && assignment != builder::AssignmentPolicy::weighted) {
    reader.reject("weight", "counts only with event.assignment = \"weighted\"");
  }
  return static_cast<std::uint32_t>(reader.integer("weight", 1, 1, builder::weight_max));
}

// On this host alone, unless another address is given: whoever connects sees data.
void read_monitoring_url(TableReader& reader, const Monitoring& monitoring, Node& node) {
  const auto given = reader.url("monitoring_url");
  if (!monitoring.on()) {
    if (given) reader.reject("monitoring_url", "counts only with [monitoring]");
    return;
  }
  node.monitoring_url = given.value_or(net::Url{.scheme = "tcp"});
  if (node.monitoring_url->host.empty()) node.monitoring_url->host = "127.0.0.1";
  if (node.monitoring_url->network() == "tcp" || node.monitoring_url->network() == "shm") return;
  reader.reject("monitoring_url", "is neither tcp:// nor shm://");
}

void read_builders(TableReader& root, Configuration& configuration) {
  for (auto& reader : root.tables("builder")) {
    const std::uint64_t count = read_count(reader);
    Node alike =
        read_node(reader, Role::builder, configuration.buffers, configuration.buffers.builder);
    alike.urls = reader.urls("url");
    if (alike.urls.size() > builder::rails_max)
      reader.reject("url", fmt::format("names more than {} addresses", builder::rails_max));
    const std::uint32_t weight = read_weight(reader, configuration.system.assignment);
    alike.filter_url = reader.url("filter_url");
    read_monitoring_url(reader, configuration.monitoring, alike);
    alike.url_key = reader.path("url");
    if (configuration.builders() + count > nodes_max) {
      reader.reject("count", fmt::format("more than {} builder units", nodes_max));
      return;
    }
    add_nodes(reader, configuration, alike, count, "bu", [&](Node& node, std::uint64_t copy) {
      for (auto* url : {&node.filter_url, &node.monitoring_url}) {
        if (*url && (*url)->port != 0)
          (*url)->port = static_cast<std::uint16_t>((*url)->port + copy);
      }
      configuration.system.builder_units.push_back(node.name);
      configuration.system.builder_weights.push_back(weight);
    });
    reader.finish();
  }
}

// Something of a plug-in's; what is not among the common keys is left to its type.
void add_of_plugin(TableReader& reader, Configuration& configuration, Node node,
                   std::uint64_t count, std::string_view prefix,
                   std::span<const std::string_view> common_keys) {
  node.type = reader.text("type", "");
  node.place = place_of_type(reader);
  if (node.type.empty())
    reader.reject_missing("type", "is missing: the type that a plug-in has registered");
  node.common_keys = common_keys;
  read_own_settings(reader, common_keys, node.settings);
  add_nodes(reader, configuration, node, count, prefix, [](const Node&, std::uint64_t) {});
}

void read_applications(TableReader& root, Configuration& configuration) {
  for (auto& reader : root.tables("application")) {
    const Node node = read_node(reader, Role::application, configuration.buffers);
    add_of_plugin(reader, configuration, node, 1, "app", application_keys);
  }
}

void read_filters(TableReader& root, Configuration& configuration) {
  for (auto& reader : root.tables("filter")) {
    const std::uint64_t count = read_count(reader);
    Node alike = read_node(reader, Role::filter, configuration.buffers);
    alike.filter_ahead =
        static_cast<std::uint32_t>(reader.integer("ahead", 2, 1, wire::filter_ahead_max));
    alike.filter_latency = reader.duration("latency", std::chrono::milliseconds{100});
    alike.filter_time_limit = reader.duration("time_limit", std::chrono::seconds{1});
    if (alike.filter_time_limit < std::chrono::milliseconds{20})
      reader.reject("time_limit", "decisions are sent every 10 ms: set 20ms or more");
    add_of_plugin(reader, configuration, alike, count, "fu", filter_keys);
  }
}

// Where each node listens: what it says itself, else its host on the common network. In one process
// the name of the node is the host.
class Addresses {
public:
  explicit Addresses(TableReader& root) : network_(root.find("network")) {}

  void set_event_manager(Node& node, const std::vector<net::Url>& control) const {
    set(node, control, "control");
    const bool given = network_ != nullptr && network_->find("control") != nullptr;
    for (net::Url& url : node.urls) complete(node, url, given && !url.host.empty());
  }
  // Where filter units reach a builder unit: within the process, else over shared memory.
  static void set_filters(Node& node) {
    if (!node.filter_url)
      node.filter_url = net::Url{.scheme = node.listens_within_process() ? "inproc" : "shm"};
    net::Url& url = *node.filter_url;
    if (url.host.empty() && url.port != 0) url.host = node.host.empty() ? "127.0.0.1" : node.host;
  }
  void set_builder(Node& node, const net::Url& data) const {
    if (node.urls.empty()) {
      set(node, {data}, "data");
      net::Url& url = node.urls.front();
      if (url.reach() == net::Reach::process) url.host.clear();
      complete(node, url, false);
    } else {
      for (net::Url& url : node.urls) complete(node, url, !url.host.empty());
    }
  }

private:
  void set(Node& node, const std::vector<net::Url>& urls, std::string_view key) const {
    node.urls = urls;
    const bool said = network_ != nullptr && network_->find(key) != nullptr;
    node.url_key = fmt::format("network.{}", said ? key : "url");
  }
  static void complete(const Node& node, net::Url& url, bool says_host) {
    if (url.reach() == net::Reach::process) {
      if (url.host.empty()) url.host = node.name;
    } else if (!says_host && !node.host.empty()) {
      url.host = node.host;
    } else if (url.host.empty()) {
      url.host = "127.0.0.1";
    }
  }

  const Value* network_;
};

void set_urls(TableReader& root, Configuration& configuration) {
  const Addresses addresses(root);
  for (Node& node : configuration.nodes) {
    if (node.role == Role::event_manager) {
      addresses.set_event_manager(node, configuration.network.control);
    } else if (node.role == Role::builder) {
      addresses.set_builder(node, configuration.network.data);
      configuration.system.rails = std::max(configuration.system.rails, node.urls.size());
      if (configuration.has_filters()) Addresses::set_filters(node);
    }
  }
}

// "bu[0-3]" is bu0 to bu3; any other name is itself.
std::vector<std::string> names_of(const std::string& text) {
  const std::size_t open = text.find('[');
  const std::size_t dash = text.find('-', open);
  if (open == std::string::npos || dash == std::string::npos || text.back() != ']') return {text};
  const auto number = [&text](std::size_t begin, std::size_t end) {
    const auto digits = std::string_view{text}.substr(begin, end - begin);
    return parse_number<std::uint64_t>(digits).value_or(nodes_max); // which is out of range
  };
  const std::uint64_t first = number(open + 1, dash);
  const std::uint64_t last = number(dash + 1, text.size() - 1);
  if (first > last || last >= nodes_max) return {text};
  std::vector<std::string> names;
  for (std::uint64_t i = first; i <= last; ++i)
    names.push_back(text.substr(0, open) + fmt::to_string(i));
  return names;
}

void read_processes(TableReader& root, Configuration& configuration) {
  auto readers = root.tables("process");
  std::vector<bool> taken(configuration.nodes.size());
  for (auto& reader : readers) {
    Process process;
    for (const auto& text : reader.texts("nodes"))
      for (const auto& name : names_of(text)) {
        const auto node = configuration.find_node(name);
        if (!node) {
          reader.reject_missing("nodes", fmt::format("there is no node \"{}\"; there are: {}", name,
                                                     configuration.node_names()));
          return;
        }
        if (taken[*node]) {
          reader.reject("nodes", fmt::format("node \"{}\" is named twice", name));
          return;
        }
        taken[*node] = true;
        process.nodes.push_back(*node);
      }
    if (process.nodes.empty()) {
      reader.reject_missing("nodes", "is missing or empty, as in nodes = [\"evm\", \"ru0\"]");
      return;
    }
    process.key = reader.key();
    process.name = reader.text("name", configuration.nodes[process.nodes.front()].name);
    reader.finish();
    configuration.processes.push_back(std::move(process));
  }
  if (readers.empty() && std::ranges::any_of(configuration.nodes, &Node::listens_within_process)) {
    Process process{"all", "process", {}, 0};
    for (std::size_t i = 0; i < configuration.nodes.size(); ++i) process.nodes.push_back(i);
    configuration.processes.push_back(std::move(process));
    return;
  }
  for (std::size_t i = 0; i < configuration.nodes.size(); ++i) {
    const Node& node = configuration.nodes[i];
    if (!taken[i]) configuration.processes.push_back({node.name, node.key, {i}, 0});
  }
  // The event manager's first, the others in the order of their first nodes.
  for (Process& process : configuration.processes) std::ranges::sort(process.nodes);
  std::ranges::sort(configuration.processes, {}, [](const Process& p) { return p.nodes.front(); });
  for (std::size_t i = 0; i < configuration.processes.size(); ++i)
    configuration.processes[i].place = i;
}

} // namespace

void read_nodes(TableReader& root, Configuration& configuration, Problems& problems) {
  read_event_manager(root.table("event_manager"), configuration);
  read_readouts(root, configuration, problems);
  read_builders(root, configuration);
  read_applications(root, configuration);
  read_filters(root, configuration);
  if (configuration.system.streams.empty() && configuration.filters() > 0)
    configuration.system.streams.push_back({.name = "accepted", .prescale = 1, .sources = {}});
  set_urls(root, configuration);
  read_processes(root, configuration);
  leave_out(configuration, problems);
}

} // namespace fanin::config::detail
