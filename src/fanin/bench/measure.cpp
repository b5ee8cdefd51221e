#include "fanin/bench/measure.hpp"

#include <algorithm>

#include <fmt/format.h>

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
    process["held_bytes"] = median(&ProcessUse::held_bytes);
    process["peak_rss_bytes"] = median(&ProcessUse::peak_rss_bytes);
    list.append(std::move(process));
  }
  return list;
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

Statistic ratio(const Series& series, const Series& baseline, const Rate& of) {
  std::vector<double> values;
  for (std::size_t i = 0; i < std::min(series.samples.size(), baseline.samples.size()); ++i) {
    const double base = of(baseline.samples[i]);
    if (base > 0) values.push_back(of(series.samples[i]) / base);
  }
  return statistic(std::move(values));
}

Result<std::vector<Series>> run_rounds(const std::vector<Contender>& contenders, std::size_t rounds,
                                       const Progress& progress) {
  std::vector<Series> all;
  for (const auto& contender : contenders) all.push_back({contender.what, {}});
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      auto sample = contenders[i].run();
      if (!sample) {
        return fail(sample.error().kind, contenders[i].what + ": " + sample.error().text);
      }
      if (progress) {
        progress(fmt::format("{}/{} {:<16} {:>10} {:>12} {}", round + 1, rounds, contenders[i].what,
                             format_bandwidth(bytes_per_s(*sample)),
                             format_rate(messages_per_s(*sample)), sample->remark));
      }
      all[i].samples.push_back(std::move(*sample));
    }
  }
  return all;
}

void put(json::Value& object, std::string_view name, const Statistic& statistic) {
  object[name] = statistic.median;
  object[std::string(name) + "_min"] = statistic.min;
  object[std::string(name) + "_max"] = statistic.max;
}

json::Value to_json(const Series& series) {
  json::Value object;
  object["what"] = series.what;
  put(object, "messages_per_s", rate(series, messages_per_s));
  put(object, "bytes_per_s", rate(series, bytes_per_s));
  object["processes"] = processes_of(series);
  std::string remark;
  for (const auto& sample : series.samples) {
    if (!sample.remark.empty()) remark = sample.remark;
  }
  if (!remark.empty()) object["remark"] = remark;
  return object;
}

} // namespace fanin::bench
