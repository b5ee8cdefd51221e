/// \file
/// What every transport asks of the options of a connection.
#pragma once

#include <string_view>

#include "fanin/base/result.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net {

/// The same options, with max_message as the connection takes it: where none was given, half a page
/// of the receive pool. Errors: those of Transport::check_address(); usage, where there is no
/// receive pool or its pages are too small.
[[nodiscard]] Result<ConnectionOptions> checked_options(const Transport& transport, const Url& url,
                                                        ConnectionOptions options);

/// Whether the address is one of that scheme. Errors: usage.
[[nodiscard]] Result<> check_scheme(const Url& url, std::string_view scheme);
/// And has no options.
[[nodiscard]] Result<> check_plain_address(const Url& url, std::string_view scheme);

} // namespace fanin::net
