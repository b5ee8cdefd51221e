#include "fanin/net/registry.hpp"

namespace fanin::net {

TransportFactory TransportRegistry::find(std::string_view scheme) const {
  for (const auto& [known, factory] : entries_) {
    if (known == scheme) return factory;
  }
  const auto plus = scheme.find('+');
  if (plus == std::string_view::npos) return {};
  for (const auto& [name, family] : families_) {
    if (name != scheme.substr(0, plus) || plus + 1 == scheme.size()) continue;
    return [family, member = std::string(scheme.substr(plus + 1))](
               Loop& loop, const LogFunction& log) { return family(loop, log, member); };
  }
  for (const auto& [name, decorator] : decorators_) {
    if (name != scheme.substr(0, plus)) continue;
    TransportFactory found = find(scheme.substr(plus + 1));
    if (!found) return {};
    return [decorator, below = std::move(found)](
               Loop& loop, const LogFunction& log) -> Result<std::unique_ptr<Transport>> {
      auto made = below(loop, log);
      if (!made) return made;
      return decorator(loop, log, std::move(*made));
    };
  }
  return {};
}

std::vector<std::string> TransportRegistry::schemes() const {
  std::vector<std::string> names;
  for (const auto& [scheme, factory] : entries_) names.push_back(scheme);
  for (const auto& [name, family] : families_) names.push_back(name + "+...");
  for (const auto& [name, decorator] : decorators_) names.push_back(name + "+...");
  return names;
}

} // namespace fanin::net
