// fanin receive: counts what fanin send, or any send socket, sends.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/try.hpp"
#include "fanin/message/sockets.hpp"
#include "socket_tool.hpp"

namespace fanin::command {
namespace {

template <class Socket, class Options>
Result<int> receive_through(SocketTool& tool, std::unique_ptr<Socket>& socket, Options options) {
  options.on_connected = [&tool, &socket](auto peer) {
    tool.say_of_peer(fmt::format("{} has connected", socket->peer_name(peer)));
  };
  options.on_disconnected = [&tool](auto, auto reason) {
    tool.say_of_peer(fmt::format("a connection has ended: {}", name(reason)));
  };
  socket = FANIN_TRY(Socket::listen(tool.context(), tool.url(), std::move(options)));
  tool.listens_at(socket->url());
  return tool.run(socket->counters(), [&socket] { socket->close(); });
}

Result<int> run_receiver(SocketTool& tool) {
  if (tool.mode() == message::Mode::low_latency) {
    std::unique_ptr<message::LowLatencyReceiver> socket;
    message::LowLatencyReceiverOptions options;
    options.on_message = [&tool](message::Message& one) {
      tool.receiving();
      if (tool.left() > 0) tool.received(1, one.size());
    };
    return receive_through(tool, socket, std::move(options));
  }
  message::Message message;
  std::unique_ptr<message::HighThroughputReceiver> socket;
  message::HighThroughputReceiverOptions options;
  options.on_ready = [&] { tool.take_all(*socket, message, [](const auto&) {}); };
  return receive_through(tool, socket, std::move(options));
}

} // namespace

void add_receive(CLI::App& app, int& status) {
  auto arguments = std::make_shared<ToolOptions>();
  arguments->no_peer = "no sender has connected";
  CLI::App* command = app.add_subcommand("receive", "Receive messages and count them");
  add_tool_options(*command, *arguments);
  add_mode_option(*command, *arguments);
  add_peers_option(*command, *arguments);
  command->callback(
      [arguments, &status] { status = status_of(run_tool(*arguments, run_receiver)); });
}

} // namespace fanin::command
