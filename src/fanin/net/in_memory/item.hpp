/// \file
/// What travels in a network in memory, and the two ends of a connection between which it travels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/net/connection_state.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net::in_memory {

class MemoryTransport;
struct Pipe;

enum class ItemKind : std::uint8_t { connect_request, connected, message, end, completion };

/// Something under way to one end of a pipe. A message's item comes back to its sender as its
/// completion; until then it is in the sender's list of outstanding messages.
struct Item {
  ItemKind kind = ItemKind::message;
  CloseReason reason = CloseReason::local; ///< of `end`
  std::uint8_t side = 0; ///< of the pipe, where it goes
  bool dropped = false; ///< lost under way, its views are released already
  std::uint8_t extent_count = 0;
  std::uint32_t size = 0;
  bool carried = false; ///< its times are known
  std::uint32_t to_life = 0; ///< of the transport where it goes
  Time begins{}; ///< when its first byte comes
  Time ends{}; ///< when its last byte comes
  std::uint32_t checksum = 0; ///< strict: of the bytes when they were sent
  std::shared_ptr<Pipe> pipe;
  memory::View extents[max_extents];
  std::vector<std::byte> owned; ///< instead of extents, after the sender's death
  Item* next = nullptr; ///< in the queue of arrived items
  Item* under_way_next = nullptr; ///< of the sender, until it arrives
  Item* outstanding_next = nullptr; ///< of the sender
  Item* outstanding_previous = nullptr;

  [[nodiscard]] std::uint32_t checksum_of_extents() const;
  void copy_to(std::byte* to) const;
  void release_extents();
  void own_bytes(); ///< copies them: the pages that they lie in are about to go
  /// Asserts that the sender has not written into memory that was still on its way: with RDMA the
  /// peer would have got a mix.
  void check_untouched() const;
};

/// One end of a connection.
struct End {
  MemoryTransport* transport = nullptr; ///< null: not accepted yet, or died
  ConnectionState state; ///< retired: closed here, or reported closed
  ConnectionId id = ConnectionId::none;
  ConnectionOptions options;
  PageFiller* filler = nullptr;
  /// sending
  std::uint64_t queued_bytes = 0; ///< sent and not completed; a small message counts as its item
  bool given_up = false; ///< something that it sent was not taken
  bool wants_writable = false;
  bool writable_pending = false;
  Time last_due{}; ///< keeps the order of what goes to the other end
  Item* outstanding = nullptr;
  Item* first_under_way = nullptr; ///< left and has not arrived; also after the end's death
  Item* last_under_way = nullptr;
  /// receiving: items that have arrived
  Item* first = nullptr;
  Item* last = nullptr;
  bool listed = false; ///< in the transport's ready list
  bool identified = true; ///< else one receive is posted, when a message comes
  std::uint32_t posted_most = 0; ///< strict: receives to post; 0: not strict
  std::vector<memory::Loan> posted;

  void add_under_way(Item& item);
  Item& take_under_way(); ///< the first one; there is one
  void add_outstanding(Item& item);
  void remove_outstanding(Item& item); ///< no effect if it is in no list
  /// A message that has left is on its way, and nobody has taken it.
  [[nodiscard]] bool has_untaken() const;
  void drop_outstanding(); ///< they are lost under way
  void add_arrived(Item& item);
  Item& take_arrived(); ///< the first one; there is one
  /// Whether there is an event for its owner now, and memory for it.
  [[nodiscard]] bool deliverable() const;
  /// Has something for its owner, now or once there is memory.
  [[nodiscard]] bool has_something() const {
    return first != nullptr || writable_pending || to_announce();
  }
  /// Its `accepted` event is still to come.
  [[nodiscard]] bool to_announce() const { return state.is_open() && !state.announced(); }
  /// Copies a message into the end's memory. False: there is none.
  [[nodiscard]] bool receive(const Item& item, Event& event);
  void post_receives();

private:
  [[nodiscard]] bool receive_in_shared_page(const Item& item, memory::View& message) const;
  [[nodiscard]] bool receive_where_posted(const Item& item, memory::View& message);
};

struct Pipe {
  End ends[2];
  Url target;
};

} // namespace fanin::net::in_memory
