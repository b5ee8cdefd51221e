#include "fanin/bench/measure.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

namespace fanin::bench {
namespace {

double per_second(std::uint64_t count, const Sample& sample) {
  return sample.seconds > 0 ? static_cast<double>(count) / sample.seconds : 0;
}

json::Value processes_of(const Series& series) {
  json::Value list{json::List{}};
  if (series.samples.empty()) return list;
  for (std::size_t i = 0; i < series.samples.front().processes.size(); ++i) {
    const auto median = [&](auto member) {
      std::vector<double> values;
      for (const auto& sample : series.samples) {
        values.push_back(static_cast<double>(sample.processes[i].*member));
      }
      return statistic(std::move(values)).median;
    };
    json::Value process;
    process["name"] = series.samples.front().processes[i].name;
    process["cpu"] = median(&ProcessUse::cpu);
    process["waits_per_s"] = median(&ProcessUse::voluntary_switches_per_s);
    process["preempted_per_s"] = median(&ProcessUse::forced_switches_per_s);
    process["peak_rss_bytes"] = median(&ProcessUse::peak_rss_bytes);
    list.append(std::move(process));
  }
  return list;
}

Result<Sample> measure_once(const Contender& contender, const RoundOptions& options) {
  const ProcessorTime before = options.processor_time();
  auto sample = contender.run();
  if (!sample) return fail(sample.error().kind, contender.what + ": " + sample.error().text);
  sample->stolen = share_between(before, options.processor_time(), &ProcessorTime::stolen);
  return sample;
}

std::string dropped_text(double stolen) {
  return fmt::format("dropped: {:.1f} % of the time was stolen", 100 * stolen);
}

std::unexpected<Error> too_many_dropped(std::size_t dropped, std::size_t all, std::string_view what,
                                        const RoundOptions& options) {
  return fail(ErrorKind::exhausted,
              fmt::format("{} of {} {} had more than {:.0f} % of their time stolen: other machines "
                          "have this host's processors",
                          dropped, all, what, 100 * options.stolen_max));
}

double link_bytes_per_s(const Sample& sample) { return per_second(sample.link_bytes, sample); }

Statistic divided(const Statistic& statistic, std::size_t by) {
  const auto divisor = static_cast<double>(by);
  return {statistic.median / divisor, statistic.min / divisor, statistic.max / divisor};
}

void put_testbed(json::Value& row, const Series& series) {
  const Statistic idle = rate(series, [](const Sample& sample) { return sample.idle; });
  put(row, "idle_cpu", idle);
  put(row, "retransmitted",
      rate(series, [](const Sample& sample) { return static_cast<double>(sample.retransmitted); }));
  put(row, "switch_drops",
      rate(series, [](const Sample& sample) { return static_cast<double>(sample.switch_drops); }));
  row["loaded"] = idle.median < idle_least;
}

} // namespace

Statistic statistic(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

double events_per_s(const Sample& sample) { return per_second(sample.events, sample); }
double messages_per_s(const Sample& sample) { return per_second(sample.messages, sample); }
double bytes_per_s(const Sample& sample) { return per_second(sample.bytes, sample); }

Statistic rate(const Series& series, const Rate& of) {
  std::vector<double> values;
  for (const auto& sample : series.samples) values.push_back(of(sample));
  return statistic(std::move(values));
}

std::string fallback_text(const json::Value& result) {
  const std::string congestion = result.at("settings").at("congestion").text();
  const bool on_testbed = std::ranges::any_of(
      result.at("results").list(), [](const json::Value& row) { return row.find("idle_cpu"); });
  if (!on_testbed || congestion == "cubic") return {};
  return fmt::format("congestion control {}, not cubic, with which others measure: the testbed has "
                     "what this host allows (sysctl net.ipv4.tcp_allowed_congestion_control)\n",
                     congestion);
}

std::string network_text(const json::Value& row) {
  if (row.at("idle_cpu").is_null()) return {};
  return fmt::format(
      "{:.0f} % of the processors idle{}, {:.0f} segments sent again, {:.0f} packets "
      "dropped by the switch",
      100 * row.at("idle_cpu").real(),
      row.at("loaded").boolean() ? " (too few: take a lower rate)" : "",
      row.at("retransmitted").real(), row.at("switch_drops").real());
}

Statistic ratio(const Series& series, const Series& baseline, const Rate& of) {
  std::vector<double> values;
  for (std::size_t i = 0; i < std::min(series.samples.size(), baseline.samples.size()); ++i) {
    const double base = of(baseline.samples[i]);
    if (base > 0) values.push_back(of(series.samples[i]) / base);
  }
  return statistic(std::move(values));
}

Result<Rounds> run_rounds(const std::vector<Contender>& contenders, const RoundOptions& options,
                          const Progress& progress) {
  Rounds rounds;
  for (const auto& contender : contenders) rounds.all.push_back({contender.what, {}});
  for (std::size_t run = 0; run < options.runs;) {
    std::vector<Sample> samples;
    double stolen = 0;
    for (const auto& contender : contenders) {
      auto sample = FANIN_TRY(measure_once(contender, options));
      stolen = std::max(stolen, sample.stolen);
      say(progress, fmt::format("{}/{} {:<16} {:>10} {:>12} {}", run + 1, options.runs,
                                contender.what, format_bandwidth(bytes_per_s(sample)),
                                format_rate(messages_per_s(sample)), sample.remark));
      samples.push_back(std::move(sample));
    }
    if (stolen > options.stolen_max) {
      say(progress, dropped_text(stolen));
      if (++rounds.dropped <= options.runs) continue;
      return too_many_dropped(rounds.dropped, rounds.dropped + run, "rounds", options);
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
      rounds.all[i].samples.push_back(std::move(samples[i]));
    }
    rounds.stolen = std::max(rounds.stolen, stolen);
    ++run;
  }
  return rounds;
}

Result<Fastest> find_fastest(const std::vector<Contender>& settings, const RoundOptions& options,
                             const Progress& progress) {
  Fastest fastest;
  double best_rate = -1;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    for (std::size_t dropped = 0;;) {
      const auto sample = FANIN_TRY(measure_once(settings[i], options));
      if (sample.stolen <= options.stolen_max) {
        if (messages_per_s(sample) > best_rate) fastest.index = i;
        best_rate = std::max(best_rate, messages_per_s(sample));
        break;
      }
      say(progress, dropped_text(sample.stolen));
      ++fastest.dropped;
      if (++dropped > options.runs)
        return too_many_dropped(dropped, dropped, "probes of a baseline", options);
    }
  }
  return fastest;
}

void put_rounds(json::Value& object, const Rounds& rounds) {
  object["runs"] = rounds.all.empty() ? 0 : rounds.all.front().samples.size();
  object["runs_dropped"] = rounds.dropped;
  object["stolen_max"] = rounds.stolen;
}

void put(json::Value& object, std::string_view name, const Statistic& statistic) {
  object[name] = statistic.median;
  object[std::string(name) + "_min"] = statistic.min;
  object[std::string(name) + "_max"] = statistic.max;
}

const Series* find(const std::vector<Series>& all, std::string_view what) {
  const auto found = std::ranges::find(all, what, &Series::what);
  return found == all.end() ? nullptr : &*found;
}

void put_ratio(json::Value& row, std::string_view name, const Series& series,
               const Series* baseline, const Rate& of) {
  const std::string key = fmt::format("ratio_to_{}", name);
  if (baseline == nullptr) {
    row[key] = json::Value{};
  } else {
    put(row, key, ratio(series, *baseline, of));
  }
}

void put_hosts(json::Value& row, const Series& series, const std::vector<Series>& all,
               const Links& links) {
  const Series* const link = find(all, link_contender);
  const bool both_ways = series.what == full_duplex;
  const Rate of = both_ways ? link_bytes_per_s : bytes_per_s;
  if (link != nullptr) {
    const std::size_t used = series.what == link_contender ? 1
                             : both_ways                   ? links.senders
                                         : std::min(links.senders, links.receivers);
    put(row, "ratio_to_link", divided(ratio(series, *link, of), used));
  }
  const Series* const one = find(all, one_rail);
  if (series.what == links.own && one != nullptr)
    put_ratio(row, "one_rail", series, one, bytes_per_s);
  if (both_ways) {
    put(row, "link_bytes_per_s", rate(series, of));
    put_ratio(row, "apart", series, find(all, links.own), of);
  }
  if (links.testbed) put_testbed(row, series);
}

json::Value to_json(const Series& series) {
  json::Value object;
  object["what"] = series.what;
  put(object, "messages_per_s", rate(series, messages_per_s));
  put(object, "bytes_per_s", rate(series, bytes_per_s));
  if (std::ranges::any_of(series.samples,
                          [](const auto& sample) { return sample.load_bytes > 0; })) {
    put(object, "load_bytes_per_s",
        rate(series, [](const Sample& sample) { return per_second(sample.load_bytes, sample); }));
  }
  object["processes"] = processes_of(series);
  std::string remark;
  for (const auto& sample : series.samples) {
    if (!sample.remark.empty()) remark = sample.remark;
  }
  if (!remark.empty()) object["remark"] = remark;
  return object;
}

} // namespace fanin::bench
