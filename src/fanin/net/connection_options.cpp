#include "fanin/net/connection_options.hpp"

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

namespace fanin::net {

Result<ConnectionOptions> checked_options(const Transport& transport, const Url& url,
                                          ConnectionOptions options) {
  FANIN_TRY(transport.check_address(url));
  if (options.receive_pool == nullptr)
    return fail(ErrorKind::usage, fmt::format("{}: no receive pool", url.text()));
  const std::uint32_t page = options.receive_pool->page_size();
  if (options.max_message > page / 2) {
    return fail(ErrorKind::usage,
                fmt::format("{}: messages of up to {} need pages of twice that size; those of the "
                            "receive pool have {}",
                            url.text(), format_size(options.max_message), format_size(page)));
  }
  if (options.max_message == 0) options.max_message = page / 2;
  return options;
}

Result<> check_scheme(const Url& url, std::string_view scheme) {
  if (url.scheme == scheme) return {};
  return fail(ErrorKind::usage, fmt::format("{} is not an address of {}://", url.text(), scheme));
}

Result<> check_plain_address(const Url& url, std::string_view scheme) {
  FANIN_TRY(check_scheme(url, scheme));
  if (url.options.empty()) return {};
  return fail(ErrorKind::usage, fmt::format("{}: option \"{}\" is not known; {}:// has none",
                                            url.text(), url.options.begin()->first, scheme));
}

} // namespace fanin::net
