// The time in front of a line of a log.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

#include <fmt/format.h>

namespace fanin {

// Local time. Lines of a later day than the first one have their date in front: "00:00" alone says
// nothing in the log of a run over three nights. Thread: one.
class LogStamp {
public:
  [[nodiscard]] std::string text(std::chrono::system_clock::time_point when) {
    using namespace std::chrono;
    const std::time_t seconds = floor<std::chrono::seconds>(when).time_since_epoch().count();
    const auto milliseconds = floor<std::chrono::milliseconds>(when).time_since_epoch().count();
    std::tm at{};
    if (::localtime_r(&seconds, &at) == nullptr) return {};
    const std::string date =
        fmt::format("{:04}-{:02}-{:02} ", at.tm_year + 1900, at.tm_mon + 1, at.tm_mday);
    if (first_.empty()) first_ = date;
    return fmt::format("{}{:02}:{:02}:{:02}.{:03}", date == first_ ? "" : date, at.tm_hour,
                       at.tm_min, at.tm_sec, milliseconds - seconds * 1000);
  }

private:
  std::string first_; // the date of the first line
};

} // namespace fanin
