#include "fanin/fabric/crossbar_theory.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "fanin/base/assert.hpp"

namespace fanin::fabric {
namespace {

// How many heads want each output, in falling order. Outputs that none wants are left out.
using State = std::vector<std::uint8_t>;
using Chances = std::map<State, double>;

constexpr double settled = 1e-13;

// One more head, whose output is any of `ports` with the same chance.
Chances with_new_head(const Chances& before, std::size_t ports) {
  const double share = 1.0 / static_cast<double>(ports);
  Chances after;
  for (const auto& [state, chance] : before) {
    for (std::size_t i = 0; i < state.size(); ++i) {
      State next = state;
      ++next[i];
      std::ranges::sort(next, std::greater{});
      after[std::move(next)] += chance * share;
    }
    if (state.size() == ports) continue;
    State next = state;
    next.push_back(1);
    after[std::move(next)] += chance * share * static_cast<double>(ports - state.size());
  }
  return after;
}

// Each output that is wanted takes one cell; the FIFOs that gave it have new heads.
Chances after_slot(const Chances& before, std::size_t ports) {
  std::vector<Chances> waiting(ports); // by the number of heads that are left
  for (const auto& [state, chance] : before) {
    State left;
    std::size_t sum = 0;
    for (const std::uint8_t heads : state) {
      if (heads > 1) left.push_back(heads - 1);
      sum += heads - 1U;
    }
    waiting[sum][std::move(left)] += chance;
  }
  Chances all;
  for (std::size_t heads = 0; heads < ports; ++heads) {
    for (const auto& [state, chance] : waiting[heads]) all[state] += chance;
    all = with_new_head(all, ports);
  }
  return all;
}

double throughput(const Chances& chances, std::size_t ports) {
  double served = 0;
  for (const auto& [state, chance] : chances) served += chance * static_cast<double>(state.size());
  return served / static_cast<double>(ports);
}

} // namespace

double crossbar_saturation(std::size_t ports) {
  const bool in_range = ports >= 1 && ports <= crossbar_exact_max;
  FANIN_ASSERT(in_range);
  Chances chances{{State(ports, 1), 1.0}};
  double last = 0;
  double now = 1;
  while (std::abs(now - last) > settled) {
    chances = after_slot(chances, ports);
    last = std::exchange(now, throughput(chances, ports));
  }
  return now;
}

double crossbar_saturation_limit() { return 2 - std::sqrt(2.0); }

} // namespace fanin::fabric
