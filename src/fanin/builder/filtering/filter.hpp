/// \file
/// What a filter plug-in provides: it looks at one event after the other and says into which
/// streams it goes. docs/filters.md leads to a first filter; docs/plugins.md has the reference.
///
/// ```cpp
/// #include <fanin/executive/plugin.hpp>
///
/// using namespace fanin;
///
/// class LargeFilter final : public builder::Filter { // accepts events with a fragment over 1 KiB
///   void decide(const builder::FilterEvent& event, builder::Decision& decision) override {
///     for (const builder::FilterFragment& fragment : event.fragments) {
///       if (fragment.payload.size() > 1024) decision.accept(0); // into the first [[stream]]
///     }
///   }
/// };
///
/// FANIN_PLUGIN_ABI
///
/// extern "C" void fanin_register(executive::PluginRegistry& registry) {
///   registry.add_filter("large", [](const builder::FilterSettings&)
///                                    -> Result<std::unique_ptr<builder::Filter>> {
///     return std::make_unique<LargeFilter>();
///   });
/// }
/// ```
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/source/settings.hpp"
#include "fanin/storage/layout.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::builder {

/// Largest result of one event, in bytes.
inline constexpr std::size_t filter_result_max = 4096;

/// One fragment of an event, in memory that is not the filter's: read-only.
struct FilterFragment {
  SourceId source = 0;
  std::span<const std::byte> payload;
  std::uint32_t flags = 0; ///< wire::FragmentFlag; 0: good
};

/// One event. Valid during the call only.
struct FilterEvent {
  RunNumber run = 0;
  EventNumber number = 0;
  std::span<const FilterFragment> fragments; ///< ascending by source; absent ones are left out

  /// Null: the event has no fragment of that source.
  [[nodiscard]] const FilterFragment* find(SourceId source) const {
    const auto at = std::ranges::lower_bound(fragments, source, {}, &FilterFragment::source);
    return at == fragments.end() || at->source != source ? nullptr : &*at;
  }
};

/// What becomes of an event. In no stream: it is rejected.
class Decision {
public:
  /// Wants the event in this stream (FilterSettings::stream()); its prescale comes later.
  void accept(std::size_t stream) { streams_ |= 1U << stream; }
  /// Bytes that are stored with the event, if it is accepted: at most filter_result_max.
  void set_result(std::span<const std::byte> bytes) { result_.assign(bytes.begin(), bytes.end()); }

  [[nodiscard]] std::uint32_t streams() const { return streams_; }
  [[nodiscard]] std::span<const std::byte> result() const { return result_; }
  void clear() {
    streams_ = 0;
    result_.clear();
  }

private:
  std::uint32_t streams_ = 0;
  std::vector<std::byte> result_;
};

class Filter {
public:
  virtual ~Filter() = default;
  /// Decides one event. If it takes longer than `time_limit` of the configuration, its process is
  /// killed; an exception ends the process, too. In both cases the process is started again, and
  /// the event goes to another filter unit once. Thread: one; each process has its own filter. It
  /// may see an event more than once. Events come in any order.
  virtual void decide(const FilterEvent& event, Decision& decision) = 0;
};

/// What a filter is made from.
struct FilterSettings {
  source::SourceSettings settings; ///< its own keys: for source::SettingsReader
  std::vector<storage::StreamInfo> streams; ///< of the configuration
  std::vector<SourceId> sources; ///< of the configuration, ascending

  /// The stream of that name. Errors: usage, naming those that there are.
  [[nodiscard]] Result<std::size_t> stream(std::string_view name) const {
    std::string known;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].name == name) return i;
      known += (known.empty() ? "" : ", ") + streams[i].name;
    }
    return fail(ErrorKind::usage, fmt::format("{}: {}: there is no stream \"{}\"; there are: {}",
                                              settings.place.text(), settings.key, name, known));
  }
  /// The id under `key`; `fallback` if the key is absent. If the configuration has no such source,
  /// the reader keeps an error that names those that there are.
  [[nodiscard]] SourceId source(source::SettingsReader& reader, std::string_view key,
                                SourceId fallback) const {
    const auto id = static_cast<SourceId>(
        reader.integer(key, fallback, 0, std::numeric_limits<SourceId>::max()));
    if (!std::ranges::binary_search(sources, id))
      reader.reject(key, source::no_such_source(id, sources));
    return id;
  }
};

/// Makes a filter from its settings; `fanin check` calls it too. An exception becomes an error.
using FilterFactory = std::function<Result<std::unique_ptr<Filter>>(const FilterSettings&)>;

class FilterRegistry {
public:
  /// Errors: usage, if there is a filter of that type already.
  [[nodiscard]] Result<> add(std::string type, FilterFactory factory) {
    if (!factories_.try_emplace(type, std::move(factory)).second)
      return fail(ErrorKind::usage, "there is a filter of type \"" + type + "\" already");
    return {};
  }
  /// Errors: usage for an unknown type, and errors of the factory.
  [[nodiscard]] FANIN_INTERNAL_API Result<std::unique_ptr<Filter>>
  make(const FilterSettings& settings) const;

private:
  std::map<std::string, FilterFactory, std::less<>> factories_;
};

} // namespace fanin::builder
