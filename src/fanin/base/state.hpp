// A state whose changes are checked. Beside its enum stands what is allowed:
//   constexpr bool may_follow(State from, State to);
// (a friend, where the enum is inside a class). To assign one CheckedState to another is not
// checked: the object that has it begins anew.
#pragma once

#include "fanin/base/export.hpp"

namespace fanin {

namespace detail {
[[noreturn]] FANIN_INTERNAL_API void wrong_state(const char* function, int from, int to);
} // namespace detail

template <class State>
class CheckedState {
public:
  constexpr CheckedState(State first) : state_(first) {}
  constexpr CheckedState& operator=(State next) {
    if (!may_follow(state_, next)) [[unlikely]] // the name of this function has the enum's
      detail::wrong_state(__PRETTY_FUNCTION__, static_cast<int>(state_), static_cast<int>(next));
    state_ = next;
    return *this;
  }
  constexpr operator State() const { return state_; }

private:
  State state_;
};

} // namespace fanin
