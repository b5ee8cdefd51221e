// low_latency_send URL MESSAGE...: sends each at once.
#include <fanin/message/sockets.hpp>

#include <cstdio>
#include <span>
#include <string_view>

using namespace fanin;

int main(int argc, char** argv) try {
  if (argc < 3) return std::fputs("usage: low_latency_send URL MESSAGE...\n", stderr), 2;
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
} catch (const std::bad_expected_access<Error>& failed) { // of a value() that is none
  return std::fprintf(stderr, "%s\n", failed.error().text.c_str()), 1;
}
