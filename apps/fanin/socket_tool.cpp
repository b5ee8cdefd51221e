#include "socket_tool.hpp"

#include <limits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/counted.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "reading.hpp"

namespace fanin::command {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr Duration progress_every = std::chrono::seconds{1};
constexpr Duration linger = std::chrono::seconds{5}; // after --duration, as the transports
constexpr Duration soon = std::chrono::milliseconds{200}; // what takes less needs no arguments
constexpr std::uint32_t size_max = 64U << 20;
constexpr std::uint32_t peers_max = 1'000'000;
constexpr int messages_per_turn = 1024;

message::ContextOptions context_options(const ToolOptions& arguments, const net::Url& url,
                                        const net::TransportRegistry& transports) {
  message::ContextOptions options;
  if (!arguments.connects)
    options.receive_pool.pages += transports.pages_in_advance(url, arguments.peers);
  return options;
}

} // namespace

void add_tool_options(CLI::App& command, ToolOptions& arguments) {
  command.add_option("URL", arguments.url, "As tcp://127.0.0.1:7000 or shm://name:1")->required();
  command.add_option("--count", arguments.count, "End after so many messages")
      ->check(natural_number(1));
  command.add_option("--duration", arguments.duration, "End after this time, as 10s");
  command.add_option("--json", arguments.json, "File for the result; - is standard output");
  command.add_flag("-q,--quiet", arguments.quiet, "No progress");
}

void add_message_options(CLI::App& command, ToolOptions& arguments) {
  command.add_option("--size", arguments.size, "Size of a message, as 64KiB");
  command.add_option("--rate", arguments.rate, "Messages at a fixed rate, as 10kHz");
}

void add_mode_option(CLI::App& command, ToolOptions& arguments) {
  command.add_option("--mode", arguments.mode, "high-throughput or low-latency")
      ->check(CLI::IsMember({"high-throughput", "low-latency"}));
}

void add_peers_option(CLI::App& command, ToolOptions& arguments) {
  command
      .add_option("--peers", arguments.peers,
                  "Memory for so many peers at a time, over verbs and ofi; default 32")
      ->check(natural_number(1));
}

SocketTool::SocketTool(const ToolOptions& arguments)
    : arguments_(arguments),
      terminal_(arguments.quiet ? LogLevel::warning : LogLevel::info),
      limit_([this] { end_or_give_up(); }),
      waiting_([this] {
        terminal_.log(LogLevel::warning, "waiting until the other side has taken what was sent; "
                                         "^C again gives up");
      }) {}

SocketTool::~SocketTool() {
  if (context_) context_->loop().remove(*this);
}

Result<std::unique_ptr<SocketTool>> SocketTool::make(const ToolOptions& arguments) {
  std::unique_ptr<SocketTool> tool{new SocketTool{arguments}};
  Reading reading;
  tool->url_ = reading.url("URL", arguments.url);
  if (tool->url_.scheme == "inproc")
    reading.fail_with("URL", "inproc is for parts of one process: tcp or shm");
  if (arguments.connects && tool->url_.port == 0)
    reading.fail_with("URL",
                      "with the port at which the other side listens, as in tcp://host:7000");
  std::uint32_t size = 0;
  reading.size("--size", arguments.size, size);
  if (size > size_max)
    reading.fail_with("--size", fmt::format("{} at most", format_size(size_max)));
  if (arguments.peers > peers_max)
    reading.fail_with("--peers", fmt::format("{} at most", peers_max));
  reading.rate("--rate", arguments.rate, tool->period_);
  if (!arguments.duration.empty()) {
    if (const auto time = parse_duration(arguments.duration); reading.keep("--duration", time))
      tool->duration_ = *time;
    if (tool->duration_ == Duration{}) reading.fail_with("--duration", "more than 0s");
  }
  FANIN_TRY(reading.result());
  tool->mode_ =
      arguments.mode == "low-latency" ? message::Mode::low_latency : message::Mode::high_throughput;
  tool->message_.resize(size);
  tool->json_ = FANIN_TRY(OutputFile::open("--json", arguments.json));
  net::TransportRegistry transports;
  net::add_built_in_transports(transports);
  auto options = context_options(arguments, tool->url_, transports);
  options.log = [&self = *tool](LogLevel level, std::string_view text) {
    self.terminal_.log(level, text);
  };
  tool->context_ = FANIN_TRY(message::Context::make(options, &transports));
  tool->resolver_.emplace(tool->context_->loop());
  tool->signals_ = FANIN_TRY(executive::Signals::make(
      tool->context_->loop(), {.on_signal =
                                   [&self = *tool](const executive::StopSignal& signal) {
                                     if (self.stop_requests_.take(signal, self.clock_.now()))
                                       self.end_or_give_up();
                                   },
                               .on_death = {}}));
  tool->context_->loop().add(*tool);
  return tool;
}

// The first time it ends in order; the second time it does not wait for the other side.
void SocketTool::end_or_give_up() {
  if (ending_) delivered_ = false;
  end();
}

void SocketTool::say_of_peer(std::string_view text) {
  peers_.write([this](LogLevel level, std::string_view line) { terminal_.log(level, line); },
               clock_.now(), LogLevel::info, text);
}

void SocketTool::listens_at(const net::Url& url) {
  url_ = url;
  say(fmt::format("listens at {}", url.text()));
}

void SocketTool::unconnected(message::CloseReason reason, std::string_view trouble,
                             std::string_view other_kind) {
  open_ = false; // it is connected again
  if (moved_ == 0) given_up_before_ = context_->given_up(); // introductions
  if (ending_ || context_->given_up() > given_up_before_) delivered_ = false;
  reason_ = fmt::format("{}: {}", url_.text(), trouble);
  if (reason != message::CloseReason::wrong_kind) return;
  outcome_ = fail(ErrorKind::refused, fmt::format("{}: {}", url_.text(), other_kind));
  end();
}

void SocketTool::send_with(Offer offer, std::function<bool()> wanted) {
  offer_ = std::move(offer);
  wanted_ = std::move(wanted);
}

void SocketTool::count_subscribers() {
  if (!wanted_ || ending_ || wanted_() == is_wanted_) return;
  is_wanted_ = !is_wanted_;
  say(is_wanted_ ? "a subscriber is connected: publishing" : "no subscriber is left: waiting");
  if (is_wanted_ && next_ != Time{}) next_ = std::max(next_, clock_.now()); // no burst
  open(is_wanted_);
}

void SocketTool::open(bool open) {
  if (open && next_ == Time{}) next_ = first_ = clock_.now();
  open_ = open;
}

bool SocketTool::poll() {
  count_subscribers();
  if (!open_ || !offer_ || ending_) return false;
  const Time now = clock_.now();
  int sent = 0;
  while (open_ && sent < messages_per_turn && now >= next_ && send_one()) ++sent;
  if (sent > 0) last_ = clock_.now();
  if (open_ && now < next_) next_send_.start(context_->loop(), next_);
  return sent > 0;
}

// False: no further one.
bool SocketTool::send_one() {
  const net::SendOutcome outcome = offer_();
  open_ = outcome == net::SendOutcome::accepted;
  if (outcome == net::SendOutcome::too_large) {
    outcome_ =
        fail(ErrorKind::usage,
             fmt::format("--size {}: the other side takes only smaller messages", arguments_.size));
    end();
  }
  if (!open_) return false;
  next_ += period_;
  if (++moved_ == arguments_.count) {
    open_ = false;
    end();
  }
  return true;
}

void SocketTool::too_large_for_one() {
  if (!outcome_) return;
  outcome_ = fail(ErrorKind::usage,
                  fmt::format("--size {}: a subscriber takes only smaller messages, and gets none",
                              arguments_.size));
  terminal_.log(LogLevel::warning, outcome_.error().text);
}

void SocketTool::receiving() {
  if (moved_ == 0) first_ = clock_.now();
}

std::uint64_t SocketTool::left() const {
  return arguments_.count == 0 ? std::numeric_limits<std::uint64_t>::max()
                               : arguments_.count - moved_;
}

void SocketTool::received(std::uint64_t messages, std::uint64_t bytes) {
  if (messages == 0) return;
  last_ = clock_.now();
  moved_ += messages;
  received_bytes_ += bytes;
  if (arguments_.count != 0 && moved_ >= arguments_.count) end();
}

int SocketTool::run(const message::SocketCounters& counters, const std::function<void()>& close,
                    const std::function<bool()>& sent) {
  net::Loop& loop = context_->loop();
  begin_ = loop.now();
  net::Timer progress{[&] {
    show_progress(counters);
    progress.start(loop, loop.now() + progress_every);
  }};
  if (!arguments_.quiet) progress.start(loop, begin_ + progress_every);
  if (duration_.count() > 0) limit_.start(loop, begin_ + duration_);
  context_->run();
  ending_ = true;
  progress.cancel();
  terminal_.end_progress();
  if (duration_.count() > 0) limit_.start(loop, begin_ + duration_ + linger);
  if (offer_) waiting_.start(loop, loop.now() + soon); // others have sent nothing
  const std::uint64_t given_up = context_->given_up();
  close();
  const bool drained = context_->drain() && context_->given_up() == given_up;
  waiting_.cancel();
  delivered_ = delivered_ && drained && sent();
  return report(counters);
}

std::pair<std::uint64_t, std::uint64_t>
SocketTool::counted_of(const message::SocketCounters& counters) const {
  if (offer_) return {counters.messages, counters.bytes};
  return {moved_, received_bytes_};
}

void SocketTool::show_progress(const message::SocketCounters& counters) {
  const auto [messages, bytes] = counted_of(counters);
  const double interval = Seconds(progress_every).count();
  terminal_.progress(fmt::format(
      "{:5.0f} s  {} messages  {}  {}", Seconds(context_->loop().now() - begin_).count(), messages,
      format_rate(static_cast<double>(messages - shown_messages_) / interval),
      format_bandwidth(static_cast<double>(bytes - shown_bytes_) / interval)));
  shown_messages_ = messages;
  shown_bytes_ = bytes;
}

Result<> SocketTool::judge(const message::SocketCounters& counters) const {
  const bool met = offer_ ? next_ != Time{} : counters.connections > 0;
  if (!outcome_) return outcome_;
  if (!met && reason_.empty())
    return fail(ErrorKind::disconnected, fmt::format("{}: {}", url_.text(), arguments_.no_peer));
  if (!met) return fail(ErrorKind::disconnected, reason_);
  if (offer_ && !delivered_) {
    return fail(
        ErrorKind::disconnected,
        fmt::format("{}: gave up before the other side had taken all that was sent", url_.text()));
  }
  if (moved_ < arguments_.count) {
    return fail(ErrorKind::disconnected, fmt::format("{}: ended after {} of {}", url_.text(),
                                                     moved_, counted(arguments_.count, "message")));
  }
  return {};
}

int SocketTool::report(const message::SocketCounters& counters) {
  const Result<> verdict = judge(counters);
  const auto [messages, bytes] = counted_of(counters);
  // From the first message to the last; of a side that moved none there is neither.
  const Duration moving = last_ == Time{} ? Duration{} : last_ - first_;
  const double time = Seconds(moving).count();
  const auto rate = [time](std::uint64_t count) {
    return time > 0 ? static_cast<double>(count) / time : 0;
  };
  json::Value result;
  result["url"] = url_.text();
  result["messages"] = messages;
  result["bytes"] = bytes;
  result["duration_s"] = time;
  result["messages_per_s"] = rate(messages);
  result["bytes_per_s"] = rate(bytes);
  result["pages"] = counters.pages;
  result["skipped"] = counters.skipped;
  result["lost"] = counters.lost;
  result["connections"] = counters.connections;
  if (offer_) result["delivered"] = delivered_ && counters.skipped == 0;
  result["ok"] = verdict.has_value();
  result["error"] = verdict ? json::Value{} : json::Value{verdict.error().text};
  if (arguments_.json != "-") {
    print(fmt::format("{} of {} in {}: {}, {}\n", counted(messages, "message"), format_size(bytes),
                      format_duration(moving), format_rate(rate(messages)),
                      format_bandwidth(rate(bytes))));
  }
  int status = status_done;
  if (const auto written = json_->write_json(result); !written) status = complain(written.error());
  if (!verdict) status = complain(verdict.error());
  return status;
}

Result<int> run_tool(const ToolOptions& arguments,
                     const std::function<Result<int>(SocketTool&)>& live) {
  const auto tool = FANIN_TRY(SocketTool::make(arguments));
  return live(*tool);
}

} // namespace fanin::command
