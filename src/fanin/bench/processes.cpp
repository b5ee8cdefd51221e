#include "fanin/bench/processes.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <new>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/machine.hpp"
#include "fanin/bench/network_state.hpp"
#include "fanin/bench/remote_process.hpp"

namespace fanin::bench {
namespace {

constexpr Duration look_every = std::chrono::milliseconds{2};
constexpr Duration start_patience = std::chrono::seconds{20};

volatile std::sig_atomic_t termination = 0;
std::function<void()>& wake_function() {
  static std::function<void()> function;
  return function;
}

void handle_termination(int) {
  termination = 1;
  if (wake_function()) wake_function()();
}

Time now() { return MonotonicClock{}.now(); }

void pause_for(Duration time) {
  const timespec wait{time.count() / 1'000'000'000, time.count() % 1'000'000'000};
  nanosleep(&wait, nullptr);
}

double cpu_seconds(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Of all threads the main one's switches; it runs the loop.
void read_status(pid_t pid, ProcessCounts& counts) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    const auto value = [&line](std::string_view key) -> const char* {
      return line.starts_with(key) ? line.c_str() + key.size() : nullptr;
    };
    if (const char* text = value("VmHWM:"))
      counts.peak_rss_bytes = std::strtoull(text, nullptr, 10) * 1024;
    if (const char* text = value("voluntary_ctxt_switches:"))
      counts.voluntary = std::strtoull(text, nullptr, 10);
    if (const char* text = value("nonvoluntary_ctxt_switches:"))
      counts.forced = std::strtoull(text, nullptr, 10);
  }
}

struct ClosePipe {
  void operator()(std::FILE* pipe) const { pclose(pipe); }
};

} // namespace

Result<std::string> output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, ClosePipe> pipe{popen(command.c_str(), "re")};
  if (!pipe) return fail_errno(ErrorKind::exhausted, command, errno);
  std::string output;
  std::array<char, 4096> buffer; // NOLINT: fread() fills it
  for (std::size_t got = 1; got > 0;) {
    got = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    output.append(buffer.data(), got);
  }
  return output;
}

bool termination_asked() { return termination != 0; }
void on_termination(std::function<void()> wake) { wake_function() = std::move(wake); }

void ProcessGroup::Unmap::operator()(ProcessStats* stats) const {
  stats->~ProcessStats();
  munmap(stats, sizeof(ProcessStats));
}

ProcessGroup::~ProcessGroup() { kill_all(); }

void ProcessGroup::kill_all() {
  for (auto& member : members_) {
    if (member.pid > 0) ::kill(member.pid, SIGKILL);
  }
  for (auto& member : members_) {
    if (member.pid > 0) waitpid(std::exchange(member.pid, -1), nullptr, 0);
    member.there.reset();
  }
}

void ProcessGroup::run_child(const Body& body, ProcessStats& stats) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, SIG_IGN); // the measuring process decides
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGTERM, handle_termination);
  const Result<> result = body(stats);
  if (!result) stats.say(result.error().text);
  stats.state = result ? ProcessStats::State::ended : ProcessStats::State::failed;
  _exit(result ? 0 : 1);
}

Result<ProcessGroup::Stats> ProcessGroup::make_stats() {
  void* memory = mmap(nullptr, sizeof(ProcessStats), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(ErrorKind::exhausted, "memory for a process", errno);
  return Stats{new (memory) ProcessStats};
}

Result<std::size_t> ProcessGroup::start(std::string name, const Body& body) {
  auto stats = FANIN_TRY(make_stats());
  const pid_t pid = fork();
  if (pid < 0) return fail_errno(ErrorKind::exhausted, "fork", errno);
  if (pid == 0) {
    (void)prctl(PR_SET_NAME, name.c_str()); // as top and perf show it
    run_child(body, *stats);
  }
  members_.push_back({std::move(name), pid, std::move(stats)});
  return members_.size() - 1;
}

ProcessGroup::ProcessGroup() = default;

bool ProcessGroup::Member::alive() const { return there ? there->alive() : pid > 0; }

Result<> ProcessGroup::check() {
  for (auto& member : members_) FANIN_TRY(check(member));
  return {};
}

Result<std::size_t> ProcessGroup::start_on(const executive::Host& host, std::string name,
                                           const json::Value& task) {
  auto there = FANIN_TRY(RemoteProcess::start(host, task));
  return start_there(std::move(name), std::move(there));
}

Result<std::size_t> ProcessGroup::start_there(std::string name,
                                              std::unique_ptr<RemoteProcess> process) {
  auto stats = FANIN_TRY(make_stats());
  members_.push_back({std::move(name), -1, std::move(stats), std::move(process)});
  return members_.size() - 1;
}

Result<> ProcessGroup::check(Member& member) {
  if (member.there) FANIN_TRY(member.there->check(*member.stats));
  if (member.stats->state.load() == ProcessStats::State::failed) {
    return fail(ErrorKind::internal, fmt::format("{}: {}", member.name, member.stats->text.data()));
  }
  if (member.pid <= 0) return {};
  int status = 0;
  if (waitpid(member.pid, &status, WNOHANG) != member.pid) return {};
  member.pid = -1;
  if (!WIFSIGNALED(status)) return {};
  return fail(ErrorKind::internal,
              fmt::format("{} was ended by signal {}", member.name, WTERMSIG(status)));
}

Result<> ProcessGroup::wait_until(std::size_t index, ProcessStats::State state) {
  const Time limit = now() + start_patience;
  while (members_[index].stats->state.load() < state) {
    FANIN_TRY(check());
    const Member& member = members_[index];
    if (!member.alive() || now() > limit) {
      const std::string where =
          member.there ? fmt::format(" on host {}", member.there->host()) : "";
      return fail(ErrorKind::internal, fmt::format("{}{} does not start", member.name, where));
    }
    pause_for(look_every);
  }
  return check();
}

struct ProcessGroup::Snapshot {
  Time at;
  ProcessorTime processor;
  std::vector<ProcessCounts> processes;
  [[nodiscard]] bool has_messages() const {
    return std::ranges::any_of(processes, [](const auto& one) { return one.messages > 0; });
  }
};

ProcessCounts ProcessGroup::counts(std::size_t index) const {
  const Member& member = members_[index];
  const ProcessStats& stats = *member.stats;
  ProcessCounts counts;
  counts.at = now();
  counts.pid = member.pid;
  counts.cpu_s = member.pid < 0 ? 0 : cpu_seconds(member.pid);
  read_status(member.pid, counts);
  counts.retransmitted = retransmitted_here();
  counts.link_bytes = link_bytes_here();
  counts.batches = stats.batches.get();
  counts.events = stats.events.get();
  counts.messages = stats.messages.get();
  counts.bytes = stats.bytes.get();
  counts.load_bytes = stats.load_bytes.get();
  return counts;
}

Result<pid_t> ProcessGroup::pid_of(std::size_t index) {
  const auto here = FANIN_TRY(sample());
  return static_cast<pid_t>(here.processes[index].pid);
}

// Of all at about the same time.
Result<ProcessGroup::Snapshot> ProcessGroup::sample() {
  Snapshot snapshot;
  for (auto& member : members_) {
    if (member.there) member.there->ask();
  }
  snapshot.at = now();
  snapshot.processor = processor_time();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (!member.there) {
      snapshot.processes.push_back(counts(i));
      continue;
    }
    const auto counted = FANIN_TRY(member.there->answer(*member.stats));
    snapshot.processes.push_back(counted);
  }
  return snapshot;
}

// Each process counts between two times of its own; what they have counted is summed for one second
// of each, and given for the time between the snapshots.
Sample ProcessGroup::difference(const Snapshot& before, const Snapshot& after) const {
  Sample sample;
  sample.seconds = std::chrono::duration<double>(after.at - before.at).count();
  sample.idle = share_between(before.processor, after.processor, &ProcessorTime::idle);
  std::set<std::string> hosts; // each counts once, whatever runs there
  for (std::size_t i = 0; i < before.processes.size(); ++i) {
    const ProcessCounts& first = before.processes[i];
    const ProcessCounts& last = after.processes[i];
    const double own = std::chrono::duration<double>(last.at - first.at).count();
    if (own <= 0) continue; // it has ended
    const auto add = [&](std::uint64_t Traffic::* which) {
      const auto counted = static_cast<double>(last.*which - first.*which);
      sample.*which += static_cast<std::uint64_t>(std::llround(counted * sample.seconds / own));
    };
    for (const auto which : {&Traffic::batches, &Traffic::events, &Traffic::messages,
                             &Traffic::bytes, &Traffic::load_bytes})
      add(which);
    if (members_[i].there && hosts.insert(members_[i].there->host()).second) {
      sample.retransmitted += last.retransmitted - first.retransmitted;
      add(&Traffic::link_bytes);
    }
    const auto switches = [&](std::uint64_t ProcessCounts::* which) {
      return static_cast<double>(last.*which - first.*which) / own;
    };
    sample.processes.push_back({.name = members_[i].name,
                                .cpu = (last.cpu_s - first.cpu_s) / own,
                                .bytes_per_s = static_cast<double>(last.bytes - first.bytes) / own,
                                .voluntary_switches_per_s = switches(&ProcessCounts::voluntary),
                                .forced_switches_per_s = switches(&ProcessCounts::forced),
                                .peak_rss_bytes = last.peak_rss_bytes});
  }
  return sample;
}

// Samples at multiples of the period, whatever each of them takes.
Result<> ProcessGroup::watch_for(Duration duration, const Snapshot& before, const Watch& watch) {
  Snapshot last = before;
  for (Time next = before.at + watch.every;
       watch.every > Duration{} && next <= before.at + duration; next += watch.every) {
    pause_for(std::max(Duration{}, next - now()));
    auto here = FANIN_TRY(sample());
    watch.on_sample(here.at - before.at, difference(last, here));
    last = std::move(here);
    FANIN_TRY(check());
  }
  pause_for(std::max(Duration{}, before.at + duration - now()));
  return {};
}

Result<Sample> ProcessGroup::measure(Duration warmup, Duration duration, bool wait_for_messages,
                                     const Watch& watch) {
  const Time limit = now() + start_patience;
  while (wait_for_messages) {
    const auto here = FANIN_TRY(sample());
    if (here.has_messages()) break;
    FANIN_TRY(check());
    if (now() > limit) return fail(ErrorKind::internal, "nothing arrives");
    pause_for(look_every);
  }
  pause_for(warmup);
  const auto dropped = FANIN_TRY(drops());
  const auto before = FANIN_TRY(sample());
  FANIN_TRY(watch_for(duration, before, watch));
  const auto after = FANIN_TRY(sample());
  FANIN_TRY(check());
  const auto dropped_then = FANIN_TRY(drops());
  Sample measured = difference(before, after);
  measured.switch_drops = dropped_then - dropped;
  return measured;
}

Result<std::uint64_t> ProcessGroup::drops() const {
  if (switch_words_.empty()) return 0;
  return bench::switch_drops(switch_words_);
}

void ProcessGroup::terminate(std::size_t index) const {
  if (members_[index].there) members_[index].there->terminate();
  if (members_[index].pid > 0) ::kill(members_[index].pid, SIGTERM);
}

Result<> ProcessGroup::wait_until_ended(Duration patience, std::optional<std::size_t> only) {
  const Time limit = now() + patience;
  while (true) {
    FANIN_TRY(check());
    std::string left;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (only.value_or(i) == i && members_[i].alive())
        left += (left.empty() ? "" : ", ") + members_[i].name;
    }
    if (left.empty()) return {};
    if (now() > limit) {
      kill_all();
      return fail(ErrorKind::internal, left + " did not end");
    }
    pause_for(look_every);
  }
}

} // namespace fanin::bench
