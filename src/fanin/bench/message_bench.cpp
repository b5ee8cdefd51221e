#include "fanin/bench/message_bench.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/bench/bodies.hpp"
#include "fanin/bench/contender_ends.hpp"
#include "fanin/bench/contenders.hpp"
#include "fanin/bench/machine.hpp"
#include "fanin/bench/port.hpp"
#include "fanin/bench/record.hpp"
#include "fanin/executive/placement.hpp"

namespace fanin::bench {
namespace {

constexpr Window probe{std::chrono::milliseconds{50}, std::chrono::milliseconds{250}};
constexpr std::string_view loaded = "fanin-loaded";
constexpr std::string_view point_to_point = "point-to-point";

double quantile_us(const Sample& sample, double fraction) {
  return std::chrono::duration<double, std::micro>(sample.latency.quantile(fraction)).count();
}
// A message that is back has crossed the path in both directions.
double two_way_bytes_per_s(const Sample& sample) { return 2 * bytes_per_s(sample); }
double p50_us(const Sample& sample) { return quantile_us(sample, 0.5); }
double p99_us(const Sample& sample) { return quantile_us(sample, 0.99); }
double p999_us(const Sample& sample) { return quantile_us(sample, 0.999); }

// Whether messages came back in every round: not where a rate could not be kept.
bool timed(const Series& series) {
  return std::ranges::all_of(series.samples,
                             [](const auto& sample) { return sample.latency.count() > 0; });
}

class MessageBench {
public:
  MessageBench(const MessageBenchOptions& options, const Progress& progress)
      : options_(options), progress_(progress), port_(find_port(options.spec.url)) {}

  Result<json::Value> run() {
    executive::share_cores(processes(options_.spec));
    FANIN_TRY(find_contenders());
    result_["bench"] = name(options_.spec.pattern);
    result_["machine"] = describe_machine();
    result_["settings"] = settings();
    put_port(result_, port_);
    for (const std::uint32_t size : options_.sizes) FANIN_TRY(run_size(size));
    result_["settings"]["probes_dropped"] = probes_dropped_;
    return std::move(result_);
  }

private:
  static std::size_t processes(const Spec& spec) {
    switch (spec.pattern) {
    case Pattern::stream:
    case Pattern::roundtrip: return 2;
    case Pattern::pubsub: return 1 + spec.receivers;
    case Pattern::nxn: return spec.senders + spec.receivers * spec.rails;
    }
    return 2;
  }

  // As the configuration does: a carrier holds a message, and everybody can be granted carriers.
  static void fit_shaping(Spec& spec) {
    const std::uint64_t least = std::bit_ceil(PageLayout{spec.size, 0}.page());
    spec.shaping.carrier =
        static_cast<std::uint32_t>(std::max<std::uint64_t>(spec.shaping.carrier, least));
    spec.shaping.window = spec.shaping.window_usual(spec.senders * spec.rails);
    spec.shaping.tokens =
        static_cast<std::uint32_t>(std::min<std::size_t>(spec.shaping.tokens, spec.senders));
  }

  [[nodiscard]] Spec spec_of(std::string_view what, std::uint32_t size) const {
    Spec spec = options_.spec;
    spec.size = size;
    spec.page = usual_page;
    spec.warmup = options_.window.warmup;
    spec.peer = what;
    if (what != "fanin" && what != full_duplex) spec.rails = 1;
    if (what == one_rail || what == full_duplex) spec.peer = "fanin";
    if (what == link_contender) {
      spec.peer = "raw";
      spec.senders = spec.receivers = 1;
      spec.wait = net::WaitPolicy::block;
    }
    if (what == "fair") {
      spec.set = fair_set;
      spec.checksum = true;
    }
    if (what == loaded) {
      spec.peer = "fanin";
      spec.loaded = true;
    }
    if (what == point_to_point) {
      spec.peer = "fanin";
      spec.pattern = Pattern::stream;
    }
    if (spec.shaping.on()) fit_shaping(spec);
    if (processes(spec) > executive::usable_cores()) spec.wait = net::WaitPolicy::block;
    return spec;
  }

  Result<> check(std::string_view what) const {
    const Spec spec = spec_of(what, options_.sizes.front());
    const bool takes_the_hosts = what == "mpi" || what == "zeromq";
    if (takes_the_hosts && spec.url.scheme == "tcp" && spec.congestion != host_congestion()) {
      return fail(ErrorKind::unsupported,
                  fmt::format("{}: takes the host's congestion control, {}, and not {}", what,
                              host_congestion(), spec.congestion));
    }
    if (what == "mpi")
      return options_.other_host ? fail(ErrorKind::unsupported, "mpi: not across two hosts")
                                 : find_mpi(spec);
    FANIN_TRY(make_ends(spec));
    return {};
  }

  // Peers that are not here are left out, and the result says why.
  Result<> find_contenders() {
    if (options_.hosts) names_.emplace_back(link_contender);
    for (const auto& peer : options_.peers) {
      if (const auto here = check(peer)) {
        names_.push_back(peer);
      } else if (here.error().kind == ErrorKind::unsupported) {
        result_["remarks"].append(here.error().text);
        say(progress_, here.error().text);
      } else {
        return here;
      }
    }
    names_.emplace_back("fanin");
    if (options_.spec.rails > 1) names_.emplace_back(one_rail);
    if (options_.full_duplex) names_.emplace_back(full_duplex);
    if (options_.spec.pattern == Pattern::pubsub) names_.emplace_back(point_to_point);
    if (options_.under_load) names_.emplace_back(loaded);
    return check("fanin");
  }

  Result<Sample> measure(const Spec& spec, const Window& window) const {
    if (spec.peer == "mpi") return run_mpi(spec, window);
    if (options_.hosts) return run_on_hosts(spec, options_.spec.senders, *options_.hosts, window);
    const auto ends = FANIN_TRY(make_ends(spec));
    return options_.other_host && ends.listeners > 0
               ? run_with_other_host(*options_.other_host, spec, ends, window)
               : run_ends(ends, window);
  }

  Result<> tune_loop(Spec& loop) {
    const bool may_poll = loop.wait == net::WaitPolicy::poll &&
                          (loop.url.scheme == "tcp" || loop.url.scheme.starts_with("ofi+"));
    probes_dropped_ += FANIN_TRY(tune(
        loop, may_poll, [this](const Spec& spec) { return measure(spec, probe); }, options_.rounds,
        progress_));
    return {};
  }

  Result<> run_size(std::uint32_t size) {
    std::vector<Spec> specs;
    std::vector<Contender> contenders;
    for (const auto& what : names_) {
      Spec spec = spec_of(what, size);
      if ((what == "raw" || what == "fair") && spec.pattern != Pattern::roundtrip)
        FANIN_TRY(tune_loop(spec));
      specs.push_back(spec);
      contenders.push_back({what, [this, spec, &what] {
                              return what == full_duplex
                                         ? run_on_hosts(spec, spec.senders, *options_.full_duplex,
                                                        options_.window)
                                         : measure(spec, options_.window);
                            }});
    }
    say(progress_, fmt::format("{} of {}", name(options_.spec.pattern), format_size(size)));
    const auto rounds = FANIN_TRY(run_rounds(contenders, options_.rounds, progress_));
    for (std::size_t i = 0; i < rounds.all.size(); ++i) {
      json::Value row = describe(rounds.all[i], specs[i], rounds.all);
      put_rounds(row, rounds);
      result_["results"].append(std::move(row));
    }
    return {};
  }

  [[nodiscard]] json::Value describe(const Series& series, const Spec& spec,
                                     const std::vector<Series>& all) const {
    json::Value row = to_json(series);
    row["url"] = spec.url.text();
    row["size_bytes"] = spec.size;
    if (series.what == "fanin") put_share(row, port_, series);
    if (series.what == "raw" || series.what == "fair") {
      row["page_bytes"] = spec.page;
      row["wait"] = name(spec.wait);
    }
    const bool roundtrip = spec.pattern == Pattern::roundtrip;
    if (roundtrip) {
      put(row, "bytes_per_s", rate(series, two_way_bytes_per_s));
      for (const auto& [key, of] : {std::pair<const char*, Rate>{"p50_us", p50_us},
                                    {"p99_us", p99_us},
                                    {"p999_us", p999_us}}) {
        row[key] = json::Value{};
        if (timed(series)) put(row, key, rate(series, of));
      }
    }
    for (const std::string_view peer : {"raw", "fair", "zeromq"})
      compare(row, peer, series, find(all, peer), roundtrip ? p50_us : messages_per_s, roundtrip);
    if (options_.spec.pattern == Pattern::pubsub)
      put_ratio(row, "point_to_point", series, find(all, point_to_point), messages_per_s);
    if (series.what == loaded) compare(row, "unloaded", series, find(all, "fanin"), p99_us, true);
    put_hosts(row, series, all,
              {.own = "fanin",
               .senders = spec.rails * options_.spec.senders,
               .receivers = spec.rails * options_.spec.receivers,
               .testbed = options_.hosts && options_.hosts->testbed});
    if (spec.pattern == Pattern::nxn) {
      row["per_node_bytes_per_s"] =
          rate(series, bytes_per_s).median / static_cast<double>(spec.senders);
    }
    return row;
  }

  static void compare(json::Value& row, std::string_view to, const Series& series,
                      const Series* baseline, const Rate& of, bool of_times) {
    const bool known = baseline != nullptr && (!of_times || (timed(series) && timed(*baseline)));
    put_ratio(row, to, series, known ? baseline : nullptr, of);
  }

  [[nodiscard]] json::Value settings() const {
    const Spec spec = spec_of("fanin", options_.sizes.front());
    json::Value object;
    object["url"] = spec.url.text();
    object["wait"] = name(spec.wait);
    object["congestion"] = spec.congestion;
    object["read"] = spec.read;
    object["senders"] = spec.senders;
    object["receivers"] = spec.receivers;
    object["rails"] = spec.rails;
    object["pipeline"] = spec.pipeline;
    object["shaping"] = builder::shaping::name(spec.shaping.policy);
    object["rate_hz"] =
        spec.period.count() > 0 ? 1e9 / static_cast<double>(spec.period.count()) : 0.0;
    object["duration_s"] = std::chrono::duration<double>(options_.window.duration).count();
    object["runs"] = options_.rounds.runs;
    object["hosts"] = options_.hosts ? processes(spec) : options_.other_host ? 2 : 1;
    return object;
  }

  const MessageBenchOptions& options_;
  const Progress& progress_;
  std::optional<doctor::Port> port_; // of RDMA
  std::size_t probes_dropped_ = 0;
  std::vector<std::string> names_; // of the contenders
  json::Value result_;
};

} // namespace

Result<json::Value> bench_messages(const MessageBenchOptions& options, const Progress& progress) {
  return MessageBench{options, progress}.run();
}

} // namespace fanin::bench
