// high_throughput_send URL: a million messages, gathered in pages.
#include <fanin/message/sockets.hpp>

#include <array>

using namespace fanin;

int main(int, char** argv) {
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
}
