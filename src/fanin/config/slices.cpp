// Two stages: which slice this is, and which sources its super-fragments merge.
#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/number.hpp"
#include "fanin/base/units.hpp"
#include "fanin/config/detail/sections.hpp"
#include "fanin/net/address.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::config::detail {

// [1, 0x400] or ["1", "0x400-0x40f"].
std::vector<SourceId> read_ids(TableReader& reader, std::string_view key) {
  std::vector<SourceId> sources;
  for (const std::string& text : reader.words(key)) {
    const auto dash = text.find('-');
    const auto first =
        parse_number_or_hexadecimal<SourceId>(std::string_view{text}.substr(0, dash));
    const auto last =
        dash == std::string::npos
            ? first
            : parse_number_or_hexadecimal<SourceId>(std::string_view{text}.substr(dash + 1));
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

namespace {

// Of the first stage.
void read_forward(TableReader& reader, Forward& forward) {
  forward.urls = reader.urls("urls");
  if (!reader.has("source"))
    reader.reject_missing("source", "is missing: that of the slices' super-fragments");
  forward.source =
      static_cast<SourceId>(reader.integer("source", 0, 0, std::numeric_limits<SourceId>::max()));
  forward.give_up = reader.duration("give_up", forward.give_up);
  for (const net::Url& url : forward.urls) {
    if (url.scheme != "tcp" || url.port == 0 || !url.options.empty()) {
      reader.reject("urls", fmt::format("{}: write tcp://host:port, where the source of a slice "
                                        "listens",
                                        url.text()));
    } else if (url.host.empty() || net::is_wildcard(url.host)) {
      reader.reject("urls", fmt::format("{} names no host: write the one where the slice listens",
                                        url.text()));
    }
  }
  const auto& slices = forward.urls;
  for (auto one = slices.begin(); one != slices.end(); ++one) {
    if (std::find(slices.begin(), one, *one) == one) continue;
    reader.reject("urls", fmt::format("{} is listed twice; each slice has an address of its own",
                                      one->text()));
  }
  if (forward.urls.size() > slices_max) {
    reader.reject("urls", fmt::format("more than {} slices", slices_max));
  }
}

} // namespace

void read_slice(TableReader reader, Configuration& configuration) {
  builder::System& system = configuration.system;
  wire::Slice& slice = system.slice;
  if (reader.has("urls")) {
    read_forward(reader, configuration.forward);
    system.in_order = true; // a slice takes numbers that rise
    for (const net::Url& url : configuration.forward.urls)
      system.slices.push_back(fmt::format("slice {} at {}", system.slices.size(), url.text()));
    return reader.finish();
  }
  if (reader.value() == nullptr) return reader.finish();
  slice.of = static_cast<std::uint32_t>(reader.integer("of", 1, 1, slices_max));
  slice.number = static_cast<std::uint32_t>(reader.integer("number", 0, 0, slices_max));
  slice.block = static_cast<std::uint32_t>(reader.integer("block", slice.block, 1, 4096));
  if (slice.number >= slice.of) {
    reader.reject("number", fmt::format("is not below slice.of = {}", slice.of));
  }
  reader.finish();
}

// A block is a batch of the first stage, and has whole batches of this one.
void check_block(TableReader slice, const builder::System& system) {
  const std::uint32_t block = system.slice.block;
  if (slice.value() == nullptr || slice.has("urls")) return;
  if (std::has_single_bit(block) && block >= system.batch_events) return;
  slice.reject("block", fmt::format("{} is not a power of two from event.batch_events = {} to "
                                    "4096: it is event.batch_events of the first stage",
                                    block, system.batch_events));
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
  if (reader.has("merged") && merged.empty())
    reader.reject("merged", "is an empty list: leave it out for a source of plain fragments");
  return merged;
}

void check_super_fragments(TableReader& reader, const Source& source) {
  if (source.merged.empty()) return;
  constexpr auto numbers = "super-fragments have the numbers of their group: leave it out";
  if (source.queue.offset != 0) reader.reject("offset", numbers);
  if (source.queue.counter_bits != 64) reader.reject("counter_bits", numbers);
  const std::uint64_t head = wire::super_head_size(source.merged.size());
  if (source.queue.fragment_max >= head) return;
  reader.reject("fragment_max",
                fmt::format("{} is less than what a super-fragment of {} has before their data, {}",
                            format_size(source.queue.fragment_max),
                            counted(source.merged.size(), "source"), format_size(head)));
}

void check_merged(const Configuration& configuration, Problems& problems) {
  std::map<SourceId, const Source*> seen;
  for (const Source& source : configuration.sources) seen.emplace(source.settings.id, &source);
  for (const Source& source : configuration.sources) {
    if (source.merged.empty()) continue;
    const auto add = [&](std::string_view text) {
      report(configuration, problems, source.settings.key + ".merged", text);
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

void check_forward(const Configuration& configuration, Problems& problems) {
  if (!configuration.forwards()) return;
  const auto add = [&](const std::string& key, std::string_view reason) {
    report(configuration, problems, key, reason);
  };
  const std::size_t slices = configuration.forward.urls.size();
  const std::size_t builders = configuration.builders();
  const bool by_number = configuration.system.assignment == builder::AssignmentPolicy::by_number;
  if (builders > 1 && !by_number) {
    add("event.assignment",
        "several builder units forward to slices: each serves its own ones, so that it has "
        "to be \"by-number\"");
  }
  if (builders > 0 && slices % builders != 0) {
    add("slice.urls",
        fmt::format("{} cannot be shared evenly by {} builder units: add slices, or take fewer "
                    "builder units",
                    counted(slices, "slice"), builders));
  }
  if (configuration.forward.give_up >= configuration.system.drain) {
    add("slice.give_up",
        fmt::format("{} is not below run.drain = {}: the run would end without what other "
                    "slices take",
                    format_duration(configuration.forward.give_up),
                    format_duration(configuration.system.drain)));
  }
  if (configuration.has_filters()) {
    add("filter", "filter units belong to the slices: this stage forwards all");
  }
  std::uint64_t most = wire::super_head_size(configuration.sources.size());
  for (const Source& source : configuration.sources) most += source.queue.fragment_max;
  if (most > wire::fragment_size_mask) {
    add("source.fragment_max",
        fmt::format("a super-fragment of all {} sources could have {}; it has up to "
                    "134217727 B (128 MiB - 1)",
                    configuration.sources.size(), format_size(most)));
  }
}

} // namespace fanin::config::detail
