// What the kernel tells about a host in files: /sys, /proc, /dev, or the same below another folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/export.hpp"

namespace fanin::doctor {

class Host {
public:
  explicit Host(std::filesystem::path root = "/") : root_(std::move(root)) {}

  // The text of a file, without blanks at its ends; empty: it does not exist, or cannot be read.
  [[nodiscard]] FANIN_INTERNAL_API std::optional<std::string> text(std::string_view path) const;
  // Its first word as a number.
  [[nodiscard]] FANIN_INTERNAL_API std::optional<std::int64_t> number(std::string_view path) const;
  // Names in the folder, in order.
  [[nodiscard]] FANIN_INTERNAL_API std::vector<std::string> names(std::string_view path) const;
  [[nodiscard]] bool exists(std::string_view path) const;
  [[nodiscard]] bool usable(std::string_view path) const; // this user may read and write it
  // The soft limit of this process, as in "Max open files"; none: unlimited, or not known.
  [[nodiscard]] std::optional<std::uint64_t> limit(std::string_view name) const;

private:
  std::filesystem::path root_;
};

} // namespace fanin::doctor
