// fanin send: messages to a fanin receive, or to any receive socket.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/try.hpp"
#include "fanin/message/sockets.hpp"
#include "socket_tool.hpp"

namespace fanin::command {
namespace {

// The answer does not say what the other side is.
std::string_view other_kind(message::Mode mode) {
  return mode == message::Mode::low_latency
             ? "the other side is no low-latency receiver: try --mode high-throughput, or fanin "
               "subscribe if it publishes"
             : "the other side is no high-throughput receiver: try --mode low-latency, or fanin "
               "subscribe if it publishes";
}

template <class Socket, class Options>
Result<int> send_through(SocketTool& tool) {
  Options options;
  options.on_connected = [&tool] {
    tool.say(fmt::format("connected to {}", tool.url().text()));
    tool.open();
  };
  std::unique_ptr<Socket> socket;
  options.on_disconnected = [&](auto reason) {
    tool.unconnected(reason, socket->trouble(), other_kind(tool.mode()));
  };
  options.on_writable = [&tool] { tool.open(); };
  socket = FANIN_TRY(Socket::connect(tool.context(), tool.url(), std::move(options)));
  tool.send_with([&tool, &socket] { return socket->send(tool.message()); });
  const auto sent = [&] {
    if constexpr (requires { socket->sent(); }) return socket->sent();
    return true;
  };
  return tool.run(socket->counters(), [&socket] { socket->close(); }, sent);
}

Result<int> run_sender(SocketTool& tool) {
  if (tool.mode() == message::Mode::low_latency)
    return send_through<message::LowLatencySender, message::LowLatencySenderOptions>(tool);
  return send_through<message::HighThroughputSender, message::HighThroughputSenderOptions>(tool);
}

} // namespace

void add_send(CLI::App& app, int& status) {
  auto arguments = std::make_shared<ToolOptions>();
  arguments->connects = true;
  CLI::App* command = app.add_subcommand("send", "Send messages to a receiver");
  add_tool_options(*command, *arguments);
  add_message_options(*command, *arguments);
  add_mode_option(*command, *arguments);
  command->callback([arguments, &status] { status = status_of(run_tool(*arguments, run_sender)); });
}

} // namespace fanin::command
