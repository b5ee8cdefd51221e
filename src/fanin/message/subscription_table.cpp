#include "fanin/message/subscription_table.hpp"

#include <algorithm>

namespace fanin::message::detail {

void Member::put(Parcel parcel) {
  outbox_bytes += parcel.size();
  outbox.push_back(std::move(parcel));
}

void Member::pop() {
  outbox_bytes -= outbox.front().size();
  outbox.pop_front();
}

bool Group::delivered() const {
  return std::all_of(members.begin(), members.end(),
                     [this](const Member* member) { return member->offset == page.end(); });
}

void Group::release_page() {
  page.release();
  for (Member* const member : members) member->offset = 0;
}

void SubscriptionTable::clear() {
  groups_of_.clear();
  groups_.clear();
  last_ = nullptr;
}

void SubscriptionTable::look_up(Tag tag) {
  static const std::vector<Group*> nobody;
  const auto found = groups_of_.find(tag);
  last_tag_ = tag;
  last_ = found == groups_of_.end() ? &nobody : &found->second;
}

void SubscriptionTable::place(Member& member) {
  leave(member);
  last_ = nullptr;
  if (member.tags.empty()) return;
  Group& group = group_for(member);
  group.members.push_back(&member);
  member.group = &group;
  member.offset = group.page.end();
  member.seen = group.messages;
}

void SubscriptionTable::remove(Member& member) {
  leave(member);
  while (!member.outbox.empty()) member.pop();
}

void SubscriptionTable::leave(Member& member) {
  Group* const group = std::exchange(member.group, nullptr);
  if (group == nullptr) return;
  if (member.offset < group->page.end()) member.put({group->page.from(member.offset), {}});
  std::erase(group->members, &member);
  if (!group->members.empty()) return;
  last_ = nullptr;
  for (const Tag tag : group->tags) {
    const auto found = groups_of_.find(tag);
    std::erase(found->second, group);
    if (found->second.empty()) groups_of_.erase(found);
  }
  std::erase_if(groups_, [group](const auto& one) { return one.get() == group; });
}

Group& SubscriptionTable::group_for(const Member& member) {
  for (const auto& group : groups_) {
    if (group->mode == member.mode && group->page_max == member.hello.page_max &&
        group->message_max == member.hello.message_max && group->tags == member.tags)
      return *group;
  }
  Group& group = *groups_.emplace_back(std::make_unique<Group>(pool_, member));
  for (const Tag tag : group.tags) groups_of_[tag].push_back(&group);
  return group;
}

} // namespace fanin::message::detail
