#include "fanin/bench/evb.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

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
#include "fanin/wire/data_block.hpp"

namespace fanin::bench {
namespace {

constexpr std::string_view throttled = "throttled"; // the contender
constexpr Window evb_probe{std::chrono::milliseconds{100}, std::chrono::milliseconds{400}};

std::string ratio_text(const json::Value& ratio) {
  return ratio.is_null() ? "-" : fmt::format("{:.3f}", ratio.real());
}

class EvbBench {
public:
  EvbBench(const EvbOptions& options, const Progress& progress)
      : options_(options), progress_(progress), port_(find_port(options.url)) {}

  Result<json::Value> run() {
    executive::share_cores(configuration().processes.size() +
                           (options_.setup.shape.receive ? configuration().readouts() : 0));
    if (with_baselines()) FANIN_TRY(plan());
    if (options_.timeline) return run_in_time();
    const auto rounds = FANIN_TRY(run_rounds(contenders(), options_.rounds, progress_));
    return report(rounds);
  }

private:
  // A moment that other machines have disturbed says so itself, and none is dropped.
  Result<json::Value> run_in_time() {
    Timeline timeline(*options_.timeline, options_.window.duration);
    const std::vector<Contender> alone{{"evb", [&] {
                                          return run_evb(options_.setup, options_.window,
                                                         options_.idle, timeline.watch());
                                        }}};
    const auto rounds = FANIN_TRY(run_rounds(alone, {.runs = 1, .stolen_max = 1}, progress_));
    json::Value result = report(rounds);
    result["timeline"] = timeline.report();
    return result;
  }

  [[nodiscard]] const config::Configuration& configuration() const {
    return options_.setup.configuration;
  }
  // What bounds event building, if it runs as fast as it can.
  [[nodiscard]] bool with_nxn() const {
    return options_.baselines && !options_.idle && !options_.timeline &&
           configuration().system.trigger_rate_hz == 0;
  }
  [[nodiscard]] bool with_baselines() const {
    return with_nxn() && options_.url.scheme == "tcp" && !options_.hosts;
  }

  // What the baselines and `nxn` have in common.
  [[nodiscard]] Spec baseline(std::string_view peer, std::uint64_t set, bool checksum) const {
    Spec spec;
    spec.pattern = Pattern::nxn;
    spec.peer = peer;
    spec.url = options_.url;
    spec.size = options_.setup.fragment_size;
    spec.page = usual_page;
    spec.set = set;
    spec.checksum = checksum;
    spec.senders = configuration().readouts();
    spec.receivers = configuration().builders();
    spec.congestion = options_.congestion;
    spec.wait = configuration().network.wait;
    return spec;
  }
  [[nodiscard]] bool checksum() const { return configuration().system.integrity; }

  Result<> tune_loop(Spec& loop) {
    const auto probe = [this](const Spec& spec) {
      auto sample = run_ends(bare_tcp_ends(spec), evb_probe);
      if (sample)
        say(progress_, fmt::format("{} with pages of {}, {}: {}", spec.peer, format_size(spec.page),
                                   name(spec.wait), format_bandwidth(bytes_per_s(*sample))));
      return sample;
    };
    probes_dropped_ += FANIN_TRY(
        tune(loop, loop.wait == net::WaitPolicy::poll, probe, options_.rounds, progress_));
    return {};
  }

  Result<> plan() {
    raw_ = baseline("raw", 0, false);
    fair_ = baseline("fair", options_.working_set, checksum());
    FANIN_TRY(tune_loop(raw_));
    return tune_loop(fair_);
  }

  [[nodiscard]] Contender contender(std::string what, Ends ends) const {
    return {std::move(what),
            [run = std::move(ends), window = options_.window] { return run_ends(run, window); }};
  }
  [[nodiscard]] Contender bare_loop(std::string what, Spec spec, std::uint64_t set,
                                    bool checksum) const {
    spec.set = set;
    spec.checksum = checksum;
    return contender(std::move(what), bare_tcp_ends(spec));
  }

  // What a readout unit puts into one message of one source.
  [[nodiscard]] std::uint64_t block_bytes() const {
    const std::uint64_t head = sizeof(wire::DataBlockHeader) +
                               configuration().system.batch_events * sizeof(wire::FragmentEntry);
    return std::max<std::uint64_t>(
        options_.setup.fragment_size,
        std::min<std::uint64_t>(configuration().system.batch_size / configuration().sources.size(),
                                configuration().system.data_page / 2 - head));
  }

  // As many streams through the message sockets, in messages of what a readout unit would send; or
  // with the same shaping.
  [[nodiscard]] Contender nxn() const {
    Spec spec = baseline("fanin", 0, false);
    const auto& shaping = configuration().system.shaping;
    if (shaping.on()) // larger ones are cut
      spec.size = std::min(spec.size, shaping.carrier - std::uint32_t{sizeof(RecordHeader)});
    spec.records = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        block_bytes() / (sizeof(RecordHeader) + options_.setup.fragment_size), 1,
        configuration().system.batch_events));
    spec.rails = configuration().system.rails;
    spec.shaping = shaping;
    return {"nxn", [this, spec]() -> Result<Sample> {
              if (options_.hosts)
                return run_on_hosts(spec, spec.senders, *options_.hosts, options_.window);
              const auto ends = FANIN_TRY(make_ends(spec));
              return run_ends(ends, options_.window);
            }};
  }

  // One bare stream across the links that all others share.
  [[nodiscard]] Contender link() const {
    Spec spec = baseline("raw", 0, false);
    spec.senders = spec.receivers = 1;
    spec.wait = net::WaitPolicy::block;
    return {std::string(link_contender), [this, spec] {
              return run_on_hosts(spec, configuration().readouts(), *options_.hosts,
                                  options_.window);
            }};
  }

  void add_ladder(std::vector<Contender>& list) const {
    list.push_back(bare_loop("crc", raw_, 0, checksum()));
    for (const std::uint64_t pages : {4U, 256U})
      list.push_back(
          bare_loop(fmt::format("fair-{}", pages), fair_, pages * fair_.page, checksum()));
  }

  // The same payload through one layer of fanin more.
  void add_layers(std::vector<Contender>& list) const {
    Spec spec = fair_;
    spec.wait = configuration().network.wait;
    list.push_back(contender("net", page_stream_ends(spec)));
    spec.page = block_bytes();
    list.push_back(contender("message", block_stream_ends(spec, configuration().system.data_page,
                                                          configuration().system.batch_events)));
  }

  [[nodiscard]] Contender evb(std::string_view what, const EvbSetup& setup) const {
    return {std::string(what),
            [this, &setup] { return run_evb(setup, options_.window, options_.idle); }};
  }

  [[nodiscard]] std::vector<Contender> contenders() const {
    std::vector<Contender> list;
    if (with_baselines()) {
      list.push_back(contender("raw", bare_tcp_ends(raw_)));
      if (options_.ladder) add_ladder(list);
      list.push_back(contender("fair", bare_tcp_ends(fair_)));
      if (options_.ladder) add_layers(list);
    }
    if (with_nxn() && options_.hosts) list.push_back(link());
    if (with_nxn()) list.push_back(nxn());
    list.push_back(evb("evb", options_.setup));
    if (options_.one_rail) list.push_back(evb(one_rail, *options_.one_rail));
    if (options_.throttle > 0) {
      list.push_back({std::string(throttled), [this] {
                        return run_throttled_evb(options_.setup, options_.window,
                                                 options_.throttle);
                      }});
    }
    if (options_.full_duplex) list.push_back(evb(full_duplex, *options_.full_duplex));
    return list;
  }

  [[nodiscard]] json::Value settings() const {
    const config::Configuration& own = configuration();
    json::Value object;
    object["rus"] = own.readouts();
    object["bus"] = own.builders();
    object["sources"] = own.sources.size();
    object["source_type"] = options_.setup.shape.receive ? "receive" : "emulator";
    object["rails"] = own.system.rails;
    object["url"] = options_.url.text();
    object["protocol"] = name(own.system.protocol);
    object["shaping"] = name(own.system.shaping.policy);
    object["fragment_size_bytes"] = options_.setup.fragment_size;
    if (options_.setup.shape.fragment_sigma != 0)
      object["fragment_sigma_bytes"] = options_.setup.shape.fragment_sigma;
    object["integrity"] = own.system.integrity ? "crc32c" : "none";
    object["wait"] = name(own.network.wait);
    object["wait_evm"] = name(options_.setup.manager_wait);
    object["congestion"] = options_.congestion;
    object["hosts"] = options_.hosts ? configuration().nodes.size() : 1;
    object["rate_hz"] = own.system.trigger_rate_hz;
    if (options_.requirement_hz) object["requirement_hz"] = *options_.requirement_hz;
    object["storage"] = own.run.output.empty() ? "discard" : "file";
    object["page_bytes"] = own.system.data_page;
    object["readout_buffer_bytes"] = own.buffers.readout;
    object["builder_buffer_bytes"] = own.buffers.builder;
    object["batch_events"] = own.system.batch_events;
    object["batch_bytes"] = own.system.batch_size;
    object["transfer_window_bytes"] = own.system.transfer_window;
    object["duration_s"] = std::chrono::duration<double>(options_.window.duration).count();
    object["runs"] = options_.rounds.runs;
    if (with_baselines()) {
      object["raw_page_bytes"] = raw_.page;
      object["raw_wait"] = name(raw_.wait);
      object["fair_page_bytes"] = fair_.page;
      object["fair_wait"] = name(fair_.wait);
      object["probes_dropped"] = probes_dropped_;
      object["fair_working_set_bytes"] = options_.working_set;
    }
    return object;
  }

  [[nodiscard]] json::Value describe(const Series& series, const std::vector<Series>& all) const {
    json::Value object = to_json(series);
    object["url"] = options_.url.text();
    object["size_bytes"] = options_.setup.fragment_size;
    object["per_node_bytes_per_s"] =
        rate(series, bytes_per_s).median / static_cast<double>(configuration().readouts());
    for (const char* baseline : {"raw", "fair", "nxn"})
      put_ratio(object, baseline, series, find(all, baseline), bytes_per_s);
    if (series.what == throttled) put_throttled(object, series);
    const std::size_t rails = series.what == one_rail ? 1 : configuration().system.rails;
    put_hosts(object, series, all,
              {.own = "evb",
               .senders = rails * configuration().readouts(),
               .receivers = rails * configuration().builders(),
               .testbed = options_.hosts && options_.hosts->testbed});
    if (series.what == "evb" || series.what == "nxn") put_share(object, port_, series);
    if (series.what == "evb") add_evb(object, series);
    return object;
  }

  static void put_throttled(json::Value& object, const Series& series) {
    for (const auto& [key, member] :
         {std::pair{"cpu_before", &Throttled::cpu_before},
          {"cpu_quota", &Throttled::quota},
          {"cpu_throttled", &Throttled::cpu},
          {"others_bytes_per_s_before", &Throttled::others_bytes_per_s_before},
          {"others_bytes_per_s", &Throttled::others_bytes_per_s}})
      put(object, key,
          rate(series, [member](const Sample& sample) { return sample.throttled.*member; }));
    put(object, "ratio_of_others", rate(series, [](const Sample& sample) {
          const Throttled& seen = sample.throttled;
          return seen.others_bytes_per_s_before > 0
                     ? seen.others_bytes_per_s / seen.others_bytes_per_s_before
                     : 0;
        }));
  }

  void add_evb(json::Value& object, const Series& series) const {
    put(object, "events_per_s", rate(series, events_per_s));
    put(object, "fragments_per_s", rate(series, messages_per_s));
    put(object, "batches_per_s", rate(series, [](const Sample& sample) {
          return static_cast<double>(sample.batches) / sample.seconds;
        }));
    if (const auto required = options_.requirement_hz) {
      const double ratio = rate(series, events_per_s).median / *required;
      object["required_bytes_per_s"] = *required * options_.setup.fragment_size *
                                       static_cast<double>(configuration().sources.size());
      object["ratio_to_requirement"] = ratio;
      object["reaches_requirement"] = ratio >= 1;
    }
    if (configuration().system.trigger_rate_hz == 0 || options_.idle) return;
    for (const auto& [key, fraction] :
         {std::pair{"p50_us", 0.5}, {"p99_us", 0.99}, {"p999_us", 0.999}}) {
      put(object, key, rate(series, [fraction](const Sample& sample) {
            return std::chrono::duration<double, std::micro>(sample.latency.quantile(fraction))
                .count();
          }));
    }
  }

  [[nodiscard]] json::Value report(const Rounds& rounds) const {
    json::Value result;
    result["bench"] = "evb";
    result["machine"] = describe_machine();
    result["settings"] = settings();
    put_port(result, port_);
    for (const auto& series : rounds.all) {
      json::Value row = describe(series, rounds.all);
      put_rounds(row, rounds);
      result["results"].append(std::move(row));
    }
    return result;
  }

  const EvbOptions& options_;
  const Progress& progress_;
  std::optional<doctor::Port> port_; // of RDMA
  Spec raw_; // the baselines, as fast as they are here
  Spec fair_;
  std::size_t probes_dropped_ = 0;
};

} // namespace

Result<json::Value> bench_evb(const EvbOptions& options, const Progress& progress) {
  return EvbBench{options, progress}.run();
}

std::string evb_table(const json::Value& result) {
  std::string text =
      fmt::format("{:<10} {:>11} {:>11} {:>11} {:>12} {:>7} {:>7} {:>7}   {}\n", "what", "median",
                  "min", "max", "rate", "/raw", "/fair", "/nxn", "cores used");
  const json::List& rows = result.at("results").list();
  const auto size_of = [](const json::Value& row) { return row.at("size_bytes").natural(); };
  const bool several = size_of(rows.front()) != size_of(rows.back());
  std::uint64_t size = 0;
  for (const auto& row : rows) {
    if (several && std::exchange(size, size_of(row)) != size_of(row))
      text += fmt::format("fragments of {}\n", format_size(size));
    std::string use;
    for (const auto& process : row.at("processes").list()) {
      use += fmt::format("{} {:.2f}  ", process.at("name").text(), process.at("cpu").real());
    }
    text += fmt::format("{:<10} {:>11} {:>11} {:>11} {:>12} {:>7} {:>7} {:>7}   {}\n",
                        row.at("what").text(), format_bandwidth(row.at("bytes_per_s").real()),
                        format_bandwidth(row.at("bytes_per_s_min").real()),
                        format_bandwidth(row.at("bytes_per_s_max").real()),
                        format_rate(row.at("messages_per_s").real()),
                        ratio_text(row.at("ratio_to_raw")), ratio_text(row.at("ratio_to_fair")),
                        ratio_text(row.at("ratio_to_nxn")), use);
    if (row.at("what").text() == "evb") {
      text += fmt::format("           {:.0f} events/s in {:.0f} batches/s\n",
                          row.at("events_per_s").real(), row.at("batches_per_s").real());
    }
    if (const json::Value* required = row.find("ratio_to_requirement"))
      text += fmt::format("           {:.2f} times the required {}{}\n", required->real(),
                          format_rate(result.at("settings").at("requirement_hz").real()),
                          row.at("reaches_requirement").boolean() ? "" : ": not reached");
    if (const auto share = share_text(row); !share.empty())
      text += fmt::format("           {} of {}\n", share, port_text(result));
    if (row.at("what").text() != link_contender && !row.at("ratio_to_link").is_null())
      text += fmt::format("           {:.3f} of what the links carry\n",
                          row.at("ratio_to_link").real());
    if (!row.at("ratio_to_one_rail").is_null())
      text += fmt::format("           {:.2f} times one rail\n", row.at("ratio_to_one_rail").real());
    if (row.find("ratio_of_others") != nullptr)
      text += fmt::format("           one with {:.3f} of {:.3f} cores; the others {:.3f} of their "
                          "rate\n",
                          row.at("cpu_quota").real(), row.at("cpu_before").real(),
                          row.at("ratio_of_others").real());
    if (!row.at("ratio_to_apart").is_null())
      text += fmt::format("           {:.3f} of what crosses the links with a host for each\n",
                          row.at("ratio_to_apart").real());
    if (const auto network = network_text(row); !network.empty())
      text += fmt::format("           {}\n", network);
    if (!row.at("p50_us").is_null()) {
      const bool stored = result.at("settings").at("storage").text() == "file";
      text += fmt::format(
          "           from trigger to commit{}: p50 {:.0f} us, p99 {:.0f} us, p99.9 {:.0f} us\n",
          stored ? "" : " (events discarded, not stored)", row.at("p50_us").real(),
          row.at("p99_us").real(), row.at("p999_us").real());
    }
    if (!row.at("remark").is_null()) text += "           " + row.at("remark").text() + "\n";
  }
  text += fallback_text(result);
  if (result.find("timeline") != nullptr) text += "\n" + timeline_table(result.at("timeline"));
  return text;
}

} // namespace fanin::bench
