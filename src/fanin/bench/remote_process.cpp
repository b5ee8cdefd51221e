#include "fanin/bench/remote_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/bench/bodies.hpp"

namespace fanin::bench {
namespace {

constexpr int answer_patience_ms = 10'000;
constexpr int check_soon_ms = 2;   // until it is ready
constexpr int check_later_ms = 20; // while it measures: it shall cost nothing
constexpr std::size_t line_most = 16U << 20;

constexpr std::array<std::pair<std::string_view, std::uint64_t ProcessCounts::*>, 10> numbers{
    {{"voluntary", &ProcessCounts::voluntary},
     {"forced", &ProcessCounts::forced},
     {"peak_rss_bytes", &ProcessCounts::peak_rss_bytes},
     {"retransmitted", &ProcessCounts::retransmitted},
     {"link_bytes", &ProcessCounts::link_bytes},
     {"batches", &ProcessCounts::batches},
     {"events", &ProcessCounts::events},
     {"messages", &ProcessCounts::messages},
     {"bytes", &ProcessCounts::bytes},
     {"load_bytes", &ProcessCounts::load_bytes}}};

json::Value to_json(const ProcessCounts& counts) {
  json::Value value;
  value["at_ns"] = counts.at.time_since_epoch().count();
  value["pid"] = counts.pid;
  value["cpu_s"] = counts.cpu_s;
  for (const auto& [key, member] : numbers) value[key] = counts.*member;
  return value;
}

ProcessCounts counts_of(const json::Value& value) {
  ProcessCounts counts;
  counts.at = Time{Duration{value.at("at_ns").integer().value_or(0)}};
  counts.pid = value.at("pid").integer().value_or(0);
  counts.cpu_s = value.at("cpu_s").real();
  for (const auto& [key, member] : numbers) counts.*member = value.at(key).natural();
  return counts;
}

// What is there, at most until `timeout_ms`. False: nothing came; `ended`: nobody writes any more.
bool read_some(int descriptor, int timeout_ms, std::string& text, bool& ended) {
  pollfd watch{descriptor, POLLIN, 0};
  if (poll(&watch, 1, timeout_ms) <= 0) return false;
  std::array<char, 16384> buffer; // NOLINT: read() fills it
  const ssize_t got = read(descriptor, buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  ended = got <= 0 || text.size() > line_most;
  if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0;
}

void write_line(const json::Value& line) {
  const std::string text = line.dump() + "\n";
  (void)std::fwrite(text.data(), 1, text.size(), stdout);
  (void)std::fflush(stdout);
}

} // namespace

Result<std::unique_ptr<RemoteProcess>> RemoteProcess::start(const executive::Host& host,
                                                            const json::Value& task) {
  auto process = FANIN_TRY(executive::start_on(host));
  fcntl(process.input.get(), F_SETFL, 0); // a task is shorter than a pipe
  std::unique_ptr<RemoteProcess> made(new RemoteProcess(host, std::move(process)));
  made->write(json::Object{{"part", task}});
  return made;
}

RemoteProcess::~RemoteProcess() {
  process_.input.reset(); // what it has started there ends with its standard input
  if (alive()) kill(process_.pid, SIGKILL);
  collect();
}

void RemoteProcess::collect() {
  if (alive()) waitpid(std::exchange(process_.pid, 0), nullptr, 0);
}

void RemoteProcess::write(const json::Value& line) {
  const std::string text = line.dump() + "\n";
  // Its end is seen where it should answer.
  (void)!::write(process_.input.get(), text.data(), text.size());
}

std::unexpected<Error> RemoteProcess::lost() {
  std::string errors;
  bool ended = false;
  while (!ended && read_some(process_.errors.get(), 0, errors, ended)) {
  }
  int status = 0;
  kill(process_.pid, SIGKILL);
  waitpid(std::exchange(process_.pid, 0), &status, 0);
  while (!errors.empty() && errors.back() == '\n') errors.pop_back();
  const auto last = errors.rfind('\n');
  return fail(ErrorKind::disconnected,
              executive::why_unreachable(
                  host_, status,
                  std::string_view{errors}.substr(last == std::string::npos ? 0 : last + 1)));
}

Result<> RemoteProcess::take(const json::Value& line, ProcessStats& stats) {
  const auto refuse = [this](const std::string& why) {
    return fail(ErrorKind::refused,
                fmt::format("host {} ({}): {}", host_.name(), host_.place, printable(why)));
  };
  if (line.find("fanin") != nullptr) {
    const std::string wrong = executive::wrong_greeting(line);
    return wrong.empty() ? Result<>{} : refuse(wrong);
  }
  if (line.find("refused") != nullptr) return refuse(line.at("refused").text());
  if (const json::Value* sample = line.find("sample")) {
    counts_ = counts_of(*sample);
    answered_ = true;
  }
  const std::string state = line.at("state").text();
  if (state == "ready" || state == "failed") stats.say(line.at("text").text());
  if (state == "ready") stats.state = ProcessStats::State::ready;
  if (state == "running") stats.state = ProcessStats::State::running;
  if (state == "failed") stats.state = ProcessStats::State::failed;
  if (state == "ended") {
    stats.note(line.at("remark").text());
    for (const auto& bin : line.at("latency").list()) {
      if (bin.list().size() != 2) continue;
      stats.latency.add(Duration{bin.list()[0].integer().value_or(0)}, bin.list()[1].natural());
    }
    stats.state = ProcessStats::State::ended;
    ended_ = true;
  }
  return {};
}

Result<> RemoteProcess::take_lines(ProcessStats& stats) {
  std::size_t at = 0;
  for (auto end = text_.find('\n'); end != std::string::npos; end = text_.find('\n', at)) {
    const auto line = json::Value::parse(std::string_view{text_}.substr(at, end - at));
    at = end + 1;
    if (!line || !line->is_object()) continue; // what a shell there says on its own
    FANIN_TRY(take(*line, stats));
  }
  text_.erase(0, at);
  return {};
}

Result<> RemoteProcess::check(ProcessStats& stats) {
  if (!alive()) return {};
  bool ended = false;
  while (!ended && read_some(process_.output.get(), 0, text_, ended)) {
  }
  FANIN_TRY(take_lines(stats));
  if (!ended) return {};
  if (!ended_ && stats.state.load() != ProcessStats::State::failed) return lost();
  collect();
  return {};
}

void RemoteProcess::ask() {
  answered_ = false;
  write(json::Object{{"sample", true}});
}

Result<ProcessCounts> RemoteProcess::answer(ProcessStats& stats) {
  while (!answered_ && alive()) {
    bool ended = false;
    const bool some = read_some(process_.output.get(), answer_patience_ms, text_, ended);
    FANIN_TRY(take_lines(stats));
    if (answered_ || ended_) break;
    if (ended) return lost();
    if (!some)
      return fail(ErrorKind::disconnected,
                  fmt::format("host {} ({}) does not answer any more", host_.name(), host_.place));
  }
  return counts_;
}

void RemoteProcess::terminate() { write(json::Object{{"terminate", true}}); }

namespace {

// On the host: the process, and what has been said of it.
class Server {
public:
  Result<> run(const ProcessGroup::Body& body) {
    FANIN_TRY(group_.start("part", body));
    std::string text;
    for (bool ended = false; !ended;) {
      tell();
      if (reported_ >= ProcessStats::State::ended) return {};
      const int patience = reported_ < ProcessStats::State::ready ? check_soon_ms : check_later_ms;
      (void)read_some(STDIN_FILENO, patience, text, ended);
      for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
        if (const auto line = json::Value::parse(std::string_view{text}.substr(0, end)))
          obey(*line);
        text.erase(0, end + 1);
      }
    }
    return {};
  }

private:
  void obey(const json::Value& line) {
    if (line.at("terminate").boolean()) group_.terminate(0);
    if (line.at("sample").boolean())
      write_line(json::Object{{"sample", to_json(group_.counts(0))}});
  }

  // Its state, if that is another one. A process that is killed has failed.
  void tell() {
    const auto alive = group_.check();
    const ProcessStats& stats = group_.stats(0);
    ProcessStats::State state = stats.state.load();
    json::Value line;
    if (!alive) state = ProcessStats::State::failed;
    if (state == reported_) return;
    if (reported_ < ProcessStats::State::ready && state > ProcessStats::State::ready &&
        state < ProcessStats::State::failed)
      tell_ready(stats);
    reported_ = state;
    switch (state) {
    case ProcessStats::State::starting: return;
    case ProcessStats::State::ready: return tell_ready(stats);
    case ProcessStats::State::running: line["state"] = "running"; break;
    case ProcessStats::State::failed:
      line["state"] = "failed";
      line["text"] = alive || stats.state.load() == ProcessStats::State::failed
                         ? std::string(stats.text.data())
                         : alive.error().text;
      break;
    case ProcessStats::State::ended:
      line["state"] = "ended";
      line["remark"] = stats.remark.data();
      stats.latency.each([&line](Duration value, std::uint64_t count) {
        line["latency"].append(json::List{value.count(), count});
      });
      break;
    }
    write_line(line);
  }

  static void tell_ready(const ProcessStats& stats) {
    write_line(json::Object{{"state", "ready"}, {"text", stats.text.data()}});
  }

  ProcessGroup group_;
  ProcessStats::State reported_ = ProcessStats::State::starting;
};

} // namespace

Result<> serve_process(const json::Value& task) {
  const auto body = FANIN_TRY(body_of(task));
  return Server{}.run(body);
}

} // namespace fanin::bench
