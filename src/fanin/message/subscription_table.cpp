#include "fanin/message/subscription_table.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fanin::message::detail {

void SubscriptionTable::clear() {
  groups_of_.clear();
  groups_.clear();
  changes_.clear();
  last_ = nullptr;
}

void SubscriptionTable::look_up(Tag tag) {
  static const std::vector<Group*> nobody;
  const auto found = groups_of_.find(tag);
  last_tag_ = tag;
  last_ = found == groups_of_.end() ? &nobody : &found->second;
}

void SubscriptionTable::take_wishes(Member& member) {
  tags_ -= member.tags.size();
  member.take_wishes();
  tags_ += member.tags.size();
}

const Member* SubscriptionTable::greatest() const {
  const Member* greatest = nullptr;
  for (const auto& group : groups_) {
    for (const Member* const member : group->members) {
      if (greatest == nullptr || member->tags.size() > greatest->tags.size()) greatest = member;
    }
  }
  return greatest;
}

void SubscriptionTable::place(Member& member) {
  member.tags_hash = salt_;
  for (const Tag tag : member.tags) {
    member.tags_hash = (member.tags_hash ^ tag) * 0x9e3779b97f4a7c15U;
    member.tags_hash ^= member.tags_hash >> 32;
  }
  if (member.group != nullptr && member.group->tags == member.tags) return;
  last_ = nullptr;
  Group* group = find_group(member);
  const bool alone = member.group != nullptr && member.group->members.size() == 1;
  if (alone && group == nullptr && !member.tags.empty()) return change_tags(*member.group, member);
  leave(member);
  if (member.tags.empty()) return;
  if (group == nullptr) group = &make_group(member);
  group->members.push_back(&member);
  member.group = group;
  member.offset = group->page.end();
  member.seen = group->messages;
}

// Costs what has changed, so that tags may come one by one.
void SubscriptionTable::change_tags(Group& group, const Member& like) {
  const std::vector<Tag>& tags = like.tags;
  std::vector<Tag> changed;
  std::ranges::set_difference(group.tags, tags, std::back_inserter(changed));
  for (const Tag tag : changed) erase(group, tag);
  changed.clear();
  std::ranges::set_difference(tags, group.tags, std::back_inserter(changed));
  for (const Tag tag : changed) add(group, tag);
  group.tags = tags;
  group.tags_hash = like.tags_hash;
}

void SubscriptionTable::add(Group& group, Tag tag) {
  auto& groups = groups_of_[tag];
  if (groups.empty()) changes_.push_back(tag);
  groups.push_back(&group);
}

void SubscriptionTable::erase(const Group& group, Tag tag) {
  const auto found = groups_of_.find(tag);
  std::erase(found->second, &group);
  if (!found->second.empty()) return;
  groups_of_.erase(found);
  changes_.push_back(tag);
}

// A subscriber that changes its group leaves the old one first: its tags go and come. So only an
// odd number of changes is one.
std::vector<Tag> SubscriptionTable::take_changes() {
  std::vector<Tag> odd;
  std::ranges::sort(changes_);
  for (const Tag tag : changes_) {
    if (!odd.empty() && odd.back() == tag) {
      odd.pop_back();
    } else {
      odd.push_back(tag);
    }
  }
  changes_.clear();
  return odd;
}

void SubscriptionTable::remove(Member& member) {
  tags_ -= member.tags.size();
  leave(member);
  while (!member.outbox.empty()) member.pop();
}

void SubscriptionTable::leave(Member& member) {
  Group* const group = std::exchange(member.group, nullptr);
  if (group == nullptr) return;
  if (member.offset < group->page.end()) member.put(group->rest_for(member));
  std::erase(group->members, &member);
  if (!group->members.empty()) return;
  last_ = nullptr;
  for (const Tag tag : group->tags) erase(*group, tag);
  std::erase_if(groups_, [group](const auto& one) { return one.get() == group; });
}

Group* SubscriptionTable::find_group(const Member& member) const {
  for (const auto& group : groups_) {
    if (group->tags_hash == member.tags_hash && group->mode == member.mode &&
        group->page_max == member.hello.page_max &&
        group->message_max == member.hello.message_max && group->tags == member.tags)
      return group.get();
  }
  return nullptr;
}

Group& SubscriptionTable::make_group(const Member& member) {
  Group& group = *groups_.emplace_back(std::make_unique<Group>(pool_, member));
  for (const Tag tag : group.tags) add(group, tag);
  return group;
}

} // namespace fanin::message::detail
