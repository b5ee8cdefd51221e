// low_latency_send URL MESSAGE...: sends each at once.
#include <fanin/message/sockets.hpp>

#include <span>
#include <string_view>

using namespace fanin;

int main(int argc, char** argv) {
  const auto context = message::Context::make().value();
  const auto sender = message::LowLatencySender::connect(*context, net::Url::parse(argv[1]).value(),
                                                         {.on_connected = [&] { context->stop(); }})
                          .value();
  context->run(); // tries until somebody listens there
  for (int i = 2; i < argc; ++i) {
    const std::string_view text = argv[i];
    while (sender->send(std::as_bytes(std::span(text))) == net::SendOutcome::backpressure)
      context->turn();
  }
  sender->close();
  context->drain(); // until everything is delivered
}
