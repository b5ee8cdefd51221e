// The streams of filter units.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "fanin/config/detail/sections.hpp"

namespace fanin::config::detail {

namespace {

// Ascending.
std::vector<SourceId> ids_of(const std::vector<Source>& sources) {
  std::vector<SourceId> ids;
  for (const Source& source : sources) ids.push_back(source.settings.id);
  std::ranges::sort(ids);
  return ids;
}

} // namespace

void read_streams(TableReader& root, builder::System& system) {
  for (auto& reader : root.tables("stream")) {
    storage::StreamInfo stream;
    stream.name = reader.text("name", "");
    if (stream.name.empty() || stream.name.size() > 64) {
      reader.reject_missing("name", "is missing or longer than 64: what the filter calls it");
    } else if (stream.name == "error") {
      reader.reject("name", "\"error\" is the stream of events that no filter unit could decide");
    } else if (std::ranges::find(system.streams, stream.name, &storage::StreamInfo::name) !=
               system.streams.end()) {
      reader.reject("name", fmt::format("two streams are named \"{}\"", stream.name));
    }
    stream.prescale = static_cast<std::uint32_t>(
        reader.integer("prescale", 1, 1, std::numeric_limits<std::uint32_t>::max()));
    stream.sources = read_ids(reader, "sources");
    if (reader.has("sources") && stream.sources.empty())
      reader.reject("sources", "is empty; leave it out for all sources");
    if (system.streams.size() == storage::streams_max)
      reader.reject("name", fmt::format("more than {} streams", storage::streams_max));
    system.streams.push_back(std::move(stream));
    reader.finish();
  }
}

void check_streams(Configuration& configuration, TableReader& root) {
  auto& streams = configuration.system.streams;
  auto readers = root.tables("stream");
  if (!readers.empty() && configuration.filters() == 0)
    readers.front().reject("name", "there is no [[filter]] that accepts events into it");
  const std::vector<SourceId> known = ids_of(configuration.sources);
  const std::vector<SourceId> left_out = ids_of(configuration.sources_left_out);
  for (std::size_t i = 0; i < std::min(readers.size(), streams.size()); ++i) {
    auto& sources = streams[i].sources;
    if (sources.empty()) continue; // all
    std::erase_if(sources, [&](SourceId id) {
      return !std::ranges::binary_search(known, id) && std::ranges::binary_search(left_out, id);
    });
    if (sources.empty()) {
      readers[i].reject("sources", fmt::format("this run is without all sources of the stream "
                                               "\"{}\": keep one, or take the stream out",
                                               streams[i].name));
    }
    for (const SourceId id : sources) {
      if (!std::ranges::binary_search(known, id))
        readers[i].reject("sources", source::no_such_source(id, known));
    }
  }
  if (!configuration.has_filters()) return;
  for (const Source& source : configuration.sources) {
    if (source.settings.id != storage::filter_source) continue;
    root.reject("filter", fmt::format("source {} has the id 0xffffffff, under which results of "
                                      "filters are stored",
                                      source.settings.name));
  }
}

} // namespace fanin::config::detail
