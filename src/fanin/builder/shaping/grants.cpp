#include "fanin/builder/shaping/grants.hpp"

#include "fanin/base/assert.hpp"

namespace fanin::builder::shaping {

Grants::Grants(const Shaping& shaping, std::size_t readout_units, bool pull)
    : shaping_(shaping),
      share_(shaping.share(readout_units)),
      pull_(pull),
      readouts_(readout_units) {
  FANIN_ASSERT(shaping.on() && share_ >= std::uint64_t{carriers_least} * shaping.carrier);
}

void Grants::opened(NodeId node) {
  closed(node);
  readouts_[node].open = true;
  note_due(node);
}

void Grants::closed(NodeId node) {
  std::erase(due_, node);
  std::erase(unsent_, node);
  readouts_[node] = {};
}

bool Grants::received(NodeId node, std::uint64_t bytes) {
  Readout& readout = readouts_[node];
  if (bytes > readout.sent - readout.received) return false;
  readout.received += bytes;
  note_due(node);
  return true;
}

void Grants::carrier_filled(NodeId node) {
  if (shaping_.fills_carriers()) make_due(node);
}

void Grants::note_due(NodeId node) {
  if (!with_tokens() && room(node)) make_due(node);
}

void Grants::make_due(NodeId node) {
  Readout& readout = readouts_[node];
  if (!readout.open || readout.due) return;
  readout.due = true;
  due_.push_back(node);
}

void Grants::grant(NodeId node) {
  Readout& readout = readouts_[node];
  readout.due = false;
  if (!unsent(node)) unsent_.push_back(node);
  FANIN_ASSERT(readout.open && readout.granted <= readout.received + share_);
  readout.granted = readout.received + share_;
}

std::uint64_t Grants::take(NodeId node) {
  ++messages_;
  std::erase(unsent_, node);
  return readouts_[node].sent = readouts_[node].granted;
}

Time Grants::wake() const {
  Time wake = never;
  for (const Token& token : tokens_) wake = std::min(wake, token.until);
  return wake;
}

std::uint64_t Grants::outstanding() const {
  std::uint64_t sum = 0;
  for (const Readout& readout : readouts_) sum += readout.granted - readout.received;
  return sum;
}

} // namespace fanin::builder::shaping
