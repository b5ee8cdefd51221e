// Reads the words of a command line that have units.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/net/url.hpp"

namespace fanin::command {

// A check of an option: empty, or what is wrong with the word.
[[nodiscard]] std::function<std::string(const std::string&)> natural_number(std::uint64_t least);

[[nodiscard]] std::vector<std::string> split_at_commas(std::string_view text);

// Reads what was given; the first error is kept.
class Reading {
public:
  template <class Number>
  void size(const char* option, const std::string& text, Number& to) {
    if (text.empty()) return;
    const auto value = parse_size(text);
    if (!keep(option, value)) return;
    if (*value > std::numeric_limits<Number>::max()) {
      fail_with(option, text + " is too large");
    } else {
      to = static_cast<Number>(*value);
    }
  }
  // "64KiB", "64B,1KiB" or "8B..64MiB": the ends and the powers of 4 between them.
  [[nodiscard]] std::vector<std::uint32_t> sizes(const char* option, const std::string& text,
                                                 std::uint32_t most);
  // Of a transport that comes with fanin.
  net::Url url(const char* option, const std::string& text);
  // Its period.
  void rate(const char* option, const std::string& text, Duration& to) {
    if (text.empty()) return;
    const auto value = parse_rate_hz(text);
    if (!keep(option, value)) return;
    if (*value < 1e-6) {
      fail_with(option, text + " is too low");
    } else {
      to = Duration{static_cast<Duration::rep>(1e9 / *value)};
    }
  }
  template <class T>
  bool keep(const char* option, const Result<T>& value) {
    if (!value) fail_with(option, value.error().text);
    return value.has_value();
  }
  void fail_with(const char* option, const std::string& why) {
    if (result_) result_ = fail(ErrorKind::usage, fmt::format("{}: {}", option, why));
  }
  [[nodiscard]] const Result<>& result() const { return result_; }

private:
  Result<> result_;
};

} // namespace fanin::command
