// high_throughput_receive URL: counts messages until the sender leaves.
#include <fanin/message/sockets.hpp>

#include <cstdio>

using namespace fanin;

int main(int, char** argv) {
  const auto context = message::Context::make().value();
  std::unique_ptr<message::HighThroughputReceiver> receiver;
  message::Message received; // used again, since it holds the page it is in
  std::size_t bytes = 0;
  const auto read = [&] {
    while (receiver->recv(received)) bytes += received.bytes().size();
  };
  receiver = message::HighThroughputReceiver::listen(
                 *context, net::Url::parse(argv[1]).value(),
                 {.on_ready = read, .on_disconnected = [&](auto, auto) { context->stop(); }})
                 .value();
  context->run();
  std::printf("%zu messages, %zu bytes\n", static_cast<std::size_t>(receiver->counters().messages),
              bytes);
}
