/// \file
/// Who gets which tags (Schumacher 2017, section III-A: "publish sockets maintain a dynamic
/// subscription table"). Subscribers of the same mode and limits with the same tags form a group:
/// what is gathered for them is gathered once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/message/acceptor.hpp"
#include "fanin/message/gathering_page.hpp"
#include "fanin/message/subscription.hpp"

namespace fanin::message::detail {

struct Group;

// A subscriber, in one of the two modes.
struct Member final : Peer {
  Mode mode = Mode::low_latency;
  std::vector<Tag> tags; // sorted
  std::uint64_t tags_hash = 0;
  struct Wish {
    Tag tag = 0;
    std::size_t number = 0; // in the order of asking
    bool subscribed = false;
  };
  std::vector<Wish> asked; // since the tags were changed last, in order
  Group* group = nullptr;
  std::uint32_t offset = 0; // in the group's page: what is before it, this member has
  std::uint64_t seen = 0;   // of the group's messages
  std::deque<Parcel> outbox; // before what it has not of the page; the transport did not take it
  std::uint64_t outbox_bytes = 0;
  bool blocked = false;      // the transport said backpressure
  bool skipping = false;     // does not get the message that is being given
  bool disconnecting = false;       // gets nothing any more, and is cut off
  std::uint64_t skipped = 0; // messages

  void ask(Tag tag, bool subscribed) { asked.push_back({tag, asked.size(), subscribed}); }
  void take_wishes(); // changes the tags
  void put(Parcel parcel);
  void pop();
};

struct Group {
  Group(memory::PagePool& pool, const Member& like)
      : mode(like.mode),
        page_max(like.hello.page_max),
        message_max(like.hello.message_max),
        tags(like.tags),
        tags_hash(like.tags_hash),
        page(pool, page_max) {}

  Mode mode;
  std::uint32_t page_max;    // of a transport message, bytes
  std::uint64_t message_max; // bytes, with the tag
  std::vector<Tag> tags;     // sorted
  std::uint64_t tags_hash;
  std::vector<Member*> members;
  GatheringPage page;         // high throughput
  std::uint64_t messages = 0; // so far
  std::uint32_t seen_end = 0; // of what is in the page, at the last end of a turn
  bool listed = false;        // has something for its members

  void release_page();
  [[nodiscard]] Parcel rest_for(const Member& member) const; // of the page: what it has not
  [[nodiscard]] bool delivered() const; // all members have all that is in the page
};

class SubscriptionTable {
public:
  // `salt`: of the hash of tags, which peers must not know.
  explicit SubscriptionTable(memory::PagePool& pool, std::uint64_t salt = 0)
      : pool_(pool), salt_(salt) {}

  // The groups that get a tag. Valid until a subscription changes.
  [[nodiscard]] std::span<Group* const> find(Tag tag) {
    if (tag != last_tag_ || last_ == nullptr) look_up(tag);
    return *last_;
  }
  // Moves the member to the group that its tags call for. What it has not of its old group's page
  // goes to its outbox.
  void place(Member& member);
  void remove(Member& member);
  void clear();

  [[nodiscard]] const std::vector<std::unique_ptr<Group>>& groups() const { return groups_; }

private:
  FANIN_API void look_up(Tag tag);
  void leave(Member& member);
  [[nodiscard]] Group* find_group(const Member& member) const;
  [[nodiscard]] Group& make_group(const Member& member);
  void change_tags(Group& group, const Member& like);
  void erase(const Group& group, Tag tag);

  memory::PagePool& pool_;
  std::uint64_t salt_;
  std::unordered_map<Tag, std::vector<Group*>> groups_of_;
  std::vector<std::unique_ptr<Group>> groups_;
  // The tag published last is published next, most often.
  Tag last_tag_ = 0;
  const std::vector<Group*>* last_ = nullptr;
};

} // namespace fanin::message::detail
