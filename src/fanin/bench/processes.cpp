#include "fanin/bench/processes.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <new>
#include <utility>

#include <fmt/format.h>

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

struct Status {
  std::uint64_t voluntary = 0;
  std::uint64_t forced = 0;
  std::uint64_t peak_rss_bytes = 0;
};

// Of all threads the main one's switches; it runs the loop.
Status read_status(pid_t pid) {
  Status status;
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    const auto value = [&line](std::string_view key) -> const char* {
      return line.starts_with(key) ? line.c_str() + key.size() : nullptr;
    };
    if (const char* text = value("VmHWM:"))
      status.peak_rss_bytes = std::strtoull(text, nullptr, 10) * 1024;
    if (const char* text = value("voluntary_ctxt_switches:"))
      status.voluntary = std::strtoull(text, nullptr, 10);
    if (const char* text = value("nonvoluntary_ctxt_switches:"))
      status.forced = std::strtoull(text, nullptr, 10);
  }
  return status;
}

} // namespace

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

Result<std::size_t> ProcessGroup::start(std::string name, const Body& body) {
  void* memory = mmap(nullptr, sizeof(ProcessStats), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(ErrorKind::exhausted, "memory for a process", errno);
  std::unique_ptr<ProcessStats, Unmap> stats{new (memory) ProcessStats};
  const pid_t pid = fork();
  if (pid < 0) return fail_errno(ErrorKind::exhausted, "fork", errno);
  if (pid == 0) {
    (void)prctl(PR_SET_NAME, name.c_str()); // as top and perf show it
    run_child(body, *stats);
  }
  members_.push_back({std::move(name), pid, std::move(stats)});
  return members_.size() - 1;
}

Result<> ProcessGroup::check_alive() {
  for (auto& member : members_) {
    const auto state = member.stats->state.load();
    if (state == ProcessStats::State::failed) {
      return fail(ErrorKind::internal,
                  fmt::format("{}: {}", member.name, member.stats->text.data()));
    }
    if (member.pid <= 0) continue;
    int status = 0;
    if (waitpid(member.pid, &status, WNOHANG) != member.pid) continue;
    member.pid = -1;
    if (WIFSIGNALED(status)) {
      return fail(ErrorKind::internal,
                  fmt::format("{} was ended by signal {}", member.name, WTERMSIG(status)));
    }
  }
  return {};
}

Result<> ProcessGroup::wait_until_ready(std::size_t index) {
  return wait_until(index, ProcessStats::State::ready);
}

Result<> ProcessGroup::wait_until_running(std::size_t index) {
  return wait_until(index, ProcessStats::State::running);
}

Result<> ProcessGroup::wait_until(std::size_t index, ProcessStats::State state) {
  const Time limit = now() + start_patience;
  while (members_[index].stats->state.load() < state) {
    if (auto alive = check_alive(); !alive) return alive;
    if (members_[index].pid < 0 || now() > limit) {
      return fail(ErrorKind::internal, members_[index].name + " does not start");
    }
    pause_for(look_every);
  }
  return check_alive();
}

struct ProcessGroup::Snapshot {
  struct Of {
    double cpu_s = 0;
    Status status;
  };
  Time at;
  std::uint64_t batches = 0;
  std::uint64_t events = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t load_bytes = 0;
  std::vector<Of> processes;
};

ProcessGroup::Snapshot ProcessGroup::sample() const {
  Snapshot snapshot;
  for (const auto& member : members_) {
    snapshot.processes.push_back(
        {member.pid < 0 ? 0 : cpu_seconds(member.pid), read_status(member.pid)});
  }
  snapshot.at = now();
  for (const auto& member : members_) {
    snapshot.batches += member.stats->batches.get();
    snapshot.events += member.stats->events.get();
    snapshot.messages += member.stats->messages.get();
    snapshot.bytes += member.stats->bytes.get();
    snapshot.load_bytes += member.stats->load_bytes.get();
  }
  return snapshot;
}

Result<Sample> ProcessGroup::measure(Duration warmup, Duration duration, bool wait_for_messages) {
  const Time limit = now() + start_patience;
  while (wait_for_messages && sample().messages == 0) {
    if (auto alive = check_alive(); !alive) return std::unexpected(alive.error());
    if (now() > limit) return fail(ErrorKind::internal, "nothing arrives");
    pause_for(look_every);
  }
  pause_for(warmup);
  const Snapshot before = sample();
  pause_for(duration);
  const Snapshot after = sample();
  if (auto alive = check_alive(); !alive) return std::unexpected(alive.error());
  Sample sample;
  sample.seconds = static_cast<double>((after.at - before.at).count()) * 1e-9;
  sample.batches = after.batches - before.batches;
  sample.events = after.events - before.events;
  sample.messages = after.messages - before.messages;
  sample.bytes = after.bytes - before.bytes;
  sample.load_bytes = after.load_bytes - before.load_bytes;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto& [cpu, status] = after.processes[i];
    const Snapshot::Of& first = before.processes[i];
    const auto switches = [&](std::uint64_t Status::* which) {
      return static_cast<double>(status.*which - first.status.*which) / sample.seconds;
    };
    sample.processes.push_back({.name = members_[i].name,
                                .cpu = (cpu - first.cpu_s) / sample.seconds,
                                .voluntary_switches_per_s = switches(&Status::voluntary),
                                .forced_switches_per_s = switches(&Status::forced),
                                .peak_rss_bytes = status.peak_rss_bytes});
  }
  return sample;
}

void ProcessGroup::terminate(std::size_t index) const {
  if (members_[index].pid > 0) ::kill(members_[index].pid, SIGTERM);
}

Result<> ProcessGroup::wait_until_ended(Duration patience) {
  const Time limit = now() + patience;
  while (true) {
    if (auto alive = check_alive(); !alive) return alive;
    std::string left;
    for (const auto& member : members_) {
      if (member.pid > 0) left += (left.empty() ? "" : ", ") + member.name;
    }
    if (left.empty()) return {};
    if (now() > limit) {
      kill_all();
      return fail(ErrorKind::internal, left + " did not end");
    }
    pause_for(look_every);
  }
}

Result<> ProcessGroup::wait_until_ended(std::size_t index, Duration patience) {
  const Time limit = now() + patience;
  while (members_[index].pid > 0) {
    if (auto alive = check_alive(); !alive) return alive;
    if (now() > limit) return fail(ErrorKind::internal, members_[index].name + " did not end");
    pause_for(look_every);
  }
  return check_alive();
}

} // namespace fanin::bench
