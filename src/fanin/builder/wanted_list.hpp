// Human-readable list of what is waited for: the first few, and how many more there are.
#pragma once

#include <cstddef>
#include <string>

#include <fmt/format.h>

namespace fanin::builder {

class WantedList {
public:
  static constexpr std::size_t shown_max = 6;

  // An empty text is nothing.
  void add(const std::string& text) {
    if (!text.empty() && count_++ < shown_max) text_ += (text_.empty() ? "" : "; ") + text;
  }
  // Empty: nothing.
  [[nodiscard]] std::string text() const {
    return count_ <= shown_max ? text_ : fmt::format("{}; and {} more", text_, count_ - shown_max);
  }

private:
  std::string text_;
  std::size_t count_ = 0;
};

} // namespace fanin::builder
