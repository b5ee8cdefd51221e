#include "fanin/bench/spec.hpp"

#include <array>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/builder/lane.hpp"

namespace fanin::bench {
namespace {

constexpr std::array<std::string_view, 4> pattern_names{"stream", "roundtrip", "pubsub", "nxn"};
constexpr std::uint64_t page_max = 64U << 20;
constexpr std::uint64_t set_max = 1U << 30;
constexpr std::uint64_t window_max = std::uint64_t{1} << 40;
constexpr std::uint64_t pipeline_max = 1U << 16;
constexpr std::uint64_t warmup_max_ns = 60'000'000'000;
constexpr std::uint64_t period_max_ns = 1'000'000'000'000'000;

} // namespace

std::string_view name(Pattern pattern) { return pattern_names[static_cast<std::size_t>(pattern)]; }
std::string_view name(net::WaitPolicy policy) {
  return policy == net::WaitPolicy::poll ? "poll" : "block";
}

json::Value Spec::to_json() const {
  json::Value value;
  value["pattern"] = name(pattern);
  value["peer"] = peer;
  value["url"] = url.text();
  value["size"] = size;
  value["page"] = page;
  value["set"] = set;
  value["checksum"] = checksum;
  value["records"] = records;
  value["senders"] = senders;
  value["receivers"] = receivers;
  value["rails"] = rails;
  value["pipeline"] = pipeline;
  value["period_ns"] = period.count();
  value["read"] = read;
  value["loaded"] = loaded;
  value["shaping"]["policy"] = builder::shaping::name(shaping.policy);
  value["shaping"]["carrier"] = shaping.carrier;
  value["shaping"]["window"] = shaping.window;
  value["shaping"]["tokens"] = shaping.tokens;
  value["congestion"] = congestion;
  value["poll"] = wait == net::WaitPolicy::poll;
  value["warmup_ns"] = warmup.count();
  return value;
}

Result<Spec> Spec::from_json(const json::Value& value) {
  Spec spec;
  Result<> result;
  const auto number_of = [&](const json::Value& from, std::string_view key, std::uint64_t min,
                             std::uint64_t max) {
    const std::uint64_t found = from.at(key).natural();
    if (found < min || found > max)
      result = fail(ErrorKind::malformed, fmt::format("{} is out of range", key));
    return found;
  };
  const auto number = [&](std::string_view key, std::uint64_t min, std::uint64_t max) {
    return number_of(value, key, min, max);
  };
  const std::string pattern = value.at("pattern").text();
  std::size_t index = 0;
  while (index < pattern_names.size() && pattern_names[index] != pattern) ++index;
  if (index == pattern_names.size()) return fail(ErrorKind::malformed, "no such pattern");
  spec.pattern = static_cast<Pattern>(index);
  spec.peer = value.at("peer").text();
  spec.url = FANIN_TRY(net::Url::parse(value.at("url").text()));
  spec.size = static_cast<std::uint32_t>(number("size", 1, message_size_max));
  if (!result) return std::unexpected(result.error());
  spec.page = number("page", 0, page_max);
  spec.set = number("set", 0, set_max);
  spec.checksum = value.at("checksum").boolean();
  spec.records = static_cast<std::uint32_t>(number("records", 1, message_size_max / spec.size));
  spec.senders = number("senders", 1, processes_max);
  spec.receivers = number("receivers", 1, processes_max);
  spec.rails = number("rails", 1, builder::rails_max);
  spec.pipeline = number("pipeline", 1, pipeline_max);
  spec.period = Duration{static_cast<Duration::rep>(number("period_ns", 0, period_max_ns))};
  spec.read = value.at("read").boolean();
  spec.loaded = value.at("loaded").boolean();
  const json::Value& shaping = value.at("shaping");
  const auto policy = builder::shaping::policy_named(shaping.at("policy").text());
  if (!policy) return fail(ErrorKind::malformed, "no such shaping");
  spec.shaping.policy = *policy;
  if (spec.shaping.on()) {
    spec.shaping.carrier =
        static_cast<std::uint32_t>(number_of(shaping, "carrier", 1, 2 * message_size_max));
    const std::uint64_t least = spec.shaping.window_least(spec.senders * spec.rails);
    spec.shaping.window = number_of(shaping, "window", least, window_max);
    spec.shaping.tokens =
        static_cast<std::uint32_t>(number_of(shaping, "tokens", 1, processes_max));
  }
  spec.congestion = value.at("congestion").text();
  spec.wait = value.at("poll").boolean() ? net::WaitPolicy::poll : net::WaitPolicy::block;
  spec.warmup = Duration{static_cast<Duration::rep>(number("warmup_ns", 0, warmup_max_ns))};
  if (!result) return std::unexpected(result.error());
  return spec;
}

} // namespace fanin::bench
