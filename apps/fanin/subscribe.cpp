// fanin subscribe: counts what is published under some tags, or shows events.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/counted.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/message/sockets.hpp"
#include "fanin/wire/super_fragment.hpp"
#include "reading.hpp"
#include "socket_tool.hpp"

namespace fanin::command {
namespace {

struct SubscribeOptions : ToolOptions {
  std::vector<message::Tag> tags;
  bool events = false; // the messages are events that a builder unit publishes: show each
};

// A line about a published event, whatever the bytes are.
std::string event_text(std::span<const std::byte> bytes) {
  wire::SuperHeader header;
  if (bytes.size() < sizeof header) return "no event\n";
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::uint64_t most = (bytes.size() - sizeof header) / sizeof(wire::SuperEntry);
  const std::size_t count = std::min<std::uint64_t>(header.count, most);
  const wire::SuperHead head(bytes, bytes.size(), count);
  if (!head.good()) return "no event\n";
  std::string missing;
  std::string damaged;
  std::size_t fragments = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const wire::SuperEntry one = head.entry(i);
    if (one.entry.absent()) {
      missing += fmt::format("{} {:#x}", missing.empty() ? ", missing" : ",", one.source);
    } else {
      ++fragments;
      if (one.entry.flags() != 0)
        damaged += fmt::format("{} {:#x}", damaged.empty() ? ", damaged" : ",", one.source);
    }
  }
  return fmt::format(
      "run {} event {}: {}, {}{}{}{}\n", header.run, header.event, counted(fragments, "fragment"),
      format_size(bytes.size() - wire::super_head_size(count)),
      (header.flags & wire::super_incomplete) != 0 ? ", incomplete" : "", missing, damaged);
}

void show(message::Message& event) {
  print(event_text(event.bytes()));
  (void)std::fflush(stdout); // who looks at it wants to see it now
}

Result<int> run_subscriber(SocketTool& tool, const SubscribeOptions& arguments) {
  message::Message message;
  std::unique_ptr<message::Subscriber> socket;
  message::SubscriberOptions options;
  options.on_message = [&](message::Message& one) {
    tool.receiving();
    if (tool.left() == 0) return;
    if (arguments.events) show(one);
    tool.received(1, one.size());
  };
  options.on_ready = [&] {
    tool.take_all(*socket, message, [&](message::Message& one) {
      if (arguments.events) show(one);
    });
  };
  options.on_connected = [&tool](auto) {
    tool.say(fmt::format("connected to {}", tool.url().text()));
  };
  options.on_disconnected = [&](auto, auto reason) {
    tool.unconnected(reason, socket->trouble(),
                     "the other side is no publisher; use fanin send for a receiver");
  };
  socket = message::Subscriber::make(tool.context(), std::move(options));
  for (const message::Tag tag : arguments.tags)
    FANIN_TRY(socket->subscribe(tool.url(), tag, tool.mode()));
  return tool.run(socket->counters(), [&socket] { socket->close(); });
}

} // namespace

void add_subscribe(CLI::App& app, int& status) {
  auto arguments = std::make_shared<SubscribeOptions>();
  arguments->connects = true;
  CLI::App* command =
      app.add_subcommand("subscribe", "Receive what is published with the given tags");
  command->add_flag("--events", arguments->events,
                    "Show each event that a builder unit publishes; --tag is 0 by default");
  add_tool_options(*command, *arguments);
  add_mode_option(*command, *arguments);
  command->add_option("--tag", arguments->tags, "Numbers")->check(natural_number(0));
  command->callback([arguments, &status] {
    if (arguments->tags.empty() && !arguments->events) throw CLI::RequiredError("--tag");
    if (arguments->tags.empty()) arguments->tags = {0};
    status = status_of(
        run_tool(*arguments, [&](SocketTool& tool) { return run_subscriber(tool, *arguments); }));
  });
}

} // namespace fanin::command
