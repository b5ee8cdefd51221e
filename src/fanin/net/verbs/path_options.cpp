#include "fanin/net/verbs/path_options.hpp"

#include <string_view>

#include <fmt/format.h>

#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"
#include "fanin/net/rdma/pages.hpp"

namespace fanin::net::verbs {
namespace {

// Decimal, or hexadecimal after 0x.
std::optional<std::uint32_t> number_in(std::string_view text) {
  if (text.starts_with("0x")) return parse_number<std::uint32_t>(text.substr(2), 16);
  return parse_number<std::uint32_t>(text);
}

template <class T>
Result<> take(const Url& url, const std::string& text, std::string_view name, std::uint32_t most,
              std::optional<T>& to) {
  const auto value = number_in(text);
  if (!value || *value > most) {
    return fail(ErrorKind::usage, fmt::format("{}: {} is a number from 0 to {}, not \"{}\"",
                                              url.text(), name, most, text));
  }
  to = static_cast<T>(*value);
  return {};
}

Result<> take_mtu(const Url& url, const std::string& text, std::optional<std::uint32_t>& to) {
  to = number_in(text);
  if (to && *to >= 256 && *to <= 4096 && (*to & (*to - 1)) == 0) return {};
  return fail(ErrorKind::usage,
              fmt::format("{}: mtu is 256, 512, 1024, 2048 or 4096, not \"{}\"", url.text(), text));
}

} // namespace

Result<PathOptions> parse_path_options(const Url& url) {
  PathOptions options;
  for (const auto& [name, value] : url.options) {
    if (name == rdma::pages_option || name == rdma::share_option) continue;
    if (name == "service_level") {
      FANIN_TRY(take(url, value, name, 15, options.service_level));
    } else if (name == "traffic_class") {
      FANIN_TRY(take(url, value, name, 255, options.traffic_class));
    } else if (name == "pkey") {
      FANIN_TRY(take(url, value, name, 0xffff, options.pkey));
    } else if (name == "gid_index") {
      FANIN_TRY(take(url, value, name, 255, options.gid_index));
    } else if (name == "mtu") {
      FANIN_TRY(take_mtu(url, value, options.mtu));
    } else {
      return fail(ErrorKind::usage,
                  fmt::format("{}: option \"{}\" is not known; verbs:// has service_level, "
                              "traffic_class, pkey, gid_index, mtu, posted and share_above",
                              url.text(), name));
    }
  }
  return options;
}

} // namespace fanin::net::verbs
