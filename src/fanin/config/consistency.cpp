#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/units.hpp"
#include "fanin/config/detail/sections.hpp"
#include "fanin/net/address.hpp"

namespace fanin::config::detail {
namespace {

constexpr std::size_t sources_per_readout_max = 512;

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

void check_names(const Configuration& configuration, Problems& problems) {
  std::map<std::string, const Node*> seen;
  for (const Node& node : configuration.nodes) {
    if (!is_name(node.name)) {
      report(configuration, problems, node.key + ".name",
             fmt::format("\"{}\" cannot be a node's name: it becomes a part of file names, so "
                         "letters, digits, '_', '-' and '.', at most 64",
                         node.name));
    }
    const auto [other, is_new] = seen.try_emplace(node.name, &node);
    if (!is_new) {
      report(configuration, problems, node.key + ".name",
             fmt::format("two nodes are named \"{}\"", node.name));
    }
  }
}

void check_sources(const Configuration& configuration, Problems& problems) {
  std::map<SourceId, const Source*> seen;
  std::map<std::string, const Source*> names; // results have the sources under them
  for (const Source& source : configuration.sources) {
    const auto add = [&](const char* key, const Source& other, const std::string& what) {
      const std::string& first = other.settings.key;
      report(configuration, problems, source.settings.key + key,
             fmt::format("two sources have the {}; the other one is {} at {}", what, first,
                         configuration.place_of(first + key).text()));
    };
    const SourceId id = source.settings.id;
    const auto [with_id, is_new] = seen.try_emplace(id, &source);
    if (!is_new) {
      add(".id", *with_id->second, fmt::format("id {0} ({0:#x})", id));
      continue;
    }
    const auto [with_name, is_new_name] = names.try_emplace(source.settings.name, &source);
    if (!is_new_name) {
      add(".name", *with_name->second, fmt::format("name \"{}\"", source.settings.name));
    }
  }
  for (std::size_t readout = 0; readout < configuration.readouts(); ++readout) {
    const auto [first, last] = configuration.sources_of(readout);
    const Node& node = configuration.nodes[configuration.readout_node(readout)];
    if (first == last) {
      report(configuration, problems, node.key + ".source",
             fmt::format("readout unit \"{}\" has none: add [[readout.source]]", node.name));
    } else if (last - first > sources_per_readout_max) {
      report(configuration, problems, node.key + ".source",
             fmt::format("readout unit \"{}\" has {}, at most {} are possible", node.name,
                         last - first, sources_per_readout_max));
    }
  }
}

void check_hosts(const Configuration& configuration, Problems& problems) {
  std::set<std::string> hosts;
  const Node* without = nullptr;
  for (const Node& node : configuration.nodes) {
    if (node.host.empty()) {
      without = without == nullptr ? &node : without;
    } else {
      hosts.insert(node.host);
    }
  }
  if (hosts.empty()) return;
  if (without != nullptr) {
    report(configuration, problems, without->key + ".host",
           fmt::format("is missing for \"{}\": where some nodes have a host, all need one",
                       without->name));
    return;
  }
  if (hosts.size() == 1) return;
  for (const Node& node : configuration.nodes) {
    for (const net::Url& url : node.urls) {
      if (!net::is_loopback(url.host)) continue;
      report(configuration, problems, node.url_key,
             fmt::format("\"{}\" would listen on {}, where other hosts cannot reach it", node.name,
                         url.text()));
    }
  }
  const auto without_port = [](const net::Url& url) { return url.port == 0; };
  if (std::ranges::any_of(configuration.event_manager().urls, without_port)) {
    report(configuration, problems, "network.control",
           "needs a port when the nodes are on several hosts, as in \"tcp://daq-evm:7000\"");
  }
}

void check_addresses(const Configuration& configuration, Problems& problems) {
  std::map<std::string, const Node*> seen;
  const auto check = [&](const Node& node, const net::Url& url, const std::string& key,
                         std::string_view remedy) {
    if (net::is_wildcard(url.host)) {
      report(configuration, problems, key,
             fmt::format("\"{}\" would tell others to connect to {}: write an address or a name "
                         "of its host",
                         node.name, url.text()));
    }
    if (url.port == 0 && url.reach() != net::Reach::process) return;
    const auto [other, is_new] = seen.try_emplace(url.text(), &node);
    if (!is_new) {
      report(configuration, problems, key,
             fmt::format("\"{}\" and \"{}\" would both listen on {}; {}", other->second->name,
                         node.name, url.text(), remedy));
    }
  };
  for (const Node& node : configuration.nodes) {
    for (const net::Url& url : node.urls)
      check(node, url, node.url_key, "leave the port out and each finds a free one");
    if (node.filter_url && !node.filter_url->host.empty())
      check(node, *node.filter_url, node.key + ".filter_url", "give each its own port");
  }
}

// A rail that only some builder units have would carry data to those alone.
void check_rails(const Configuration& configuration, Problems& problems) {
  const auto builder = [&configuration](std::size_t i) -> const Node& {
    return configuration.nodes[configuration.builder_node(i)];
  };
  for (std::size_t i = 1; i < configuration.builders(); ++i) {
    const Node& first = builder(0);
    const Node& node = builder(i);
    if (node.urls.size() == first.urls.size()) continue;
    report(configuration, problems, node.url_key,
           fmt::format("\"{}\" has {} and \"{}\" {}, so a rail would have one end: give all "
                       "builder units an address on each rail",
                       node.name, counted(node.urls.size(), "address", "addresses"), first.name,
                       first.urls.size()));
    return;
  }
}

// Filter units know from the configuration alone where builder units are.
void check_filters(const Configuration& configuration, Problems& problems) {
  for (const Node& node : configuration.nodes) {
    if (!node.filter_url) continue;
    if (!configuration.has_filters()) {
      report(configuration, problems, node.key + ".filter_url",
             "there is no [[filter]] to connect there");
    } else if (node.filter_url->reach() == net::Reach::network && node.filter_url->port == 0) {
      report(configuration, problems, node.key + ".filter_url",
             fmt::format("needs a port, as in \"{}://{}:7100\": filter units must know where "
                         "to connect",
                         node.filter_url->scheme, node.name));
    }
  }
  for (std::size_t i = 0; i < configuration.nodes.size(); ++i) {
    const Node& node = configuration.nodes[i];
    if (node.role != Role::filter || !configuration.builders_of(i).empty()) continue;
    report(configuration, problems, node.key + ".host",
           fmt::format("filter unit \"{}\" reaches no builder unit: shm:// ends at its host; "
                       "give builder units a filter_url = \"tcp://HOST:PORT\"",
                       node.name));
  }
}

// One text for each address, as far as no name has to be looked up.
std::string address_of(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  const auto numbers = net::addresses_of_number(host);
  return numbers && !numbers->empty() ? numbers->front().host() : host;
}

// A TCP port that a source or node of a host listens on.
struct Listener {
  std::string who;
  std::string host; // of the node; empty: this one
  net::Url url;
  bool is_source = false;
  const Process* shares = nullptr; // a `receive` source: the process whose sources may share a port

  [[nodiscard]] bool collides_with(const Listener& other) const {
    return url.port != 0 && url.port == other.url.port && host == other.host &&
           (address_of(url.host) == address_of(other.url.host) || net::is_wildcard(url.host) ||
            net::is_wildcard(other.url.host));
  }
  [[nodiscard]] bool shares_with(const Listener& other) const {
    return shares != nullptr && shares == other.shares && url.text() == other.url.text();
  }
  [[nodiscard]] std::string_view how_to_share(const Listener& other) const {
    if (is_source && other.is_source && url.text() == other.url.text() && shares == nullptr)
      return "; only sources of type \"receive\" share a port";
    if (shares == nullptr || other.shares == nullptr) return "";
    return shares == other.shares
               ? "; sources that share a port need the same text as their address"
               : "; sources share a port only within one [[process]]";
  }
};

const Process* process_of(const Configuration& configuration, std::size_t node) {
  for (const Process& process : configuration.processes) {
    if (std::ranges::find(process.nodes, node) != process.nodes.end()) return &process;
  }
  return nullptr;
}

// Each source that listens has a port of its own, or shares it within its process: else the second
// one on a port could not start.
void check_ports(const Configuration& configuration, Problems& problems) {
  std::vector<Listener> seen;
  const auto add = [&](Listener listener, const std::string& key) {
    const auto other = std::ranges::find_if(seen, [&](const Listener& earlier) {
      return listener.collides_with(earlier) && !listener.shares_with(earlier);
    });
    if (other != seen.end()) {
      report(configuration, problems, key,
             fmt::format("{} and {} would both listen on port {}{}", other->who, listener.who,
                         listener.url.port, listener.how_to_share(*other)));
    }
    seen.push_back(std::move(listener));
  };
  for (const Node& node : configuration.nodes) {
    for (const net::Url& url : node.urls) {
      if (url.network() == "tcp")
        seen.push_back({fmt::format("\"{}\"", node.name), node.host, url});
    }
  }
  for (const Node& node : configuration.nodes) {
    if (!node.monitoring_url || node.monitoring_url->network() != "tcp") continue;
    add({fmt::format("monitoring of \"{}\"", node.name), node.host, *node.monitoring_url},
        node.key + ".monitoring_url");
  }
  for (const Source& source : configuration.sources) {
    const auto listen = source.settings.values.find("listen");
    if (listen == source.settings.values.end()) continue;
    const auto url = net::Url::parse(listen->second.value);
    if (!url) continue; // its type says what is wrong
    const std::size_t node = configuration.readout_node(source.readout);
    Listener listener{fmt::format("source \"{}\"", source.settings.name),
                      configuration.nodes[node].host, *url};
    listener.is_source = true;
    if (source.settings.type == "receive") listener.shares = process_of(configuration, node);
    add(std::move(listener), source.settings.key + ".listen");
  }
}

void check_processes(const Configuration& configuration, Problems& problems) {
  std::set<std::string> names;
  for (const Process& process : configuration.processes) {
    const Node& first = configuration.nodes[process.nodes.front()];
    if (!is_name(process.name) || !names.insert(process.name).second) {
      report(configuration, problems, process.key + ".name",
             fmt::format("\"{}\" is not a valid name, or another process has it", process.name));
    }
    for (const std::size_t node : process.nodes) {
      if (configuration.nodes[node].host != first.host) {
        report(configuration, problems, configuration.nodes[node].key + ".host",
               fmt::format("\"{}\" and \"{}\" are one process, but on different hosts", first.name,
                           configuration.nodes[node].name));
      }
    }
  }
  if (configuration.processes.size() == 1) return;
  for (const Node& node : configuration.nodes) {
    if (node.listens_within_process()) {
      report(configuration, problems, node.url_key,
             fmt::format("{} reaches only within one process, but there are {}: put all nodes "
                         "into one [[process]], or leave [[process]] out",
                         node.urls.front().text(), configuration.processes.size()));
    }
  }
}

// A message has half a page, and a batch's table half a message.
void check_page(const Configuration& configuration, Problems& problems) {
  const auto page_for = [](std::uint32_t events) { return 4 * table_bytes_max(events); };
  const builder::System& system = configuration.system;
  if (page_for(system.batch_events) <= system.data_page) return;
  std::uint32_t fitting = system.batch_events;
  while (page_for(fitting) > system.data_page) fitting /= 2;
  report(configuration, problems, "buffers.page",
         fmt::format("{} is too small for batches of {}: take {} or event.batch_events = {}",
                     format_size(system.data_page), counted(system.batch_events, "event"),
                     exact_size(std::bit_ceil(page_for(system.batch_events))), fitting));
}

} // namespace

void report(const Configuration& configuration, Problems& problems, const std::string& key,
            std::string_view reason) {
  problems.add(configuration.place_of(key), key, reason);
}

void check_consistency(const Configuration& configuration, Problems& problems) {
  if (configuration.readouts() == 0) {
    report(configuration, problems, "readout",
           "is missing: add a [[readout]] with a [[readout.source]]");
  }
  if (configuration.builders() == 0)
    report(configuration, problems, "builder", "is missing: add a [[builder]]");
  check_names(configuration, problems);
  check_sources(configuration, problems);
  check_hosts(configuration, problems);
  check_addresses(configuration, problems);
  check_rails(configuration, problems);
  check_ports(configuration, problems);
  check_filters(configuration, problems);
  check_merged(configuration, problems);
  check_forward(configuration, problems);
  check_processes(configuration, problems);
  check_page(configuration, problems);
}

} // namespace fanin::config::detail
