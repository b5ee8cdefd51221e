#include "fanin/bench/remote.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/bare_socket.hpp"
#include "fanin/bench/contenders.hpp"
#include "fanin/version.hpp"

namespace fanin::bench {
namespace {

constexpr std::size_t line_max = 64U << 10;
constexpr std::uint64_t window_max_ns = 3'600'000'000'000;

Result<> write_line(const Descriptor& socket, const json::Value& value) {
  const std::string line = value.dump() + "\n";
  return write_all(socket.get(), std::as_bytes(std::span{line}));
}

Result<json::Value> read_line(const Descriptor& socket) {
  std::string line;
  char character = 0;
  while (line.size() < line_max) {
    const ssize_t count = recv(socket.get(), &character, 1, 0);
    if (count <= 0) return fail_errno(ErrorKind::disconnected, "the other host", errno);
    if (character != '\n') {
      line += character;
      continue;
    }
    auto value = json::Value::parse(line);
    if (value && !value->at("error").is_null())
      return fail(ErrorKind::internal, "the other host: " + value->at("error").text());
    return value;
  }
  return fail(ErrorKind::malformed, "the other host says too much");
}

Duration duration_of(const json::Value& value, std::string_view key) {
  return Duration{static_cast<Duration::rep>(std::min(value.at(key).natural(), window_max_ns))};
}

// One measurement. Its processes end with it.
Result<> serve_one(const Descriptor& socket, const net::Url& url, const Progress& progress) {
  const auto request = FANIN_TRY(read_line(socket));
  if (request.at("fanin").text() != version)
    return fail(ErrorKind::refused, fmt::format("this is fanin {}", version));
  auto spec = FANIN_TRY(Spec::from_json(request.at("spec")));
  spec.url.host = url.host;
  spec.url.port = 0;
  const auto ends = FANIN_TRY(make_ends(spec));
  if (progress) progress(fmt::format("{} {} {} B", name(spec.pattern), spec.peer, spec.size));
  ProcessGroup group;
  const auto addresses = FANIN_TRY(start_listeners(group, ends));
  json::Value answer;
  for (const auto& address : addresses) answer["addresses"].append(address);
  FANIN_TRY(write_line(socket, answer));
  const auto go = FANIN_TRY(read_line(socket));
  const auto sample = FANIN_TRY(group.measure(
      duration_of(go, "warmup_ns"), duration_of(go, "duration_ns"), !ends.connectors_count));
  FANIN_TRY(write_line(socket, json::Object{{"seconds", sample.seconds},
                                            {"messages", sample.messages},
                                            {"bytes", sample.bytes}}));
  FANIN_TRY(read_line(socket)); // the connectors have ended
  return {};
}

void serve_all(const Descriptor& socket, const net::Url& url, const Progress& progress) {
  while (true) {
    const auto served = serve_one(socket, url, progress);
    if (served) continue;
    if (served.error().kind == ErrorKind::disconnected) return;
    if (!write_line(socket, json::Object{{"error", served.error().text}})) return;
  }
}

} // namespace

Result<> serve_ends(const net::Url& url, const Progress& progress) {
  if (url.scheme != "tcp")
    return fail(ErrorKind::usage, fmt::format("--listen {}: tcp only", url.text()));
  auto listener = FANIN_TRY(listen_at(url, ""));
  if (progress) progress("listens at " + listening_address(listener));
  while (true) {
    const auto socket = FANIN_TRY(accept_one(listener));
    serve_all(socket, url, progress);
  }
}

Result<OtherHost> OtherHost::connect(const net::Url& url) {
  auto socket = FANIN_TRY(connect_to(url, ""));
  return OtherHost{std::move(socket), url};
}

Result<Sample> OtherHost::run(const Spec& spec, const Ends& ends, const Window& window) {
  FANIN_TRY(write_line(socket_, json::Object{{"fanin", version}, {"spec", spec.to_json()}}));
  const auto answer = FANIN_TRY(read_line(socket_));
  std::vector<std::string> addresses;
  for (const auto& text : answer.at("addresses").list()) {
    auto address = FANIN_TRY(net::Url::parse(text.text()));
    address.host = url_.host; // it may listen at all of its addresses
    addresses.push_back(address.text());
  }
  if (addresses.size() != ends.listeners)
    return fail(ErrorKind::malformed, "the other host answers with other addresses");
  ProcessGroup group;
  FANIN_TRY(start_connectors(group, ends, addresses));
  FANIN_TRY(write_line(socket_, json::Object{{"warmup_ns", window.warmup.count()},
                                             {"duration_ns", window.duration.count()}}));
  auto sample = FANIN_TRY(group.measure(window.warmup, window.duration, ends.connectors_count));
  const auto theirs = FANIN_TRY(read_line(socket_));
  if (!ends.connectors_count) {
    sample.seconds = theirs.at("seconds").real();
    sample.messages = theirs.at("messages").natural();
    sample.bytes = theirs.at("bytes").natural();
  }
  if (ends.latency) sample.latency = FANIN_TRY(take_latency(group, 0));
  FANIN_TRY(write_line(socket_, json::Value{json::Object{}}));
  return sample;
}

} // namespace fanin::bench
