#include "fanin/net/url.hpp"
#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"

#include <fmt/format.h>

namespace fanin::net {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_host_character(char c) {
  return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_';
}

// Within brackets: IPv6 with an optional zone, as in fe80::1%eth0.
bool is_ipv6_character(char c) { return is_host_character(c) || c == ':' || c == '%'; }

std::unexpected<Error> wrong(std::string_view text, std::string_view what) {
  return fail(ErrorKind::usage, fmt::format("address \"{}\": {}", text, what));
}

constexpr std::string_view example = "as in tcp://127.0.0.1:7000, tcp://[::1]:7000 or inproc://evm";

Result<std::string> parse_scheme(std::string_view scheme, std::string_view text) {
  if (scheme.empty() || !is_letter(scheme.front())) {
    return wrong(text, fmt::format("no scheme at its start; write it {}", example));
  }
  std::string lower;
  for (const char c : scheme) {
    if (!is_letter(c) && !is_digit(c) && c != '+' && c != '-' && c != '.') {
      return wrong(text, fmt::format("the scheme holds '{}'; write the address {}", c, example));
    }
    lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return lower;
}

Result<std::uint16_t> parse_port(std::string_view port, std::string_view text) {
  if (const auto value = parse_number<std::uint16_t>(port)) return *value;
  return wrong(text, fmt::format("port \"{}\" is not a number from 0 to 65535", port));
}

// host, host:port, [v6], [v6]:port
Result<> parse_authority(std::string_view authority, std::string_view text, Url& url) {
  std::string_view host = authority;
  std::string_view rest;
  if (authority.starts_with('[')) {
    const auto end = authority.find(']');
    if (end == std::string_view::npos)
      return wrong(text, "the bracket of its IPv6 host is not closed");
    host = authority.substr(1, end - 1);
    rest = authority.substr(end + 1);
    if (host.empty()) return wrong(text, "nothing within the brackets; write [::1]");
    if (!rest.empty() && !rest.starts_with(':')) {
      return wrong(text, "only :port may follow the brackets");
    }
  } else if (const auto colon = authority.find(':'); colon != std::string_view::npos) {
    if (authority.find(':', colon + 1) != std::string_view::npos) {
      return wrong(text, "an IPv6 host stands in brackets, as in tcp://[::1]:7000");
    }
    host = authority.substr(0, colon);
    rest = authority.substr(colon);
  }
  if (host == "*") return wrong(text, "for all addresses of this host write 0.0.0.0 instead of *");
  for (const char c : host) {
    if (authority.starts_with('[') ? !is_ipv6_character(c) : !is_host_character(c)) {
      return wrong(text, fmt::format("the host holds '{}'; write the address {}", c, example));
    }
  }
  url.host = host;
  if (rest.empty()) return {};
  url.port = FANIN_TRY(parse_port(rest.substr(1), text));
  return {};
}

Result<> parse_options(std::string_view options, std::string_view text, Url& url) {
  while (true) {
    const auto end = options.find('&');
    const std::string_view option = options.substr(0, end);
    const auto equals = option.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return wrong(text, fmt::format("option \"{}\" is not of the form name=value", option));
    }
    const std::string key{option.substr(0, equals)};
    if (!url.options.emplace(key, option.substr(equals + 1)).second) {
      return wrong(text, fmt::format("option \"{}\" is given twice", key));
    }
    if (end == std::string_view::npos) return {};
    options.remove_prefix(end + 1);
  }
}

} // namespace

Result<Url> Url::parse(std::string_view text) {
  Url url;
  std::string_view rest = text;
  std::string_view options;
  const auto question = rest.find('?');
  if (question != std::string_view::npos) {
    options = rest.substr(question + 1);
    rest = rest.substr(0, question);
  }
  const auto separator = rest.find("://");
  url.scheme = FANIN_TRY(parse_scheme(rest.substr(0, separator), text));
  if (separator != std::string_view::npos)
    FANIN_TRY(parse_authority(rest.substr(separator + 3), text, url));
  if (question != std::string_view::npos) FANIN_TRY(parse_options(options, text, url));
  return url;
}

std::string Url::text() const {
  std::string text = scheme;
  if (!host.empty() || port != 0) {
    text += "://";
    text += host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
    if (port != 0) text += fmt::format(":{}", port);
  }
  char separator = '?';
  for (const auto& [key, value] : options) {
    text += fmt::format("{}{}={}", separator, key, value);
    separator = '&';
  }
  return text;
}

std::string_view Url::network() const {
  const std::string_view whole = scheme;
  const auto plus = whole.rfind('+');
  return plus == std::string_view::npos ? whole : whole.substr(plus + 1);
}

Reach Url::reach() const {
  if (network() == "inproc") return Reach::process;
  return network() == "shm" ? Reach::host : Reach::network;
}

} // namespace fanin::net
