// Two stages: which slice this is, and which sources its super-fragments merge.
#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "fanin/config/detail/sections.hpp"

namespace fanin::config::detail {
namespace {

// Decimal, or hexadecimal as in 0x400.
std::optional<SourceId> source_id(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  SourceId id = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), id, hexadecimal ? 16 : 10);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return id;
}

} // namespace

// [1, 0x400] or ["1", "0x400-0x40f"].
std::vector<SourceId> read_ids(TableReader& reader, std::string_view key) {
  std::vector<SourceId> sources;
  for (const std::string& text : reader.words(key)) {
    const auto dash = text.find('-');
    const auto first = source_id(std::string_view{text}.substr(0, dash));
    const auto last = dash == std::string::npos ? first : source_id(text.substr(dash + 1));
    if (!first || !last || *last < *first || *last - *first >= 65'536) {
      reader.reject(key, fmt::format("\"{}\" is no source's id, and no range of them, as in "
                                     "[1, \"0x400-0x40f\"]",
                                     text));
      return {};
    }
    for (std::uint64_t id = *first; id <= *last; ++id) sources.push_back(static_cast<SourceId>(id));
  }
  std::ranges::sort(sources);
  const auto repeated = std::ranges::unique(sources);
  sources.erase(repeated.begin(), repeated.end());
  return sources;
}

void read_slice(TableReader reader, builder::System& system) {
  wire::Slice& slice = system.slice;
  if (reader.value() == nullptr) return reader.finish();
  slice.of = static_cast<std::uint32_t>(reader.integer("of", 1, 1, slices_max));
  slice.number = static_cast<std::uint32_t>(reader.integer("number", 0, 0, slices_max));
  slice.block = static_cast<std::uint32_t>(reader.integer("block", slice.block, 1, 4096));
  if (slice.number >= slice.of) {
    reader.reject("number", fmt::format("is not below slice.of = {}", slice.of));
  }
  if (!std::has_single_bit(slice.block) || slice.block < system.batch_events) {
    reader.reject("block", fmt::format("{} is not a power of two from event.batch_events = {} to "
                                       "4096: it is event.batch_events of the first stage",
                                       slice.block, system.batch_events));
  }
  reader.finish();
}

std::vector<storage::SourceInfo> read_merged(TableReader& reader, bool required) {
  const std::vector<SourceId> optional = read_ids(reader, "merged_optional");
  std::vector<storage::SourceInfo> merged;
  for (const SourceId id : read_ids(reader, "merged")) {
    merged.push_back({.id = id,
                      .name = fmt::format("{:#x}", id),
                      .readout_unit = {},
                      .required = required && !std::ranges::binary_search(optional, id)});
  }
  for (const SourceId id : optional) {
    if (std::ranges::find(merged, id, &storage::SourceInfo::id) != merged.end()) continue;
    reader.reject("merged_optional", fmt::format("{0} ({0:#x}) is not one of \"merged\"", id));
    break;
  }
  return merged;
}

void check_merged(const Configuration& configuration, Problems& problems) {
  std::map<SourceId, const Source*> seen;
  for (const Source& source : configuration.sources) seen.emplace(source.settings.id, &source);
  for (const Source& source : configuration.sources) {
    if (source.merged.empty()) continue;
    const auto add = [&](std::string text) {
      problems.add(source.settings.place, source.settings.key + ".merged", std::move(text));
    };
    if (configuration.has_filters()) add("filter units cannot look into super-fragments");
    for (const storage::SourceInfo& member : source.merged) {
      const auto [other, is_new] = seen.emplace(member.id, &source);
      if (is_new) continue;
      add(fmt::format("{0} ({0:#x}) is also the id of another source, or merged there: {1}",
                      member.id, other->second->settings.place.text()));
    }
  }
}

} // namespace fanin::config::detail
