// The processes of a benchmark: forked from the one that measures, each counting what it does in
// memory that both see. Processor time is read from outside, so that measuring costs them nothing.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/histogram.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/executive/host_list.hpp"

namespace fanin::bench {

// A number that one process writes and another reads now and then.
class Counter {
public:
  void add(std::uint64_t step) { set(get() + step); } // by its one writer
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<std::uint64_t> value_{0};
};

// What one process says, written by it alone. Lies in memory shared with the measuring process.
struct ProcessStats {
  enum class State : std::uint32_t { starting, ready, running, ended, failed };

  std::atomic<State> state{State::starting};
  Counter batches;
  Counter events;
  Counter messages; // fragments, where there are fragments
  Counter bytes;    // of payload
  Counter load_bytes; // of payload beside what is measured
  Histogram latency;  // valid once the state is `ended`
  // Where it listens (a line each), before `ready`; why it failed, after `failed`.
  std::array<char, 8192> text{};
  std::array<char, 512> remark{}; // valid once `ended`: something that people should know

  void say(std::string_view words) { copy(words, text); }
  void note(std::string_view words) { copy(words, remark); }
  void listens_at(std::string_view addresses) {
    say(addresses);
    state = State::ready;
  }

private:
  template <std::size_t size>
  static void copy(std::string_view words, std::array<char, size>& to) {
    to[words.copy(to.data(), to.size() - 1)] = '\0';
  }
};

// What processes have counted since their start, or in a measurement.
struct Traffic {
  std::uint64_t batches = 0;
  std::uint64_t events = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t load_bytes = 0;
  std::uint64_t retransmitted = 0; // TCP segments that their hosts have sent again
  std::uint64_t link_bytes = 0; // of packets that their hosts have received over their links
};

// What a process has counted and used at a time of its own host's clock.
struct ProcessCounts : Traffic {
  Time at;
  std::int64_t pid = 0; // on its own host
  double cpu_s = 0;
  std::uint64_t voluntary = 0; // switches of its main thread, which runs the loop: it waits
  std::uint64_t forced = 0;
  std::uint64_t peak_rss_bytes = 0;

  static void each_member(auto& self, const auto& visit) { // members.hpp; all but the time
    visit("pid", self.pid);
    visit("cpu_s", self.cpu_s);
    visit("voluntary", self.voluntary);
    visit("forced", self.forced);
    visit("peak_rss_bytes", self.peak_rss_bytes);
    visit("retransmitted", self.retransmitted);
    visit("link_bytes", self.link_bytes);
    visit("batches", self.batches);
    visit("events", self.events);
    visit("messages", self.messages);
    visit("bytes", self.bytes);
    visit("load_bytes", self.load_bytes);
  }
};

struct ProcessUse {
  std::string name;
  double cpu = 0;                   // of one core: 1.0 is all of it
  double bytes_per_s = 0; // of payload, where it counts them
  double voluntary_switches_per_s = 0; // waits
  double forced_switches_per_s = 0; // preempted
  std::uint64_t peak_rss_bytes = 0; // since its start
};

// Of a measurement in which one builder unit gets only a part of the processor time that it took
// before: what it and the others did before and then. CPU in cores.
struct Throttled {
  double cpu_before = 0;
  double quota = 0; // as the kernel says
  double cpu = 0;
  double others_bytes_per_s_before = 0;
  double others_bytes_per_s = 0;
};

// One measurement, over a window in which everything ran. Of hosts only other ones are counted.
struct Sample : Traffic {
  double seconds = 0;
  double stolen = 0; // share of the host's processor time that it did not get, meanwhile
  double idle = 0; // share of this host's processor time
  std::uint64_t switch_drops = 0; // packets; where there is a testbed
  std::vector<ProcessUse> processes;
  Histogram latency; // of the whole run
  Throttled throttled; // zeros: nothing was
  std::string remark; // empty: all is well
};

// What is told while a measurement runs.
struct Watch {
  Duration every{}; // 0: nothing
  // The time since the measurement began, and what was counted since the last call. It may take a
  // while: the next one is when it is due.
  std::function<void(Duration since_begin, const Sample& sample)> on_sample;
};

// True from SIGTERM on; in processes of a group.
[[nodiscard]] bool termination_asked();
// Called from the handler of SIGTERM, hence async-signal-safe.
void on_termination(std::function<void()> wake);

// What a command of the shell writes. Blocks until it has ended. Errors: exhausted: it cannot be
// started.
[[nodiscard]] Result<std::string> output_of(const std::string& command);

class RemoteProcess;

// Thread: one. The processes end with the group, and with the process that owns it.
class ProcessGroup {
public:
  using Body = std::function<Result<>(ProcessStats&)>;

  ProcessGroup();
  ~ProcessGroup(); // kills those that are left
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Runs `body` in a process of its own; `ended` or `failed` comes from what it returns. It never
  // returns to the caller's code. Errors: exhausted.
  [[nodiscard]] Result<std::size_t> start(std::string name, const Body& body);
  // The same on another host (bodies.hpp). Errors: those of executive::start_on(). Whether the host
  // can be reached shows in what follows.
  [[nodiscard]] Result<std::size_t> start_on(const executive::Host& host, std::string name,
                                             const json::Value& task);
  [[nodiscard]] Result<std::size_t> start_there(std::string name,
                                                std::unique_ptr<RemoteProcess> process);
  // Samples have what these switches drop: words that start a command there.
  void watch_switches(std::vector<std::string> words) { switch_words_ = std::move(words); }
  [[nodiscard]] const ProcessStats& stats(std::size_t index) const {
    return *members_[index].stats;
  }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] ProcessCounts counts(std::size_t index) const; // of a process of this host
  // Of a process of this host, or of one whose numbers of processes are this host's (the testbed).
  // Errors: as of measure().
  [[nodiscard]] Result<pid_t> pid_of(std::size_t index);
  // Takes notice of ends. Errors: a process failed, or was killed.
  [[nodiscard]] Result<> check();

  // Errors: a process failed or ended, or it takes too long.
  [[nodiscard]] Result<> wait_until(std::size_t index, ProcessStats::State state);
  // Waits for the first message in any process, then for `warmup`, then measures for `duration`.
  [[nodiscard]] Result<Sample> measure(Duration warmup, Duration duration,
                                       bool wait_for_messages = true, const Watch& watch = {});
  void terminate(std::size_t index) const; // SIGTERM
  // All, or the only one that is meant. Errors: a process failed; after `patience` all are killed.
  [[nodiscard]] Result<> wait_until_ended(Duration patience, std::optional<std::size_t> only = {});

private:
  struct Unmap {
    void operator()(ProcessStats* stats) const;
  };
  using Stats = std::unique_ptr<ProcessStats, Unmap>; // in memory that a child shares
  struct Member {
    std::string name;
    pid_t pid = -1; // -1: reaped, or elsewhere
    Stats stats;
    std::unique_ptr<RemoteProcess> there; // null: on this host
    [[nodiscard]] bool alive() const;
  };
  struct Snapshot;

  [[nodiscard]] static Result<Stats> make_stats();
  [[nodiscard]] Result<> check(Member& member);
  [[nodiscard]] Result<Snapshot> sample();
  [[nodiscard]] Result<std::uint64_t> drops() const; // of the switches
  [[nodiscard]] Sample difference(const Snapshot& before, const Snapshot& after) const;
  [[nodiscard]] Result<> watch_for(Duration duration, const Snapshot& before, const Watch& watch);
  [[noreturn]] static void run_child(const Body& body, ProcessStats& stats);
  void kill_all();

  std::vector<Member> members_;
  std::vector<std::string> switch_words_; // empty: none
};

} // namespace fanin::bench
