/// \file
/// How a shared object adds types of source, transports, applications, filters and sinks. It
/// defines two functions:
///
///     #include <fanin/executive/plugin.hpp>
///     FANIN_PLUGIN_ABI
///     extern "C" void fanin_register(fanin::executive::PluginRegistry& registry) {
///       registry.add_source("pulse", make_pulse_source);
///     }
///
/// docs/plugins.md leads through it; examples/plugin-source is a whole one.
#pragma once

#include <string>
#include <utility>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/builder/filtering/filter.hpp"
#include "fanin/executive/application.hpp"
#include "fanin/net/registry.hpp"
#include "fanin/source/registry.hpp"
#include "fanin/storage/sink_registry.hpp"

namespace fanin::executive {

/// A plug-in built for another number is refused. From release 0.1.0 on it rises whenever a plug-in
/// has to be compiled again: layouts in Source, FragmentQueue, PagePool, Transport, Application,
/// Filter, EventSink, the registries.
inline constexpr int plugin_abi = 1;

/// What a plug-in can register with.
struct PluginRegistry {
  source::Registry& sources;
  net::TransportRegistry& transports;
  ApplicationRegistry& applications;
  builder::FilterRegistry& filters;
  storage::SinkRegistry& sinks;
  Result<> result{}; ///< the first registration that failed; load_plugin() reports it

  void add_source(std::string type, source::SourceFactory factory) {
    keep(sources.add(std::move(type), std::move(factory)));
  }
  /// `traits`: what the memory plan has to know of it.
  void add_transport(std::string scheme, net::TransportFactory factory,
                     net::TransportTraits traits = {}) {
    keep(transports.add(std::move(scheme), std::move(factory), std::move(traits)));
  }
  void add_application(std::string type, ApplicationFactory factory) {
    keep(applications.add(std::move(type), std::move(factory)));
  }
  void add_filter(std::string type, builder::FilterFactory factory) {
    keep(filters.add(std::move(type), std::move(factory)));
  }
  void add_sink(std::string type, storage::SinkFactory factory) {
    keep(sinks.add(std::move(type), std::move(factory)));
  }
  void keep(Result<> added) {
    if (!added && result) result = std::move(added);
  }
};

/// Opens the shared object and lets it register. It stays open until the process ends, for its code
/// is in use until then. Errors: not_found (with the linker's reason), unsupported (another ABI, or
/// no plug-in of fanin), usage (a name that is taken).
[[nodiscard]] Result<> load_plugin(const std::string& path, PluginRegistry& registry);

} // namespace fanin::executive

#define FANIN_PLUGIN_ABI                                                                           \
  extern "C" FANIN_API int fanin_plugin_interface();                                               \
  extern "C" int fanin_plugin_interface() { return fanin::executive::plugin_abi; }

extern "C" FANIN_API void fanin_register(fanin::executive::PluginRegistry& registry);
