/// \file
/// Who gets which tags (Schumacher 2017, section III-A: "publish sockets maintain a dynamic
/// subscription table"). Subscribers of the same mode and limits with the same tags form a group:
/// what is gathered for them is gathered once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "fanin/message/subscription_group.hpp"

namespace fanin::message::detail {

class SubscriptionTable {
public:
  // `salt`: of the hash of tags. Peers must not know it.
  explicit SubscriptionTable(memory::PagePool& pool, std::uint64_t salt = 0)
      : pool_(pool), salt_(salt) {}

  // The groups that get a tag. Valid until a subscription changes.
  [[nodiscard]] std::span<Group* const> find(Tag tag) {
    if (tag != last_tag_ || last_ == nullptr) look_up(tag);
    return *last_;
  }
  // Changes the member's tags to what it has asked for; place() follows.
  void take_wishes(Member& member);
  // Moves the member to the group that its tags call for. The part of the old group's page that it
  // does not have yet goes to its outbox.
  void place(Member& member);
  void remove(Member& member);
  void clear();

  [[nodiscard]] const std::vector<std::unique_ptr<Group>>& groups() const { return groups_; }
  [[nodiscard]] std::uint64_t tags() const { return tags_; } // of all members, as they asked
  // Tags that have subscribers now and had none at the last call, or the reverse. Sorted.
  [[nodiscard]] std::vector<Tag> take_changes();
  [[nodiscard]] bool changed() const { return !changes_.empty(); } // take_changes() may say more
  [[nodiscard]] const Member* greatest() const; // the member with most tags; null: there is none

private:
  void look_up(Tag tag);
  void leave(Member& member);
  [[nodiscard]] Group* find_group(const Member& member) const;
  [[nodiscard]] Group& make_group(const Member& member);
  void change_tags(Group& group, const Member& like);
  void add(Group& group, Tag tag);
  void erase(const Group& group, Tag tag);

  memory::PagePool& pool_;
  std::uint64_t salt_;
  std::uint64_t tags_ = 0;
  std::unordered_map<Tag, std::vector<Group*>> groups_of_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Tag> changes_; // each first group and each last group of a tag that came or went
  // The tag published last is published next, most often.
  Tag last_tag_ = 0;
  const std::vector<Group*>* last_ = nullptr;
};

} // namespace fanin::message::detail
