// What there is to build a process from: the transports, sources, applications, filters and sinks
// that come with fanin, and those of the configuration's plug-ins.
#pragma once

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/builder/filtering/filter.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/application.hpp"
#include "fanin/net/registry.hpp"
#include "fanin/source/registry.hpp"
#include "fanin/storage/sink_registry.hpp"

namespace fanin::executive {

struct Plugins {
  net::TransportRegistry transports;
  source::Registry sources;
  ApplicationRegistry applications;
  builder::FilterRegistry filters;
  storage::SinkRegistry sinks;

  // The built-in ones and those of the plug-ins. Errors name the configuration's line.
  [[nodiscard]] FANIN_INTERNAL_API static Result<Plugins>
  load(const config::Configuration& configuration);
};

} // namespace fanin::executive
