// MPI as a peer of fanin bench, started by it: mpirun -n 2 fanin-mpi-peer PATTERN SIZE PIPELINE
// PERIOD_NS READ WARMUP_NS DURATION_NS. Rank 0 measures and writes one line of JSON. The payload is
// filled and touched as all contenders do (bench/payload.hpp).
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "fanin/base/histogram.hpp"
#include "fanin/bench/payload.hpp"

namespace {

using fanin::Duration;
using fanin::bench::PayloadSource;
using fanin::bench::touch;

constexpr int tag_data = 0;
constexpr int tag_stop = 1;
constexpr std::size_t window_bytes = 16U << 20;
constexpr std::size_t window_max = 512; // messages; more than usual, which favours small ones

struct Arguments {
  std::size_t size = 0;
  std::size_t pipeline = 1;
  Duration period{}; // 0: as soon as one is back
  bool read = false;
  Duration warmup{};
  Duration duration{};
};

struct Outcome {
  double seconds = 0;
  std::uint64_t messages = 0;
  fanin::Histogram latency;
};

Duration now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// Messages of one size with a request each, in memory of their own.
class Slots {
public:
  Slots(std::size_t count, std::size_t size)
      : size_(size), bytes_(count * size), requests_(count, MPI_REQUEST_NULL) {}
  [[nodiscard]] std::size_t count() const { return requests_.size(); }
  [[nodiscard]] std::byte* at(std::size_t i) { return bytes_.data() + i * size_; }
  [[nodiscard]] std::span<const std::byte> message(std::size_t i) { return {at(i), size_}; }
  void send(std::size_t i, int to, int tag = tag_data) {
    MPI_Isend(at(i), static_cast<int>(size_), MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests_[i]);
  }
  void receive(std::size_t i, int from) {
    MPI_Irecv(at(i), static_cast<int>(size_), MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD,
              &requests_[i]);
  }
  int wait(std::size_t i) { // the tag
    MPI_Status status{};
    MPI_Wait(&requests_[i], &status);
    return status.MPI_TAG;
  }
  bool test(std::size_t i) {
    int done = 0;
    MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
    return done != 0;
  }
  void wait_all() {
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }

private:
  std::size_t size_;
  std::vector<std::byte> bytes_;
  std::vector<MPI_Request> requests_;
};

std::array<Slots, 2> two_windows(std::size_t size) {
  const std::size_t count = std::clamp<std::size_t>(window_bytes / size, 1, window_max);
  return {Slots{count, size}, Slots{count, size}};
}

// Two windows are under way; the receiver answers each, and says in it whether to go on.
void send_stream(const Arguments& arguments) {
  const PayloadSource source(arguments.size);
  auto windows = two_windows(arguments.size);
  for (std::size_t turn = 0;; ++turn) {
    Slots& window = windows[turn % 2];
    window.wait_all();
    for (std::size_t i = 0; i < window.count(); ++i) {
      source.fill(window.at(i));
      window.send(i, 0);
    }
    if (turn == 0) continue;
    int go_on = 0;
    MPI_Recv(&go_on, 1, MPI_INT, 0, tag_data, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (go_on != 0) continue;
    for (auto& one : windows) one.wait_all();
    return;
  }
}

Outcome receive_stream(const Arguments& arguments) {
  Outcome outcome;
  auto windows = two_windows(arguments.size);
  for (auto& window : windows) {
    for (std::size_t i = 0; i < window.count(); ++i) window.receive(i, 1);
  }
  const Duration from = now() + arguments.warmup;
  const Duration until = from + arguments.duration;
  Duration counted_from{};
  for (std::size_t turn = 0;; ++turn) {
    Slots& window = windows[turn % 2];
    window.wait_all();
    for (std::size_t i = 0; i < window.count(); ++i) touch(window.message(i), arguments.read);
    const Duration time = now();
    if (counted_from.count() != 0) outcome.messages += window.count();
    if (counted_from.count() == 0 && time >= from) counted_from = time;
    const int go_on = time < until ? 1 : 0;
    MPI_Send(&go_on, 1, MPI_INT, 1, tag_data, MPI_COMM_WORLD);
    if (go_on == 0) {
      outcome.seconds = static_cast<double>((time - counted_from).count()) * 1e-9;
      windows[(turn + 1) % 2].wait_all();
      return outcome;
    }
    for (std::size_t i = 0; i < window.count(); ++i) window.receive(i, 1);
  }
}

void send_back(const Arguments& arguments) {
  const PayloadSource source(arguments.size);
  Slots in(arguments.pipeline, arguments.size);
  Slots out(arguments.pipeline, arguments.size);
  for (std::size_t i = 0; i < in.count(); ++i) in.receive(i, 0);
  for (std::size_t turn = 0;; ++turn) {
    const std::size_t i = turn % in.count();
    if (in.wait(i) == tag_stop) break;
    touch(in.message(i), false);
    in.receive(i, 0);
    out.wait(i);
    source.fill(out.at(i));
    out.send(i, 0);
  }
  in.wait_all(); // the stops of the other slots
  out.wait_all();
}

Outcome make_trips(const Arguments& arguments) {
  Outcome outcome;
  const PayloadSource source(arguments.size);
  Slots in(arguments.pipeline, arguments.size);
  Slots out(arguments.pipeline, arguments.size);
  std::vector<Duration> stamps(arguments.pipeline);
  const Duration start = now();
  const Duration from = start + arguments.warmup;
  const Duration until = from + arguments.duration;
  Duration next = start;
  Duration time = start;
  std::uint64_t sent = 0;
  std::uint64_t back = 0;
  while (time < until || back < sent) {
    while (time < until && sent - back < arguments.pipeline && time >= next) {
      const std::size_t i = sent++ % arguments.pipeline;
      in.receive(i, 1);
      out.wait(i);
      source.fill(out.at(i));
      out.send(i, 1);
      stamps[i] = arguments.period.count() > 0 ? next : time;
      next += arguments.period;
    }
    const std::size_t i = back % arguments.pipeline;
    const bool came = back < sent && in.test(i);
    time = now();
    if (!came) continue;
    touch(in.message(i), false);
    ++back;
    if (stamps[i] < from) continue;
    outcome.latency.add(time - stamps[i]);
    ++outcome.messages;
  }
  outcome.seconds = static_cast<double>((time - from).count()) * 1e-9;
  for (std::size_t i = 0; i < arguments.pipeline; ++i) {
    out.wait(i);
    out.send(i, 1, tag_stop);
  }
  out.wait_all();
  return outcome;
}

void print(const Outcome& outcome, std::size_t size) {
  std::printf(R"({"seconds":%.9f,"messages":%llu,"bytes":%llu,"latency_ns":[)", outcome.seconds,
              static_cast<unsigned long long>(outcome.messages),
              static_cast<unsigned long long>(outcome.messages * size));
  const char* separator = "";
  outcome.latency.each([&](Duration value, std::uint64_t count) {
    std::printf("%s[%lld,%llu]", separator, static_cast<long long>(value.count()),
                static_cast<unsigned long long>(count));
    separator = ",";
  });
  std::puts("]}");
}

} // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 8 || ranks != 2) {
    std::fputs("fanin-mpi-peer is started by fanin bench\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const auto number = [&](int index) { return std::strtoull(argv[index], nullptr, 10); };
  const Arguments arguments{.size = number(2),
                            .pipeline = number(3),
                            .period = Duration{number(4)},
                            .read = number(5) != 0,
                            .warmup = Duration{number(6)},
                            .duration = Duration{number(7)}};
  const bool roundtrip = std::string_view{argv[1]} == "roundtrip";
  if (rank == 0) {
    print(roundtrip ? make_trips(arguments) : receive_stream(arguments), arguments.size);
  } else if (roundtrip) {
    send_back(arguments);
  } else {
    send_stream(arguments);
  }
  MPI_Finalize();
  return 0;
}
