#include "fanin/builder/filtering/filter.hpp"

#include <ranges>

#include <fmt/ranges.h>

#include "fanin/base/thrown.hpp"

namespace fanin::builder {

Result<std::unique_ptr<Filter>> FilterRegistry::make(const FilterSettings& settings) const {
  const auto where = [&] {
    return fmt::format("{}: {}", settings.settings.place.text(), settings.settings.key);
  };
  const auto factory = factories_.find(settings.settings.type);
  if (factory == factories_.end()) {
    return fail(
        ErrorKind::usage,
        fmt::format("{}.type: no plug-in has a filter \"{}\"; there are: {}", where(),
                    settings.settings.type,
                    factories_.empty()
                        ? "none; [[plugin]] loads one"
                        : fmt::format("{}", fmt::join(std::views::keys(factories_), ", "))));
  }
  try {
    auto made = factory->second(settings);
    if (made && *made == nullptr)
      return fail(ErrorKind::usage, fmt::format("{}: the plug-in made no filter", where()));
    return made;
  } catch (...) {
    return fail(ErrorKind::usage, fmt::format("{}: {}", where(), thrown().text));
  }
}

} // namespace fanin::builder
