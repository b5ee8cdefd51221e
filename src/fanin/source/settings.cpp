#include "fanin/source/settings.hpp"

#include <fmt/format.h>

namespace fanin::source {
namespace {

settings::Value table_of(const SourceSettings& settings) {
  settings::Value table;
  table.place = settings.place;
  for (const auto& [key, setting] : settings.values) {
    table.entries.push_back(
        {key,
         {.kind = settings::Value::Kind::text, .text = setting.value, .place = setting.place}});
  }
  return table;
}

} // namespace

SettingsReader::SettingsReader(const SourceSettings& settings)
    : table_(table_of(settings)), reader_(&table_, settings.key, problems_) {
  reader_.know(settings.common_keys);
}

std::string SettingsReader::required_text(std::string_view key) {
  std::string value = text(key);
  if (!has(key)) {
    reject_missing(key, "is missing");
  } else if (value.empty()) {
    reject(key, "is empty");
  }
  return value;
}

std::string no_such_source(SourceId id, std::span<const SourceId> known) {
  constexpr std::size_t shown = 16;
  std::string text = fmt::format("there is no source {0} ({0:#x}); there are: ", id);
  for (std::size_t i = 0; i < known.size() && i < shown; ++i)
    text += fmt::format("{}{:#x}", i == 0 ? "" : ", ", known[i]);
  return known.size() > shown ? text + ", ..." : text;
}

Result<> SettingsReader::finish() {
  reader_.finish();
  return problems_.first ? Result<>(std::unexpected(*problems_.first)) : Result<>();
}

} // namespace fanin::source
