// Chooses a builder unit for a batch among those that an assignment policy prefers. Short batches
// that would be one batch at a higher rate go to the same builder unit: then a page of a readout
// unit is held by few builder units, and a frozen one cannot hold all pages. A batch that was
// handed back goes to another builder unit, if there is one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "fanin/builder/manager/assigner.hpp"

namespace fanin::builder {

class BuilderChoice {
public:
  enum class Answer : std::uint8_t {
    has_room,
    no_room, // now
    unusable // away, not reached by all readout units, or behind with what it is told
  };

  // `batch_events`: a power of two; a batch that does not begin at a multiple of it continues the
  // one before. `batch_bytes`: so many consecutive bytes go to one builder unit.
  BuilderChoice(std::unique_ptr<Assigner> policy, std::size_t builder_units,
                std::uint32_t batch_events, std::uint64_t batch_bytes)
      : policy_(std::move(policy)),
        batch_events_(batch_events),
        batch_bytes_(batch_bytes),
        last_(static_cast<NodeId>(builder_units - 1)) {}

  // `ask(NodeId)` gives an Answer. `handed_back`: who could not complete the attempt before. None:
  // nobody has room now.
  template <class Ask>
  [[nodiscard]] std::optional<NodeId> choose(const AssignmentRequest& request,
                                             std::optional<NodeId> handed_back, Ask ask) {
    const std::span<const NodeId> preference = policy_->preference(request);
    const bool part = (request.range.first & (batch_events_ - 1)) != 0;
    const bool stays = request.attempt == 0 && part && consecutive_bytes_ < batch_bytes_ &&
                       std::ranges::find(preference, last_) != preference.end();
    if (stays && ask(last_) == Answer::has_room) return last_;
    std::optional<NodeId> second_best;
    bool others = false;
    for (const NodeId node : preference) {
      const Answer answer = ask(node);
      if (answer == Answer::unusable) continue;
      const bool failed_before = handed_back == node;
      others = others || !failed_before;
      if (answer == Answer::no_room) continue;
      if (!failed_before) return node;
      second_best = node;
    }
    return others ? std::nullopt : second_best;
  }

  void assigned(NodeId node, const AssignmentRequest& request) {
    consecutive_bytes_ = node == last_ ? consecutive_bytes_ + request.bytes : request.bytes;
    last_ = node;
    policy_->assigned(node, request);
  }
  // A batch of so many bytes that was assigned to it is built, or was taken back.
  void ended(NodeId node, std::uint64_t bytes) { policy_->ended(node, bytes); }

private:
  std::unique_ptr<Assigner> policy_;
  std::uint32_t batch_events_;
  std::uint64_t batch_bytes_;
  NodeId last_; // that was chosen
  std::uint64_t consecutive_bytes_ = 0; // assigned to it without another between
};

} // namespace fanin::builder
