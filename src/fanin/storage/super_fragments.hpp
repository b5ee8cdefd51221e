/// \file
/// A built batch as messages for a slice: each event is one super-fragment. Nothing of the payload
/// is copied.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "fanin/storage/detail/extent_index.hpp"
#include "fanin/storage/detail/row_builder.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/wire/slice.hpp"

namespace fanin::storage {

/// Messages of one batch, in order: those of its events, if there are any, then one that says that
/// nothing below the number behind the batch will come.
class SuperFragments {
public:
  struct Options {
    std::span<const SourceInfo> sources; ///< of the event builder that sends, ascending by id
    RunNumber run = 0;
    wire::Slice slice; ///< that gets it
    SourceId source = 0; ///< there
    bool integrity = true; ///< fragments have checksums
  };
  /// Takes the batch, whose pages stay until this is destroyed.
  SuperFragments(BuiltBatch batch, const Options& options);

  [[nodiscard]] std::uint64_t ticket() const { return batch_.ticket; }
  [[nodiscard]] std::size_t messages() const { return messages_.size(); }
  [[nodiscard]] std::size_t events() const { return messages_.size() - 1; }
  /// The slice's number of the last event. There is one.
  [[nodiscard]] EventNumber last() const { return messages_[events() - 1].number; }
  /// The slice's numbers of the batch: the first one, and the one behind the last.
  [[nodiscard]] EventNumber first() const { return first_; }
  [[nodiscard]] EventNumber end() const { return messages_.back().number; }
  /// Of its event; of the last message, end().
  [[nodiscard]] EventNumber number(std::size_t message) const { return messages_[message].number; }
  /// A message was sent whole.
  void sent(std::size_t message) { messages_[message].sent = true; }
  /// The reader has not read, and will not, what was sent of this number and above.
  void not_read_from(EventNumber number);
  /// How many of its events have the number `announced` or one above, or were not sent and have the
  /// number `from` or one above.
  [[nodiscard]] std::size_t events_missed(EventNumber announced, EventNumber from) const;
  [[nodiscard]] std::uint64_t bytes(std::size_t message) const { return messages_[message].size; }
  /// Appends the bytes of a message from `from` on to `out`.
  void append(std::size_t message, std::uint64_t from, std::vector<iovec>& out) const;
  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }

private:
  struct Message {
    EventNumber number = 0; // of the slice; of the last message: end()
    std::size_t head = 0; // in heads_
    std::size_t head_size = 0;
    std::size_t part = 0; // first of parts_
    std::size_t parts = 0;
    std::uint64_t size = 0; // of all of it
    bool sent = false;
  };
  void add_event(const detail::RowBuilder& rows, const EventRow& row, const Options& options,
                 const detail::ExtentIndex& index);

  BuiltBatch batch_;
  EventNumber first_ = 0;
  std::vector<Message> messages_;
  std::vector<std::byte> heads_;
  std::vector<iovec> parts_;
  std::uint64_t payload_bytes_ = 0;
};

} // namespace fanin::storage
