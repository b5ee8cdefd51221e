#include "fanin/builder/manager/waiting_text.hpp"

namespace fanin::builder {

namespace {
void add_wanted(std::string& text, const std::string& wanted) {
  if (wanted.empty()) return;
  text += (text.empty() ? "" : "; ") + wanted;
}
} // namespace

std::string WaitingText::text() const {
  std::string text = parts_.events.apart();
  for (std::size_t i = 0; i < parts_.readouts.size(); ++i) {
    add_wanted(text, of_readout(static_cast<NodeId>(i)));
  }
  for (std::size_t i = 0; i < parts_.readouts.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    const std::string& said = parts_.events.waits_for(node);
    if (!parts_.readouts.present(node) || said.empty()) continue;
    add_wanted(text, fmt::format("readout unit '{}': {}", parts_.system.readout_units[i], said));
  }
  for (std::size_t i = 0; i < parts_.builders.size(); ++i) {
    add_wanted(text, of_builder(static_cast<NodeId>(i)));
  }
  return text.empty() ? "nothing" : text;
}

std::string WaitingText::of_readout(NodeId node) const {
  const bool present = parts_.readouts.present(node);
  if (parts_.phase.is(Phase::waiting)) {
    if (present) return {};
    return fmt::format("readout unit '{}' to start", parts_.system.readout_units[node]);
  }
  const Announcements& announced = parts_.events.announcements();
  const Announcements::Readout& readout = announced.readout(node);
  const bool ended = readout.state == Announcements::State::ended;
  if (!present || ended || readout.end > announced.assigned_end()) return {};
  return parts_.events.waiting_for(node);
}

std::string WaitingText::of_builder(NodeId node) const {
  const std::string& name = parts_.system.builder_units[node];
  if (parts_.builders.presence(node) == Presence::finished) return {};
  if (!parts_.builders.present(node)) {
    return fmt::format("builder unit '{}' to start{}", name,
                       parts_.system.assignment == AssignmentPolicy::by_number
                           ? ", which alone builds its share of the events (event.assignment = "
                             "\"by-number\")"
                           : "");
  }
  if (!parts_.phase.is(Phase::waiting) && !parts_.paths.reached(node)) return of_paths(node);
  const Capacity& capacity = parts_.dispatcher.capacity();
  const auto oldest = capacity.oldest_of(node);
  if (!oldest) return {};
  const Batch* const batch = parts_.dispatcher.batches().find(*oldest);
  const bool received = batch != nullptr && batch->state == BatchState::received;
  return fmt::format("builder unit '{}' to {} event {} ({} of {} bytes in use)", name,
                     received ? "store" : "build", *oldest, capacity.reserved_by(node),
                     capacity.capacity_of(node));
}

std::string WaitingText::of_paths(NodeId builder) const {
  std::string text;
  for (std::size_t i = 0; i < parts_.readouts.size(); ++i) {
    const auto readout = static_cast<NodeId>(i);
    if (!parts_.readouts.present(readout) || parts_.paths.open(builder, readout)) continue;
    add_wanted(text,
               fmt::format("readout unit '{}' to reach builder unit '{}'",
                           parts_.system.readout_units[i], parts_.system.builder_units[builder]));
  }
  return text;
}

} // namespace fanin::builder
