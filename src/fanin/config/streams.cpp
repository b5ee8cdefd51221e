// The streams of filter units.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "fanin/config/detail/sections.hpp"

namespace fanin::config::detail {

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

void check_streams(const Configuration& configuration, TableReader& root) {
  const auto& streams = configuration.system.streams;
  auto readers = root.tables("stream");
  if (!readers.empty() && configuration.filters() == 0)
    readers.front().reject("name", "there is no [[filter]] that accepts events into it");
  std::vector<SourceId> known;
  for (const Source& source : configuration.sources) known.push_back(source.settings.id);
  std::ranges::sort(known);
  for (std::size_t i = 0; i < std::min(readers.size(), streams.size()); ++i) {
    for (const SourceId id : streams[i].sources) {
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
