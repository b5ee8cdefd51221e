// high_throughput_receive URL: counts messages until the sender leaves.
#include <fanin/message/sockets.hpp>

#include <cstdio>

using namespace fanin;

int main(int argc, char** argv) try {
  if (argc != 2) return std::fputs("usage: high_throughput_receive URL\n", stderr), 2;
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
} catch (const std::bad_expected_access<Error>& failed) { // of a value() that is none
  return std::fprintf(stderr, "%s\n", failed.error().text.c_str()), 1;
}
