// fanin publish: messages under a tag, to whoever has subscribed.
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/try.hpp"
#include "fanin/message/sockets.hpp"
#include "reading.hpp"
#include "socket_tool.hpp"

namespace fanin::command {
namespace {

struct PublishOptions : ToolOptions {
  message::Tag tag = 0;
  std::string slow = "block";
};

message::SlowSubscriber slow_of(const PublishOptions& arguments) {
  if (arguments.slow == "disconnect") return message::SlowSubscriber::disconnect;
  if (arguments.slow == "sample") return message::SlowSubscriber::sample;
  return message::SlowSubscriber::block;
}

Result<int> run_publisher(SocketTool& tool, const PublishOptions& arguments) {
  std::unique_ptr<message::Publisher> socket;
  message::PublisherOptions options;
  options.slow = slow_of(arguments);
  options.on_subscriber = [&](auto peer) {
    tool.say_of_peer(fmt::format("{} has connected", socket->peer_name(peer)));
  };
  options.on_subscriber_gone = [&](auto, auto reason) {
    tool.say_of_peer(fmt::format("a subscriber has left: {}", name(reason)));
  };
  options.on_writable = [&tool] { tool.open(); };
  socket = FANIN_TRY(message::Publisher::listen(tool.context(), tool.url(), std::move(options)));
  tool.listens_at(socket->url());
  // A connection comes before its subscriptions, so on_subscriber is too early to publish.
  tool.send_with(
      [&] {
        const net::SendOutcome outcome = socket->publish(arguments.tag, tool.message());
        if (socket->counters().too_large > 0) tool.too_large_for_one();
        return outcome;
      },
      [&] { return socket->has_subscriber(arguments.tag); });
  return tool.run(socket->counters(), [&socket] { socket->close(); });
}

} // namespace

void add_publish(CLI::App& app, int& status) {
  auto arguments = std::make_shared<PublishOptions>();
  arguments->no_peer = "no subscriber of that tag has connected";
  CLI::App* command = app.add_subcommand("publish", "Publish messages with a tag");
  add_tool_options(*command, *arguments);
  add_message_options(*command, *arguments);
  add_peers_option(*command, *arguments);
  command->add_option("--tag", arguments->tag, "A number")->required()->check(natural_number(0));
  command
      ->add_option("--slow", arguments->slow,
                   "A subscriber that does not read: disconnect, block (all wait), sample")
      ->check(CLI::IsMember({"disconnect", "block", "sample"}));
  command->callback([arguments, &status] {
    status = status_of(
        run_tool(*arguments, [&](SocketTool& tool) { return run_publisher(tool, *arguments); }));
  });
}

} // namespace fanin::command
