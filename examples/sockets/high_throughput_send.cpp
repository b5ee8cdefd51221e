// high_throughput_send URL: a million messages, gathered in pages.
#include <fanin/message/sockets.hpp>

#include <array>
#include <cstdio>

using namespace fanin;

int main(int argc, char** argv) try {
  if (argc != 2) return std::fputs("usage: high_throughput_send URL\n", stderr), 2;
  const auto context = message::Context::make().value();
  const auto sender =
      message::HighThroughputSender::connect(*context, net::Url::parse(argv[1]).value(),
                                             {.on_connected = [&] { context->stop(); }})
          .value();
  context->run(); // tries until somebody listens there
  std::array<std::byte, 200> message{};
  for (int i = 0; i < 1'000'000; ++i) {
    while (sender->send(message) == net::SendOutcome::backpressure) context->turn();
  }
  sender->close();
  context->drain(); // until everything is delivered
} catch (const std::bad_expected_access<Error>& failed) { // of a value() that is none
  return std::fprintf(stderr, "%s\n", failed.error().text.c_str()), 1;
}
