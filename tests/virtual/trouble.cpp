#include "virtual/trouble.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "fanin/builder/control/control_client.hpp"

namespace fanin::testing {

using namespace std::chrono_literals;

namespace {
constexpr Duration slowest = 100ms;
// A node that is paused has been silent for up to so long before: it reports now and then, and what
// it said last may be slow.
constexpr Duration silent_before = builder::status_period + 2 * slowest;
constexpr Duration paths_back = 1s; // readout units are told twice to try again
} // namespace

Trouble::Trouble(VirtualSystem& system, const builder::System& agreed, Random& random,
                 bool spare_readouts)
    : system_(system),
      agreed_(agreed),
      random_(random),
      spare_readouts_(spare_readouts),
      up_(system.readouts() + system.builders(), true),
      silent_until_(up_.size()),
      given_up_(up_.size()) {}

void Trouble::limit_links(std::uint64_t rate) {
  link_rate_ = rate;
  for (std::size_t b = 0; b < system_.builders(); ++b) system_.builder_node(b).limit_rate(rate);
}

void Trouble::step() {
  const std::size_t r = random_.below(system_.readouts());
  const std::size_t b = random_.below(system_.builders());
  switch (random_.below(13)) {
  case 0:
  case 1: spare_readouts_ ? pause(r, 1000ms) : kill_or_start(r); break;
  case 2: pause(r, spare_readouts_ ? 1000ms : 4000ms); break;
  case 3: system_.readout_node(r).disconnect(system_.builder_node(b)); break;
  case 4:
    run_until_idle();
    system_.readout_node(r).disconnect(system_.manager_node());
    system_.run_for(50ms); // a pause now would outlast the grace
    break;
  case 5: break_paths(); break;
  case 6: slow_down(); break;
  case 7: pause(system_.readouts() + b, 4000ms); break;
  case 8:
    system_.builder_node(b).disconnect(system_.manager_node());
    ++given_up_[system_.readouts() + b];
    break;
  case 10: trouble_names(r, b); break;
  case 9:
    if (up_[system_.readouts() + b] && system_.sink(b) != nullptr) { // a slow disk
      system_.sink(b)->set_commit_delay(Duration{random_.below(300'000'000)});
    }
    break;
  default: kill_or_start(system_.readouts() + b);
  }
}

void Trouble::step_more(Random& random) {
  const std::size_t r = random.below(system_.readouts());
  const std::size_t b = random.below(system_.builders());
  switch (random.below(6)) {
  case 0: // nobody is judged by that time
    system_.manager_node().freeze();
    unanswered(run_for(4000ms, random));
    system_.manager_node().thaw();
    break;
  case 1: break_control(random, random.below(up_.size())); break;
  case 2: delay_control(random); break;
  case 3: narrow(random, b); break;
  case 4: break_both(random, r, b); break;
  default:
    run_until_idle();
    system_.readout_node(r).disconnect(system_.builder_node(b));
    system_.readout_node(r).disconnect(system_.manager_node());
    system_.run_for(50ms);
  }
}

void Trouble::all_up() {
  for (std::size_t i = 0; i < up_.size(); ++i) {
    if (!up_[i]) kill_or_start(i);
  }
  for (std::size_t b = 0; b < system_.builders(); ++b) {
    if (system_.sink(b) != nullptr) system_.sink(b)->set_commit_delay(1ms);
  }
}

std::string Trouble::unexplained(const builder::RunSummary& summary) const {
  std::string all;
  for (std::size_t i = 0; i < up_.size(); ++i) {
    const auto& node = summary.nodes[i];
    const bool away = !node.alive && given_up_[i] == 0 && !end_report_lost_;
    if (node.incarnations <= 1 + given_up_[i] && !away) continue;
    all += fmt::format("{} was here {} times, {} explained{}\n", node.name, node.incarnations,
                       1 + given_up_[i], node.alive ? "" : ", and is away");
  }
  return all;
}

net::VirtualNode& Trouble::node(std::size_t i) {
  return i < system_.readouts() ? system_.readout_node(i)
                                : system_.builder_node(i - system_.readouts());
}

void Trouble::kill_or_start(std::size_t i) {
  const bool readout = i < system_.readouts();
  const std::size_t index = readout ? i : i - system_.readouts();
  if (up_[i]) {
    readout ? system_.kill_readout(index) : system_.kill_builder(index);
    ++given_up_[i];
  } else {
    readout ? system_.start_readout(index) : system_.start_builder(index);
  }
  up_[i] = !up_[i];
}

void Trouble::pause(std::size_t i, Duration longest) {
  let_speak(i);
  node(i).freeze();
  const Duration time = run_for(longest);
  node(i).thaw();
  unheard(i, time);
}

// Nothing of it came for so long.
void Trouble::unheard(std::size_t i, Duration time) {
  silent_until_[i] = system_.world().now();
  if (time + silent_before > agreed_.dead_after) ++given_up_[i];
  unanswered(i, time);
}

// With several rails a node that gets no answer tries the next one, again and again: a builder unit
// begins anew with each.
void Trouble::unanswered(std::size_t i, Duration time) {
  if (system_.control_rails() == 1 || i < system_.readouts()) return;
  given_up_[i] += static_cast<std::uint64_t>((time + silent_before) / agreed_.control_patience());
}

void Trouble::unanswered(Duration time) {
  for (std::size_t i = 0; i < up_.size(); ++i) unanswered(i, time);
}

void Trouble::break_rail(Random& random) {
  run_until_idle();
  const auto port = static_cast<std::uint16_t>(1 + random.below(system_.control_rails()));
  const std::uint64_t ways = 1 + random.below(3);
  const std::size_t only = random.below(2 * up_.size()); // beyond them: all
  Paths broken;
  for (std::size_t i = 0; i < up_.size(); ++i) {
    if (only < up_.size() && only != i) continue;
    let_speak(i);
    if ((ways & 1) != 0) broken.push_back({&system_.manager_node(), &node(i), port});
    if ((ways & 2) != 0) broken.push_back({&node(i), &system_.manager_node(), port});
    if (i >= system_.readouts()) given_up_[i] += 2; // and when it is repaired
  }
  with(broken, Duration{random.below(6'000'000'000)});
  end_report_lost_ = end_report_lost_ || system_.ended_nodes() > 0;
}

// Two silences are not one long one.
void Trouble::let_speak(std::size_t i) {
  if (system_.world().now() < silent_until_[i] + silent_before) system_.run_for(silent_before);
}

void Trouble::with(const Paths& broken, Duration time) {
  for (const Path& path : broken) path.from->break_path(*path.to, path.port);
  system_.run_for(time);
  for (const Path& path : broken) path.from->repair_path(*path.to, path.port);
}

// In one direction or both, over one rail or both, some at a time.
void Trouble::break_paths() {
  run_until_idle();
  // Paths that nothing came through before have to come back first.
  const auto silent_until = std::ranges::max(silent_until_);
  if (system_.world().now() < std::max(silent_until, delayed_until_) + paths_back) {
    system_.run_for(paths_back);
  }
  Paths broken;
  for (std::uint64_t i = 1 + random_.below(4); i > 0; --i) {
    net::VirtualNode& readout = system_.readout_node(random_.below(system_.readouts()));
    net::VirtualNode& builder = system_.builder_node(random_.below(system_.builders()));
    const auto port = static_cast<std::uint16_t>(random_.below(3));
    const std::uint64_t ways = 1 + random_.below(3);
    if ((ways & 1) != 0) broken.push_back({&readout, &builder, port});
    if ((ways & 2) != 0) broken.push_back({&builder, &readout, port});
  }
  with(broken, Duration{random_.below(1'500'000'000)}); // less than dead_after
}

// Between the event manager and a node, in one direction or both: for many deadlines, and longer
// than dead_after only where the node may be given up.
void Trouble::break_control(Random& random, std::size_t i) {
  run_until_idle(); // a connection that is just coming back is needed within the grace
  let_speak(i);
  const bool spared = spare_readouts_ && i < system_.readouts();
  const Duration time{random.below(spared ? 1'200'000'000 : 4'000'000'000)};
  const std::uint64_t ways = 1 + random.below(3);
  Paths broken;
  if ((ways & 1) != 0) broken.push_back({&system_.manager_node(), &node(i), 0});
  if ((ways & 2) != 0) broken.push_back({&node(i), &system_.manager_node(), 0});
  with(broken, time);
  unheard(i, time);
}

// A path for data is dead while a host stands still, or the disk.
void Trouble::break_both(Random& random, std::size_t r, std::size_t b) {
  const auto port = static_cast<std::uint16_t>(random.below(3));
  Paths broken{{&system_.readout_node(r), &system_.builder_node(b), port}};
  if (random.chance(1, 2)) {
    broken.push_back({&system_.builder_node(b), &system_.readout_node(r), port});
  }
  const std::size_t i = random.below(up_.size() + 1);
  const Duration time{random.below(1'000'000'000)};
  if (i < up_.size()) let_speak(i);
  net::VirtualNode& paused = i == up_.size() ? system_.manager_node() : node(i);
  paused.freeze();
  with(broken, time);
  paused.thaw();
  if (i < up_.size()) silent_until_[i] = system_.world().now();
}

// Longer than event.deadline.
void Trouble::delay_control(Random& random) {
  const std::size_t i = random.below(up_.size() + 1);
  net::VirtualNode& slow = i == up_.size() ? system_.manager_node() : node(i);
  const Duration delay{random.below(600'000'000)};
  slow.slow_down(delay);
  if (i == up_.size()) {
    unanswered(2 * delay);
  } else {
    unanswered(i, 2 * delay);
  }
  run_for(1000ms, random);
  slow.slow_down({});
  delayed_until_ = std::max(delayed_until_, system_.world().now() + delay);
}

// A message takes longer than event.deadline, and a second at most.
void Trouble::narrow(Random& random, std::size_t b) {
  const std::uint64_t drawn = 10'000 + random.below(200'000);
  system_.builder_node(b).limit_rate(std::max<std::uint64_t>(drawn, agreed_.message_max()));
  run_for(1500ms, random);
  system_.builder_node(b).limit_rate(link_rate_);
}

// Answers take a while, from now on; or there are none for a moment. What was known before goes
// on.
void Trouble::trouble_names(std::size_t r, std::size_t b) {
  net::VirtualNode& asks = node(random_.chance(3, 4) ? r : system_.readouts() + b);
  if (!asks.alive()) return;
  if (random_.chance(1, 2)) {
    asks.name_service().take(Duration{random_.below(500'000'000)});
    return;
  }
  asks.name_service().fail(random_.chance(1, 2) ? ErrorKind::not_found : ErrorKind::disconnected);
  system_.readout_node(r).disconnect(system_.builder_node(b));
  run_for(1000ms); // with the slow answer less than dead_after
  if (asks.alive()) asks.name_service().fail({});
}

void Trouble::slow_down() {
  const std::size_t i = random_.below(up_.size() + 1);
  net::VirtualNode& slow = i == up_.size() ? system_.manager_node() : node(i);
  slow.slow_down(Duration{random_.below(static_cast<std::uint64_t>(slowest.count()))});
  run_for(500ms);
  slow.slow_down({});
  slow_until_ = system_.world().now();
}

Duration Trouble::run_for(Duration longest, Random& random) {
  const Duration time{random.below(static_cast<std::uint64_t>(longest.count()))};
  system_.run_for(time);
  return time;
}

// What a slow node has said is still under way, and the loss of its connection comes behind it.
void Trouble::run_until_idle() {
  if (system_.world().now() < slow_until_ + slowest) system_.run_for(slowest);
  const Time now = system_.world().now();
  if (now < delayed_until_) system_.run_for(delayed_until_ - now);
}

} // namespace fanin::testing
