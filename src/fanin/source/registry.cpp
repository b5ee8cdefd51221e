#include "fanin/source/registry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "fanin/base/thrown.hpp"

namespace fanin::source {

Result<> Registry::add(std::string type, SourceFactory factory) {
  if (factories_.contains(type)) {
    return fail(ErrorKind::usage, fmt::format("there is a source of type \"{}\" already", type));
  }
  factories_[std::move(type)] = std::move(factory);
  return {};
}

std::vector<std::string> Registry::types() const {
  std::vector<std::string> names;
  names.reserve(factories_.size());
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

Result<std::unique_ptr<Source>> Registry::make(const SourceSettings& settings) const {
  const auto found = factories_.find(settings.type);
  if (found == factories_.end()) {
    SettingsReader reader(settings);
    reader.reject("type", fmt::format("there is no source of type \"{}\"; known: {}", settings.type,
                                      fmt::join(types(), ", ")));
    return std::unexpected(reader.finish().error());
  }
  try {
    auto made = found->second(settings);
    if (made && *made == nullptr) {
      return fail(ErrorKind::internal,
                  fmt::format("the plug-in of type \"{}\" made no source", settings.type));
    }
    return made;
  } catch (...) {
    return fail(ErrorKind::internal, fmt::format("source {:#x} of type \"{}\": {}", settings.id,
                                                 settings.type, thrown().text));
  }
}

} // namespace fanin::source
