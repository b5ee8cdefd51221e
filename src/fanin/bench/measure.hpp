// Contenders measured in turns: every round runs each of them once, so that what changes on the
// machine meanwhile changes all of them, and ratios are of runs next to each other.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/machine.hpp"
#include "fanin/bench/processes.hpp"

namespace fanin::bench {

struct Contender {
  std::string what; // as in results[].what
  std::function<Result<Sample>()> run;
};

struct Series {
  std::string what;
  std::vector<Sample> samples; // by round
};

struct Statistic {
  double median = 0;
  double min = 0;
  double max = 0;
};
// Of no values: zeros.
[[nodiscard]] Statistic statistic(std::vector<double> values);

using Rate = std::function<double(const Sample&)>;
[[nodiscard]] double events_per_s(const Sample& sample);
[[nodiscard]] double messages_per_s(const Sample& sample);
[[nodiscard]] double bytes_per_s(const Sample& sample);
[[nodiscard]] Statistic rate(const Series& series, const Rate& of);
// Round by round.
[[nodiscard]] Statistic ratio(const Series& series, const Series& baseline, const Rate& of);

// The contender that is one bare stream between two hosts of a list.
inline constexpr std::string_view link_contender = "link";
// The contender that is fanin (or evb) over one rail where it is measured over several.
inline constexpr std::string_view one_rail = "one rail";
// The contender that is fanin (or evb) with a sender and a receiver on each host.
inline constexpr std::string_view full_duplex = "full duplex";

[[nodiscard]] const Series* find(const std::vector<Series>& all, std::string_view what); // or null

// Adds `ratio_to_NAME`; null: there is no such baseline.
void put_ratio(json::Value& row, std::string_view name, const Series& series,
               const Series* baseline, const Rate& of);

// Of a measurement between hosts.
struct Links {
  std::string_view own; // the contender that is fanin as it is meant
  std::size_t senders = 1; // links, of all rails
  std::size_t receivers = 1;
  bool testbed = false;
};
// Adds what is known of a row:
// - `ratio_to_link`: bytes per second over those of one bare stream, times the links that senders
//   and receivers have in common: the smaller number.
// - `ratio_to_one_rail`, of fanin.
// - of full duplex: what all hosts have received over their links (`link_bytes_per_s`; what stays
// on
//   a host is left out), compared with fanin with a host for each (`ratio_to_apart`) and with the
//   links of one direction as one bare stream fills them (`ratio_to_link`).
// - on a testbed: `idle_cpu` (a share), `retransmitted` (TCP segments) and `switch_drops`
// (packets),
//   in one measurement; `loaded`, if the processors had too little idle time to say something about
//   the network.
void put_hosts(json::Value& row, const Series& series, const std::vector<Series>& all,
               const Links& links);
inline constexpr double idle_least = 0.25;
// That a testbed does not use cubic; empty: it does, or there is none.
[[nodiscard]] std::string fallback_text(const json::Value& result);
// The same as a line; empty: it was not measured on a testbed.
[[nodiscard]] std::string network_text(const json::Value& row);

// Human-readable progress, one line at a time.
using Progress = std::function<void(std::string_view)>; // empty: nobody wants it
inline void say(const Progress& progress, std::string_view text) {
  if (progress) progress(text);
}

struct RoundOptions {
  std::size_t runs = 5;
  // A round in which more than this share of the host's time was stolen is dropped and run again,
  // `runs` times at most.
  double stolen_max = 0.05;
  std::function<ProcessorTime()> processor_time = bench::processor_time; // another in tests
};
struct Rounds {
  std::vector<Series> all;
  std::size_t dropped = 0;
  double stolen = 0; // the most of a round that counts
};

// Errors: the first of any contender, with its name; exhausted (too many rounds had to be dropped).
[[nodiscard]] Result<Rounds> run_rounds(const std::vector<Contender>& contenders,
                                        const RoundOptions& options, const Progress& progress);

struct Fastest {
  std::size_t index = 0; // by messages per second; of equal ones the first
  std::size_t dropped = 0; // measurements
};
// Which of several settings of a baseline is the fastest. Each is measured once, and again as long
// as a round would be dropped, `options.runs` times at most. Errors: as of run_rounds().
[[nodiscard]] Result<Fastest> find_fastest(const std::vector<Contender>& settings,
                                           const RoundOptions& options, const Progress& progress);

// Adds `runs`, `runs_dropped` and `stolen_max`.
void put_rounds(json::Value& object, const Rounds& rounds);

// Adds `name`, `name`_min and `name`_max.
void put(json::Value& object, std::string_view name, const Statistic& statistic);
// Rates and what each process used, medians over the rounds.
[[nodiscard]] json::Value to_json(const Series& series);

} // namespace fanin::bench
