// A run without some of its sources, and without the readout units that have no others.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/number.hpp"
#include "fanin/config/detail/sections.hpp"

namespace fanin::config::detail {
namespace {

// The names in run.without. A source that has none is named by its id, however that is written.
std::set<std::string> read_without(const Configuration& configuration, Problems& problems) {
  std::set<std::string> without;
  if (configuration.run.without.empty()) return without;
  const std::vector<std::string> all = names_of_sources(configuration);
  const std::set<std::string> names(all.begin(), all.end());
  for (const std::string& written : configuration.run.without) {
    const auto id = parse_number_or_hexadecimal<SourceId>(written);
    const std::string name = id && !names.contains(written) ? fmt::format("{:#x}", *id) : written;
    if (names.contains(name)) {
      without.insert(name);
    } else {
      report(configuration, problems, "run.without", no_such_source(written, all));
    }
  }
  return without;
}

// Takes these from what its super-fragments merge; whether nothing is left of the source.
bool leaves_out(Source& source, const std::set<std::string>& without) {
  if (without.contains(source.settings.name)) return true;
  if (source.merged.empty()) return false;
  std::erase_if(source.merged, [&](const auto& member) { return without.contains(member.name); });
  source.required =
      std::ranges::any_of(source.merged, [](const auto& member) { return member.required; });
  return source.merged.empty();
}

// What becomes of the numbers of entries when only some stay; of the others it means nothing.
std::vector<std::size_t> new_numbers(const std::vector<bool>& stays) {
  std::vector<std::size_t> numbers;
  std::size_t next = 0;
  for (const bool one : stays) {
    numbers.push_back(next);
    if (one) ++next;
  }
  return numbers;
}

template <class T>
void keep(std::vector<T>& entries, const std::vector<bool>& stays) {
  std::vector<T> kept;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (stays[i]) kept.push_back(std::move(entries[i]));
  entries = std::move(kept);
}

// The nodes and processes of readout units that do not stay.
void keep_readouts(Configuration& configuration, const std::vector<bool>& stays) {
  std::vector<bool> node_stays(configuration.nodes.size(), true);
  for (std::size_t i = 0; i < stays.size(); ++i) {
    node_stays[configuration.readout_node(i)] = stays[i];
    if (!stays[i]) configuration.readouts_left_out.push_back(configuration.system.readout_units[i]);
  }
  const auto readouts = new_numbers(stays);
  for (Source& source : configuration.sources) source.readout = readouts[source.readout];
  const auto nodes = new_numbers(node_stays);
  for (Process& process : configuration.processes) {
    std::erase_if(process.nodes, [&](std::size_t node) { return !node_stays[node]; });
    for (std::size_t& node : process.nodes) node = nodes[node];
  }
  std::erase_if(configuration.processes, [](const Process& one) { return one.nodes.empty(); });
  keep(configuration.system.readout_units, stays);
  keep(configuration.nodes, node_stays);
}

} // namespace

// Of a super-fragment's sources, too: they are in the files under these names.
std::vector<std::string> names_of_sources(const Configuration& configuration) {
  std::vector<std::string> names;
  for (const auto* sources : {&configuration.sources, &configuration.sources_left_out}) {
    for (const Source& source : *sources) {
      names.push_back(source.settings.name);
      for (const storage::SourceInfo& member : source.merged) names.push_back(member.name);
    }
  }
  return names;
}

std::string no_such_source(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t shown = 16;
  return fmt::format("there is no source \"{}\"; there are: {}{}", name,
                     fmt::join(known.first(std::min(known.size(), shown)), ", "),
                     known.size() > shown ? ", ..." : "");
}

void leave_out(Configuration& configuration, Problems& problems) {
  const std::set<std::string> without = read_without(configuration, problems);
  auto& sources = configuration.sources;
  auto& left_out = configuration.sources_left_out;
  const std::size_t not_enabled = left_out.size();
  std::vector<Source> kept;
  for (Source& source : sources)
    (leaves_out(source, without) ? left_out : kept).push_back(std::move(source));
  sources = std::move(kept);
  if (left_out.empty()) return;
  if (sources.empty()) {
    const std::string enabled = left_out.front().settings.key + ".enabled";
    return report(configuration, problems, left_out.size() == not_enabled ? enabled : "run.without",
                  "no source is left: keep one at least");
  }
  // One that never had a source is a mistake, and stays.
  std::vector<bool> stays(configuration.readouts(), true);
  for (const Source& source : left_out) stays[source.readout] = false;
  for (const Source& source : sources) stays[source.readout] = true;
  keep_readouts(configuration, stays);
}

} // namespace fanin::config::detail
