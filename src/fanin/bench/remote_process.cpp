#include "fanin/bench/remote_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/bench/bare_socket.hpp"
#include "fanin/bench/bodies.hpp"
#include "fanin/bench/members.hpp"

namespace fanin::bench {
namespace {

constexpr int answer_patience_ms = 10'000;
constexpr int check_soon_ms = 2;   // until it is ready
constexpr int check_later_ms = 20; // while it measures: it shall cost nothing
// By ProcessStats::State.
constexpr std::array<std::string_view, 5> state_names{"starting", "ready", "running", "ended",
                                                      "failed"};
constexpr std::size_t line_most = 64U << 20;

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

Result<std::unique_ptr<RemoteProcess>> RemoteProcess::connect(const net::Url& url,
                                                              const json::Value& task) {
  std::signal(SIGPIPE, SIG_IGN); // the host may go while it is written to
  executive::HostProcess connection;
  connection.output = FANIN_TRY(connect_to(url, ""));
  connection.input = Descriptor(fcntl(connection.output.get(), F_DUPFD_CLOEXEC, 3));
  std::unique_ptr<RemoteProcess> made(new RemoteProcess(
      {.addresses = {url.host}, .words = {}, .place = url.text()}, std::move(connection)));
  made->write(json::Object{{"part", task}});
  return made;
}

RemoteProcess::~RemoteProcess() {
  process_.input.reset(); // what it has started there ends with its standard input
  if (process_.pid > 0) kill(process_.pid, SIGKILL);
  collect();
}

int RemoteProcess::collect() {
  int status = 0;
  alive_ = false;
  if (process_.pid > 0) waitpid(std::exchange(process_.pid, 0), &status, 0);
  return status;
}

void RemoteProcess::write(const json::Value& line) {
  const std::string text = line.dump() + "\n";
  // Its end is seen where it should answer.
  (void)!::write(process_.input.get(), text.data(), text.size());
}

std::unexpected<Error> RemoteProcess::lost() {
  if (process_.pid == 0) {
    alive_ = false;
    return fail(ErrorKind::disconnected,
                fmt::format("host {}: the connection has ended", host_.place));
  }
  std::string errors;
  bool ended = false;
  while (!ended && read_some(process_.errors.get(), 0, errors, ended)) {
  }
  kill(process_.pid, SIGKILL);
  const int status = collect();
  while (!errors.empty() && errors.back() == '\n') errors.pop_back();
  const auto last = errors.rfind('\n');
  return fail(ErrorKind::disconnected,
              executive::why_unreachable(
                  host_, status,
                  std::string_view{errors}.substr(last == std::string::npos ? 0 : last + 1)));
}

Result<> RemoteProcess::take(const json::Value& line, ProcessStats& stats) {
  const auto refuse = [this](const std::string& why) {
    return fail(ErrorKind::refused, fmt::format("{}: {}", host_.text(), printable(why)));
  };
  if (line.find("fanin") != nullptr) {
    const std::string wrong = executive::wrong_greeting(line);
    return wrong.empty() ? Result<>{} : refuse(wrong);
  }
  if (line.find("refused") != nullptr) return refuse(line.at("refused").text());
  if (const json::Value* sample = line.find("sample")) {
    FANIN_TRY(read_object(*sample, counts_));
    counts_.at = Time{Duration{sample->at("at_ns").integer().value_or(0)}};
    answered_ = true;
  }
  const auto state = std::ranges::find(state_names, line.at("state").text());
  if (state == state_names.end()) return {};
  stats.say(line.at("text").text());
  stats.note(line.at("remark").text());
  for (const auto& bin : line.at("latency").list()) {
    if (bin.list().size() != 2) continue;
    stats.latency.add(Duration{bin.list()[0].integer().value_or(0)}, bin.list()[1].natural());
  }
  stats.state = static_cast<ProcessStats::State>(state - state_names.begin());
  ended_ = stats.state == ProcessStats::State::ended;
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
                  fmt::format("{} does not answer any more", host_.text()));
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
    if (!line.at("sample").boolean()) return;
    const ProcessCounts counts = group_.counts(0);
    json::Value sample = object_of(counts);
    sample["at_ns"] = counts.at.time_since_epoch().count();
    write_line(json::Object{{"sample", std::move(sample)}});
  }

  // Its state, if that is another one. A process that is killed has failed.
  void tell() {
    const auto alive = group_.check();
    const ProcessStats& stats = group_.stats(0);
    const bool says_why = stats.state.load() == ProcessStats::State::failed;
    const auto state = alive ? stats.state.load() : ProcessStats::State::failed;
    if (std::exchange(reported_, state) == state) return;
    json::Value line;
    line["state"] = state_names[static_cast<std::size_t>(state)];
    line["text"] = alive || says_why ? std::string(stats.text.data()) : alive.error().text;
    line["remark"] = stats.remark.data();
    if (state == ProcessStats::State::ended) {
      stats.latency.each([&line](Duration value, std::uint64_t count) {
        line["latency"].append(json::List{value.count(), count});
      });
    }
    write_line(line);
  }

  ProcessGroup group_;
  ProcessStats::State reported_ = ProcessStats::State::starting;
};

// Byte by byte: what follows it stays in the pipe.
std::string read_request() {
  std::string line;
  for (char character = 0; line.size() < line_most; line += character) {
    const ssize_t count = TEMP_FAILURE_RETRY(read(STDIN_FILENO, &character, 1));
    if (count <= 0) return {};
    if (character == '\n') return line;
  }
  return {};
}

} // namespace

bool serve_request(const std::function<Result<>(const json::Value& request)>& serve) {
  write_line(executive::greeting());
  const auto request = json::Value::parse(read_request());
  if (!request) return false;
  const auto served = serve(*request);
  if (!served) write_line(json::Object{{"refused", served.error().text}});
  return served.has_value();
}

Result<> serve_process(const json::Value& task) {
  const auto body = FANIN_TRY(body_of(task));
  return Server{}.run(body);
}

} // namespace fanin::bench
