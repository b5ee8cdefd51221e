// Lists of hosts: whatever the text, it is a list whose words may stand in a command line, or one
// line of error that names the file. What a list says of its addresses reads back the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fanin/base/assert.hpp"
#include "fanin/executive/host_list.hpp"

namespace {

using fanin::executive::Host;

bool has_control_character(const std::string& word) {
  return std::ranges::any_of(word, [](char character) {
    const auto code = static_cast<unsigned char>(character);
    return (code < ' ' && character != '\t') || code == 0x7f;
  });
}

void check_host(const Host& host) {
  FANIN_ASSERT(!host.addresses.empty() && !host.words.empty() && !host.words.front().empty());
  FANIN_ASSERT(host.place.starts_with("fuzz hosts:"));
  for (const std::string& address : host.addresses)
    FANIN_ASSERT(!address.empty() && address.front() != '-' && !has_control_character(address));
  FANIN_ASSERT(std::ranges::none_of(host.words, has_control_character));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto list = fanin::executive::parse_hosts(text, "fuzz hosts");
  if (!list) {
    FANIN_ASSERT(list.error().text.starts_with("fuzz hosts:"));
    FANIN_ASSERT(!has_control_character(list.error().text));
    return 0;
  }
  std::ranges::for_each(list->hosts, check_host);
  const auto again = fanin::executive::parse_hosts(list->addresses(), "fuzz hosts");
  FANIN_ASSERT(again && again->hosts.size() == list->hosts.size());
  for (std::size_t i = 0; i < list->hosts.size(); ++i)
    FANIN_ASSERT(again->hosts[i].addresses == list->hosts[i].addresses);
  return 0;
}
