#include "fanin/storage/sink_registry.hpp"

#include <utility>

#include <fmt/format.h>

#include "fanin/base/thrown.hpp"
#include "fanin/base/try.hpp"

namespace fanin::storage {
namespace {

// What `make` gives, or what it throws as an error.
template <class Who, class Make>
auto or_thrown(const Who& who, ErrorKind kind, const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (...) {
    return fail(kind, fmt::format("{}: {}", who(), thrown().text));
  }
}

} // namespace

bool is_own_sink(std::string_view type) {
  return type == "file" || type == "discard" || type == "forward";
}

Result<> SinkRegistry::add(std::string type, SinkFactory factory) {
  if (is_own_sink(type) || factories_.contains(type))
    return fail(ErrorKind::usage, fmt::format("there is a sink of type \"{}\" already", type));
  factories_.emplace(std::move(type), std::move(factory));
  return {};
}

Result<SinkMaker> SinkRegistry::find(const source::SourceSettings& settings) const {
  const auto factory = factories_.find(settings.type);
  const auto where = [&] { return source::SettingsReader(settings).where("sink"); };
  if (factory == factories_.end()) {
    return fail(ErrorKind::usage,
                fmt::format("{}: no plug-in has a sink \"{}\"", where(), settings.type));
  }
  const std::string who = fmt::format("sink \"{}\"", settings.type);
  auto maker =
      FANIN_TRY(or_thrown(where, ErrorKind::usage, [&] { return factory->second(settings); }));
  if (!maker) return fail(ErrorKind::usage, fmt::format("{}: the plug-in made no sink", where()));
  return [who, make = std::move(maker)](const SinkRun& run) {
    auto sink = or_thrown([&]() -> const std::string& { return who; }, ErrorKind::internal,
                          [&] { return make(run); });
    if (sink && *sink == nullptr)
      sink = fail(ErrorKind::internal, who + ": the plug-in made no sink");
    return sink;
  };
}

} // namespace fanin::storage
