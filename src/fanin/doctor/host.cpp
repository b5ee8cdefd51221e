#include "fanin/doctor/host.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <system_error>

namespace fanin::doctor {
namespace {

template <class Number>
std::optional<Number> first_number(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  Number value{};
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc{}) return {};
  return value;
}

} // namespace

std::optional<std::string> Host::text(std::string_view path) const {
  std::ifstream file(root_ / path);
  if (!file) return {};
  std::string all;
  std::array<char, 4096> some;
  do { // some files of /sys can be opened and not read: then the stream is bad
    file.read(some.data(), some.size());
    all.append(some.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  if (file.bad()) return {};
  const auto end = all.find_last_not_of(" \t\n");
  all.resize(end == std::string::npos ? 0 : end + 1);
  return all;
}

std::optional<std::int64_t> Host::number(std::string_view path) const {
  const auto all = text(path);
  return all ? first_number<std::int64_t>(*all) : std::nullopt;
}

std::vector<std::string> Host::names(std::string_view path) const {
  std::vector<std::string> result;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(root_ / path, error), end; !error && entry != end;
       entry.increment(error)) {
    result.push_back(entry->path().filename().string());
  }
  std::ranges::sort(result);
  return result;
}

bool Host::exists(std::string_view path) const {
  std::error_code error;
  return std::filesystem::exists(root_ / path, error);
}

bool Host::usable(std::string_view path) const {
  return faccessat(AT_FDCWD, (root_ / path).c_str(), R_OK | W_OK, AT_EACCESS) == 0;
}

std::optional<std::uint64_t> Host::limit(std::string_view name) const {
  const std::string all = text("proc/self/limits").value_or("");
  const auto line = all.find(name);
  if (line == std::string::npos) return {};
  return first_number<std::uint64_t>(std::string_view(all).substr(line + name.size()));
}

} // namespace fanin::doctor
