#include "fanin/builder/manager/path_watch.hpp"

namespace fanin::builder {

bool PathWatch::on_reached(NodeId builder, const wire::Reached& reached, Time now) {
  const NodeId readout = reached.readout_unit;
  if (readout >= parts_.readouts.size()) return false;
  const bool open = reached.yes != 0;
  const bool current = parts_.paths.report(builder, readout, reached.incarnation, open, now);
  if (!current || open) return true;
  parts_.outbox.send(readout_key(readout), // it may not have noticed itself
                     wire::Reconnect{builder, 0, parts_.builders.incarnation(builder),
                                     reached.connection, reached.lane});
  return true;
}

void PathWatch::on_blamed(NodeId builder, NodeId readout, Time now) {
  parts_.paths.failing(builder, readout, now);
  const bool long_enough = now - parts_.paths.failing_since(readout) > 2 * parts_.system.dead_after;
  if (parts_.readouts.present(readout) && long_enough) {
    give_up(readout, "no builder unit gets data from it", now);
  }
}

// If no builder unit is reached by all for as long as a silent node is waited for, the fewest
// readout units are given up.
void PathWatch::watch(Time now) {
  parts_.paths.pass_over_silence(silence_, now);
  parts_.paths.for_each_overdue(now, [this](NodeId builder, NodeId readout) {
    if (!parts_.outbox.roomy(readout_key(readout))) return false;
    parts_.outbox.send(readout_key(readout),
                       wire::Reconnect{builder, 0, parts_.builders.incarnation(builder), 0, 0});
    return true;
  });
  const Time since = parts_.paths.unreached_since();
  const bool too_long = since != never && now - since > parts_.system.dead_after;
  if (!parts_.phase.building() || !too_long) return;
  for (const NodeId node : parts_.paths.smallest_set_to_drop()) {
    give_up(node, "no builder unit is reached by all others and by it", now);
  }
}

void PathWatch::give_up(NodeId readout, std::string_view why, Time now) {
  parts_.paths.bar(readout, now + 4 * parts_.system.dead_after);
  parts_.outbox.drop(readout_key(readout), why);
}

} // namespace fanin::builder
