// Structs as JSON objects, for a process of the same fanin on another host. A struct says what its
// members are: each_member(self, visit) calls visit("key", self.member) for each of them, or
// visit("key", self.member, least, most) for a number that others rely on.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/clock.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"

namespace fanin::bench {

template <class T>
[[nodiscard]] json::Value object_of(const T& from) {
  json::Value object;
  T::each_member(from, [&object]<class Member>(const char* key, const Member& member, auto...) {
    if constexpr (std::same_as<Member, Duration>) {
      object[key] = member.count();
    } else if constexpr (std::same_as<Member, std::vector<std::string>>) {
      object[key] = json::List(member.begin(), member.end());
    } else {
      object[key] = member;
    }
  });
  return object;
}

// Errors: malformed: a number is out of range.
template <class T>
[[nodiscard]] Result<> read_object(const json::Value& object, T& to) {
  Result<> result;
  T::each_member(to,
                 [&]<class Member>(const char* key, Member& member, std::uint64_t least = 0,
                                   std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
                   const json::Value& value = object.at(key);
                   if constexpr (std::same_as<Member, bool>) {
                     member = value.boolean();
                   } else if constexpr (std::same_as<Member, double>) {
                     member = value.real();
                   } else if constexpr (std::same_as<Member, std::string>) {
                     member = value.text();
                   } else if constexpr (std::same_as<Member, std::vector<std::string>>) {
                     for (const auto& one : value.list()) member.push_back(one.text());
                   } else {
                     const std::uint64_t number = value.natural();
                     if (number < least || number > most)
                       result = fail(ErrorKind::malformed, fmt::format("{} is out of range", key));
                     member = static_cast<Member>(number);
                   }
                 });
  return result;
}

} // namespace fanin::bench
