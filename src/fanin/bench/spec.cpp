#include "fanin/bench/spec.hpp"

#include <algorithm>
#include <array>

#include "fanin/base/try.hpp"
#include "fanin/bench/members.hpp"
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

template <class Self, class Visit>
void Spec::each_member(Self& self, Visit visit) {
  visit("peer", self.peer);
  visit("size", self.size, 1, message_size_max);
  visit("page", self.page, 0, page_max);
  visit("set", self.set, 0, set_max);
  visit("checksum", self.checksum);
  visit("records", self.records, 1, message_size_max / std::max(self.size, 1U));
  visit("senders", self.senders, 1, processes_max);
  visit("receivers", self.receivers, 1, processes_max);
  visit("rails", self.rails, 1, builder::rails_max);
  visit("pipeline", self.pipeline, 1, pipeline_max);
  visit("period_ns", self.period, 0, period_max_ns);
  visit("read", self.read);
  visit("loaded", self.loaded);
  visit("congestion", self.congestion);
  visit("warmup_ns", self.warmup, 0, warmup_max_ns);
  if (!self.shaping.on()) return;
  visit("carrier", self.shaping.carrier, 1, 2 * message_size_max);
  visit("window", self.shaping.window, self.shaping.window_least(self.senders * self.rails),
        window_max);
  visit("tokens", self.shaping.tokens, 1, processes_max);
}

json::Value Spec::to_json() const {
  json::Value value = object_of(*this);
  value["pattern"] = name(pattern);
  value["url"] = url.text();
  value["shaping"] = builder::shaping::name(shaping.policy);
  value["poll"] = wait == net::WaitPolicy::poll;
  return value;
}

Result<Spec> Spec::from_json(const json::Value& value) {
  Spec spec;
  const auto pattern = std::ranges::find(pattern_names, value.at("pattern").text());
  if (pattern == pattern_names.end()) return fail(ErrorKind::malformed, "no such pattern");
  spec.pattern = static_cast<Pattern>(pattern - pattern_names.begin());
  const auto policy = builder::shaping::policy_named(value.at("shaping").text());
  if (!policy) return fail(ErrorKind::malformed, "no such shaping");
  spec.shaping.policy = *policy;
  spec.url = FANIN_TRY(net::Url::parse(value.at("url").text()));
  spec.wait = value.at("poll").boolean() ? net::WaitPolicy::poll : net::WaitPolicy::block;
  FANIN_TRY(read_object(value, spec));
  return spec;
}

} // namespace fanin::bench
