// What a builder unit grants to readout units: how many bytes each of them may send. A grant is a
// count of all bytes since the connection was opened, and belongs to no batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/builder/shaping/shaping.hpp"

namespace fanin::builder::shaping {

// Each readout unit is granted its share of the window anew whenever there is room for a carrier in
// it. So there is at most one grant for each carrier, and whoever has been granted something can
// send one. With tokens it is granted its share only when it gets a token, of which there are few.
// They go round among those that owe something. Knows no connection; time comes in. Thread: the
// builder unit's loop.
class FANIN_INTERNAL_API Grants {
public:
  // `pull`: a readout unit is granted nothing before it owes something.
  Grants(const Shaping& shaping, std::size_t readout_units, bool pull);

  // A readout unit that sends nothing may hold a token for so long.
  static constexpr Duration token_patience = std::chrono::milliseconds{10};

  // A new connection of this readout unit: nothing is granted yet.
  void opened(NodeId readout);
  void closed(NodeId readout);
  // A message of this readout unit has come. False: that was not granted.
  [[nodiscard]] bool received(NodeId readout, std::uint64_t bytes);
  // That message filled its carrier: a grant is sent, even if it has grown by less than a carrier.
  // With the barrel shifter, readout units take the receipt as their clock.
  void carrier_filled(NodeId readout);

  // Once a turn. `owes(NodeId)`: whether data of it are missing.
  template <class Owes>
  void update(Time now, Owes owes);
  // When update() has to be called although nothing has changed.
  [[nodiscard]] Time wake() const;
  // Readout units whose grant has grown and has not been sent; take() when it is.
  [[nodiscard]] const std::vector<NodeId>& unsent() const { return unsent_; }
  [[nodiscard]] bool unsent(NodeId readout) const {
    return readouts_[readout].sent != readouts_[readout].granted;
  }
  // The grant to send to this readout unit now; it counts as sent.
  std::uint64_t take(NodeId readout);
  [[nodiscard]] std::uint64_t messages() const { return messages_; } // with grants, sent

  // Whether its grant suffices for a carrier. What is not granted is not owed.
  [[nodiscard]] bool may_send(NodeId readout) const {
    return outstanding(readout) >= shaping_.carrier;
  }
  // Bytes granted and not received, of all.
  [[nodiscard]] std::uint64_t outstanding() const;

  struct Account { // of a connection, bytes since it was opened
    std::uint64_t granted = 0;
    std::uint64_t received = 0;
  };
  [[nodiscard]] Account account(NodeId readout) const {
    return {readouts_[readout].granted, readouts_[readout].received};
  }

private:
  struct Readout : Account {
    bool open = false;
    bool due = false; // in due_
    std::uint64_t sent = 0; // of `granted`
  };
  [[nodiscard]] std::uint64_t outstanding(NodeId readout) const {
    return readouts_[readout].granted - readouts_[readout].received;
  }
  [[nodiscard]] bool room(NodeId readout) const { // for a carrier
    return share_ - outstanding(readout) >= shaping_.carrier;
  }
  [[nodiscard]] bool with_tokens() const { return shaping_.policy == Policy::tokens; }
  void note_due(NodeId readout);
  void make_due(NodeId readout);
  void grant(NodeId readout);
  template <class Owes>
  void pass_tokens(Time now, Owes owes);

  struct Token { // held by a readout unit
    NodeId readout = 0;
    std::uint64_t received = 0; // of it, at the last check
    Time until = never; // without further data it is passed on
  };

  const Shaping shaping_;
  const std::uint64_t share_;
  const bool pull_;
  std::vector<Readout> readouts_;
  std::vector<NodeId> due_; // there is room for a carrier in their share
  std::vector<Token> tokens_;
  std::size_t next_token_ = 0; // who gets the next one, if it owes something
  std::vector<NodeId> unsent_; // in the order of grants
  std::uint64_t messages_ = 0;
};

template <class Owes>
void Grants::update(Time now, Owes owes) {
  if (with_tokens()) return pass_tokens(now, owes);
  std::erase_if(due_, [&](NodeId node) {
    if (pull_ && readouts_[node].granted == 0 && !owes(node)) return false;
    grant(node);
    return true;
  });
}

// A token comes back when its holder cannot send a carrier any more, owes nothing more, or sends
// nothing for a while: then it has a grant left, sends when it can, and gets no other token before.
template <class Owes>
void Grants::pass_tokens(Time now, Owes owes) {
  std::erase_if(tokens_, [&](Token& token) {
    const std::uint64_t received = readouts_[token.readout].received;
    if (std::exchange(token.received, received) != received) token.until = now + token_patience;
    return now >= token.until || !may_send(token.readout) || !owes(token.readout);
  });
  const std::size_t first = next_token_;
  for (std::size_t i = 0; i < readouts_.size() && tokens_.size() < shaping_.tokens; ++i) {
    const auto node = static_cast<NodeId>((first + i) % readouts_.size());
    if (!readouts_[node].open || may_send(node) || !owes(node)) continue;
    grant(node);
    tokens_.push_back({node, readouts_[node].received, now + token_patience});
    next_token_ = node + std::size_t{1};
  }
}

} // namespace fanin::builder::shaping
