/// \file
/// How often a sender is asked to send a message again that may be damaged. It may send the same
/// bytes again and again, or the way may damage them each time: then they count as they are.
#pragma once

#include <cstdint>

namespace fanin::source {

class ResendRequests {
public:
  /// Another message may be damaged. True: its sender is to be asked for it once more.
  [[nodiscard]] bool ask(std::uint64_t event) {
    times_ = event == event_ ? times_ + 1 : 1;
    event_ = event;
    if (times_ > times_max || left_ == 0) return false;
    --left_;
    return true;
  }
  /// A message was right.
  void right() {
    if (left_ == most || ++right_ < right_for_one) return;
    right_ = 0;
    ++left_;
  }

private:
  static constexpr int times_max = 3; // for one message
  static constexpr int most = 16; // if none is right meanwhile
  static constexpr int right_for_one = 100;

  std::uint64_t event_ = ~std::uint64_t{0};
  int times_ = 0; // for this event
  int left_ = most;
  int right_ = 0;
};

} // namespace fanin::source
