#include "fanin/builder/system.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include <fmt/format.h>

namespace fanin::builder {

namespace {

// FNV-1a, 64 bit.
class Digest {
public:
  void add(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(value >> (8 * i)));
  }
  void add(const std::string& text) {
    add(text.size());
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3U; }
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

constexpr std::size_t sources_per_readout_unit_max = 512;

} // namespace

std::string_view name(Protocol protocol) { return protocol == Protocol::push ? "push" : "pull"; }

std::uint64_t System::digest() const {
  Digest digest;
  digest.add(readout_units.size());
  for (const auto& name : readout_units) digest.add(name);
  digest.add(builder_units.size());
  for (const auto& name : builder_units) digest.add(name);
  for (const auto& source : sources) {
    digest.add(source.id);
    digest.add(source.name);
    digest.add(source.readout_unit);
    digest.add(source.required ? 1 : 0);
    digest.add(source.numbering);
    for (const auto& member : source.merged) {
      digest.add(member.id);
      digest.add(member.required ? 1 : 0);
    }
  }
  digest.add(static_cast<std::uint64_t>(protocol));
  digest.add(integrity ? 1 : 0);
  digest.add(batch_events);
  digest.add(batch_size);
  digest.add(data_page);
  digest.add(static_cast<std::uint64_t>(shaping.policy));
  digest.add(shaping.carrier);
  digest.add(shaping.window);
  digest.add(shaping.tokens);
  digest.add(rails);
  digest.add(static_cast<std::uint64_t>(batch_delay.count()));
  digest.add(static_cast<std::uint64_t>(latency.count()));
  digest.add(static_cast<std::uint64_t>(event_deadline.count()));
  digest.add(trigger_rate_hz > 0 ? 1 : 0);
  digest.add(event_window);
  digest.add(slice.number);
  digest.add(slice.of);
  digest.add(slice.block);
  digest.add(in_order ? 1 : 0);
  digest.add(streams.size());
  for (const auto& stream : streams) {
    digest.add(stream.name);
    digest.add(stream.prescale);
    digest.add(stream.sources.size());
    for (const SourceId source : stream.sources) digest.add(source);
  }
  return digest.value();
}

std::pair<std::size_t, std::size_t> System::sources_of(NodeId readout_unit) const {
  const auto first = std::ranges::lower_bound(sources, readout_unit, {}, &SourceInfo::readout_unit);
  const auto last = std::ranges::upper_bound(sources, readout_unit, {}, &SourceInfo::readout_unit);
  return {static_cast<std::size_t>(first - sources.begin()),
          static_cast<std::size_t>(last - sources.begin())};
}

std::size_t System::lanes(NodeId readout_unit) const {
  const auto [first, last] = sources_of(readout_unit);
  return std::min(rails, last - first);
}

std::size_t System::lanes() const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < readout_units.size(); ++i) sum += lanes(static_cast<NodeId>(i));
  return sum;
}

std::size_t System::find_source(SourceId id) const {
  const auto found = std::ranges::find(sources, id, &SourceInfo::id);
  return found == sources.end() ? npos : static_cast<std::size_t>(found - sources.begin());
}

std::size_t System::merged_sources() const {
  std::size_t count = 0;
  for (const SourceInfo& source : sources) count += source.merged.size();
  return count;
}

std::string System::name_of(SourceId id) const {
  for (const SourceInfo& source : sources) {
    if (source.id == id) return source.name;
    const auto member = std::ranges::find(source.merged, id, &storage::SourceInfo::id);
    if (member != source.merged.end()) return member->name;
  }
  return fmt::format("{:#x}", id);
}

SourceIndex::SourceIndex(const System& system) {
  for (std::size_t i = 0; i < system.sources.size(); ++i) {
    by_id_.emplace_back(system.sources[i].id, i);
  }
  std::ranges::sort(by_id_);
}

std::size_t SourceIndex::find(SourceId id) const {
  const auto found =
      std::ranges::lower_bound(by_id_, id, {}, &std::pair<SourceId, std::size_t>::first);
  return found == by_id_.end() || found->first != id ? System::npos : found->second;
}

Result<> System::validate() const {
  if (readout_units.empty()) return fail(ErrorKind::usage, "no readout unit: name at least one");
  if (builder_units.empty()) return fail(ErrorKind::usage, "no builder unit: name at least one");
  if (sources.empty()) return fail(ErrorKind::usage, "no source: give a readout unit at least one");
  std::set<std::string> names;
  for (const auto* group : {&readout_units, &builder_units}) {
    for (const auto& name : *group) {
      if (!names.insert(name).second) {
        return fail(ErrorKind::usage, fmt::format("two nodes are named '{}'", name));
      }
    }
  }
  std::set<SourceId> ids;
  for (const auto& source : sources) {
    if (!ids.insert(source.id).second) {
      return fail(ErrorKind::usage, fmt::format("two sources have the id {}", source.id));
    }
  }
  for (std::size_t unit = 0; unit < readout_units.size(); ++unit) {
    const auto [first, last] = sources_of(static_cast<NodeId>(unit));
    if (first == last) {
      return fail(ErrorKind::usage,
                  fmt::format("readout unit '{}' has no source", readout_units[unit]));
    }
    if (last - first > sources_per_readout_unit_max) {
      return fail(ErrorKind::usage,
                  fmt::format("readout unit '{}' has {} sources, at most {} are possible",
                              readout_units[unit], last - first, sources_per_readout_unit_max));
    }
  }
  if (!std::has_single_bit(batch_events) || batch_events > 4096) {
    return fail(ErrorKind::usage,
                fmt::format("batch_events = {}: a power of two up to 4096", batch_events));
  }
  return {};
}

} // namespace fanin::builder
