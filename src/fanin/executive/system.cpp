#include "fanin/executive/system.hpp"

namespace fanin::executive {

builder::System make_system(const config::Configuration& configuration, RunNumber run) {
  builder::System system;
  system.run = run;
  for (const config::Node& node : configuration.nodes) {
    if (node.role == config::Role::readout) system.readout_units.push_back(node.name);
    if (node.role == config::Role::builder) system.builder_units.push_back(node.name);
  }
  for (const config::Source& source : configuration.sources) {
    system.sources.push_back({.id = source.id,
                              .name = source.name,
                              .readout_unit = static_cast<NodeId>(source.readout),
                              .required = source.required});
  }
  system.protocol = configuration.network.protocol == config::Protocol::push
                        ? builder::Protocol::push
                        : builder::Protocol::pull;
  system.checksum = configuration.event.checksum;
  system.batch_events = configuration.event.batch_events;
  system.batch_bytes = configuration.event.batch_bytes;
  system.data_page = configuration.buffers.page;
  system.transfer_window = configuration.network.transfer_window;
  system.announce_deadline = configuration.event.batch_delay;
  system.latency = configuration.event.latency;
  system.event_deadline = configuration.event.deadline;
  system.grace = configuration.network.grace;
  system.event_give_up_slow = configuration.event.give_up_slow;
  system.event_window = configuration.event.window;
  system.dead_after = configuration.network.dead_after;
  system.trigger_rate_hz = configuration.trigger.rate_hz;
  system.trigger_window = configuration.trigger.window;
  system.events_max = configuration.run.events;
  return system;
}

source::SourceSettings make_source_settings(const config::Configuration& configuration,
                                            const config::Source& source) {
  source::SourceSettings settings;
  settings.id = source.id;
  settings.name = source.name;
  settings.type = source.type;
  settings.key = source.key;
  settings.place = source.place;
  settings.seed = configuration.run.seed;
  settings.values = source.settings;
  return settings;
}

} // namespace fanin::executive
