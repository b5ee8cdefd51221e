// Messages of the event manager that may take several frames, or are sent from several places.
#pragma once

#include <string>
#include <vector>

#include "fanin/builder/control/node_outbox.hpp"
#include "fanin/builder/manager/batch_table.hpp"

namespace fanin::builder {

// Tells a readout unit where a builder unit is reached.
void send_builder_up(NodeOutbox& outbox, NodeId readout, NodeId builder, Incarnation incarnation,
                     const std::string& rails);
// The latest attempt of a batch, as readout units are told. `seal_key`: see wire::seal_of().
[[nodiscard]] wire::Assign assignment_of(const Batch& batch, std::uint64_t seal_key);
// Tells the builder unit of the batch: with gaps and lost fragments, in several messages where they
// are many.
void send_assignment(NodeOutbox& outbox, const Batch& batch, std::uint64_t seal_key);
// Fragments of a readout unit that died; sorts them, and joins those that follow each other.
void send_lost(NodeOutbox& outbox, NodeId builder, std::vector<wire::MissingRange>& lost);

} // namespace fanin::builder
