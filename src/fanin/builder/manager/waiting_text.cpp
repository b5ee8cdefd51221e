#include "fanin/builder/manager/waiting_text.hpp"

namespace fanin::builder {

std::string WaitingText::text() const {
  if (parts_.phase.is(Phase::finishing)) return unfinished();
  WantedList wanted;
  wanted.add(parts_.events.apart());
  for (std::size_t i = 0; i < parts_.readouts.size(); ++i) {
    wanted.add(of_readout(static_cast<NodeId>(i)));
  }
  for (std::size_t i = 0; i < parts_.readouts.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    const std::string& said = parts_.events.waits_for(node);
    if (!parts_.readouts.present(node) || said.empty()) continue;
    wanted.add(fmt::format("readout unit '{}': {}", parts_.system.readout_units[i], said));
  }
  const auto oldest = parts_.dispatcher.batches().oldest_of_each(parts_.builders.size());
  for (std::size_t i = 0; i < parts_.builders.size(); ++i) {
    add_builder(static_cast<NodeId>(i), oldest[i], wanted);
  }
  std::string text = wanted.text();
  return text.empty() && parts_.held ? "its start" : text;
}

std::string WaitingText::unfinished() const {
  WantedList wanted;
  for (std::size_t i = 0; i < parts_.readouts.size(); ++i) {
    if (parts_.readouts.present(static_cast<NodeId>(i)))
      wanted.add(fmt::format("readout unit '{}' to end", parts_.system.readout_units[i]));
  }
  for (std::size_t i = 0; i < parts_.builders.size(); ++i) {
    if (parts_.builders.present(static_cast<NodeId>(i)))
      wanted.add(
          fmt::format("builder unit '{}' to close its files", parts_.system.builder_units[i]));
  }
  return wanted.text();
}

std::string WaitingText::of_readout(NodeId node) const {
  const bool present = parts_.readouts.present(node);
  if (parts_.phase.is(Phase::waiting)) {
    const bool says_why = !parts_.events.waits_for(node).empty();
    if (present && (parts_.held || parts_.readouts.ready(node) || says_why)) return {};
    return fmt::format("readout unit '{}' to {}", parts_.system.readout_units[node],
                       present ? "be ready" : "start");
  }
  const Announcements& announced = parts_.events.announcements();
  const Announcements::Readout& readout = announced.readout(node);
  const bool ended = readout.state == Announcements::State::ended;
  const bool further = readout.decides_begin() && readout.end > announced.assigned_end();
  if (!present || ended || further) return {};
  return parts_.events.waiting_for(node);
}

void WaitingText::add_builder(NodeId node, const Batch* oldest, WantedList& wanted) const {
  const std::string& name = parts_.system.builder_units[node];
  if (parts_.builders.presence(node) == Presence::finished) return;
  if (!parts_.builders.present(node)) {
    return wanted.add(
        fmt::format("builder unit '{}' to start{}", name,
                    parts_.system.assignment == AssignmentPolicy::by_number
                        ? ", which alone builds its share of the events (event.assignment = "
                          "\"by-number\")"
                        : ""));
  }
  if (!parts_.phase.is(Phase::waiting) && !parts_.paths.reached(node))
    return add_paths(node, wanted);
  if (oldest == nullptr) return;
  const Capacity& capacity = parts_.dispatcher.capacity();
  const std::string use = fmt::format("({} of {} bytes in use)", capacity.reserved_by(node),
                                      capacity.capacity_of(node));
  const bool built = has_all_data(oldest->state);
  if (built && !parts_.storage[node].empty())
    return wanted.add(fmt::format("builder unit '{}': {} {}", name, parts_.storage[node], use));
  wanted.add(fmt::format("builder unit '{}' to {} event {} {}", name, built ? "store" : "build",
                         oldest->range.first, use));
}

void WaitingText::add_paths(NodeId builder, WantedList& wanted) const {
  for (std::size_t i = 0; i < parts_.readouts.size(); ++i) {
    const auto readout = static_cast<NodeId>(i);
    if (!parts_.readouts.present(readout) || parts_.paths.open(builder, readout)) continue;
    wanted.add(fmt::format("readout unit '{}' to reach builder unit '{}'",
                           parts_.system.readout_units[i], parts_.system.builder_units[builder]));
  }
}

} // namespace fanin::builder
