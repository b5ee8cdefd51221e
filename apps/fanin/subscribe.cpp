// fanin subscribe: counts what is published under some tags.
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/message/sockets.hpp"
#include "reading.hpp"
#include "socket_tool.hpp"

namespace fanin::command {
namespace {

struct SubscribeOptions : ToolOptions {
  std::vector<message::Tag> tags;
};

Result<int> run_subscriber(SocketTool& tool, const SubscribeOptions& arguments) {
  message::Message message;
  std::unique_ptr<message::Subscriber> socket;
  message::SubscriberOptions options;
  options.on_message = [&tool](message::Message&) {
    tool.receiving();
    tool.received(1);
  };
  options.on_ready = [&] {
    tool.receiving();
    std::uint64_t messages = 0;
    while (socket->recv(message)) ++messages;
    message = {};
    tool.received(messages);
  };
  options.on_connected = [&tool](auto) {
    tool.say(fmt::format("connected to {}", tool.url().text()));
  };
  options.on_disconnected = [&tool](auto, auto reason) {
    tool.unconnected(reason, "the other side is no publisher; use fanin send for a receiver");
  };
  socket = std::make_unique<message::Subscriber>(tool.context(), std::move(options));
  for (const message::Tag tag : arguments.tags) {
    const auto subscribed = socket->subscribe(tool.url(), tag, tool.mode());
    if (!subscribed) return std::unexpected(subscribed.error());
  }
  return tool.run(socket->counters(), [&socket] { socket->close(); });
}

} // namespace

void add_subscribe(CLI::App& app, int& status) {
  auto arguments = std::make_shared<SubscribeOptions>();
  arguments->connects = true;
  CLI::App* command =
      app.add_subcommand("subscribe", "Receive what is published with the given tags");
  add_tool_options(*command, *arguments);
  add_mode_option(*command, *arguments);
  command->add_option("--tag", arguments->tags, "Numbers")->required()->check(natural_number(0));
  command->callback([arguments, &status] {
    status =
        run_tool(*arguments, [&](SocketTool& tool) { return run_subscriber(tool, *arguments); });
  });
}

} // namespace fanin::command
