#include "fanin/net/registry.hpp"
#include "fanin/base/try.hpp"

namespace fanin::net {

TransportRegistry::Known TransportRegistry::look_up(std::string_view scheme) const {
  for (const auto& entry : entries_) {
    if (entry.name == scheme) return {entry.make, &entry.traits};
  }
  const auto plus = scheme.find('+');
  if (plus == std::string_view::npos) return {};
  for (const auto& entry : families_) {
    if (entry.name != scheme.substr(0, plus) || plus + 1 == scheme.size()) continue;
    return {[family = entry.make, member = std::string(scheme.substr(plus + 1))](
                Loop& loop, const LogFunction& log) { return family(loop, log, member); },
            &entry.traits};
  }
  for (const auto& [name, decorator] : decorators_) {
    if (name != scheme.substr(0, plus)) continue;
    Known found = look_up(scheme.substr(plus + 1));
    if (found.make) {
      found.make = [decorator, below = found.make](
                       Loop& loop, const LogFunction& log) -> Result<std::unique_ptr<Transport>> {
        auto made = FANIN_TRY(below(loop, log));
        return decorator(loop, log, std::move(made));
      };
    }
    return found;
  }
  return {};
}

TransportFactory TransportRegistry::find(std::string_view scheme) const {
  return look_up(scheme).make;
}

std::uint32_t TransportRegistry::pages_in_advance(const Url& url, std::uint32_t connections) const {
  const TransportTraits* const traits = look_up(url.scheme).traits;
  return traits == nullptr || !traits->pages ? 0 : traits->pages(url, connections);
}

bool TransportRegistry::shares_memory(const Url& url) const {
  const TransportTraits* const traits = look_up(url.scheme).traits;
  return traits != nullptr && traits->shares_memory;
}

std::vector<std::string> TransportRegistry::schemes() const {
  std::vector<std::string> names;
  for (const auto& entry : entries_) names.push_back(entry.name);
  for (const auto& entry : families_) names.push_back(entry.name + "+...");
  for (const auto& [name, decorator] : decorators_) names.push_back(name + "+...");
  return names;
}

} // namespace fanin::net
