// publish URL: waits for a subscriber of tag 7, and publishes a thousand messages under it.
#include <fanin/message/sockets.hpp>

#include <cstdio>
#include <span>
#include <string>

using namespace fanin;

int main(int argc, char** argv) try {
  if (argc != 2) return std::fputs("usage: publish URL\n", stderr), 2;
  const auto context = message::Context::make().value();
  const auto begin = [&](message::Tag tag) {
    if (tag == 7) context->stop();
  };
  const auto publisher = message::Publisher::listen(
                             *context, net::Url::parse(argv[1]).value(),
                             {.slow = message::SlowSubscriber::block, .on_first_subscriber = begin})
                             .value();
  context->run(); // sleeps until there is one
  for (int i = 0; i < 1000; ++i) {
    const std::string text = "event " + std::to_string(i);
    while (publisher->publish(7, std::as_bytes(std::span(text))) == net::SendOutcome::backpressure)
      context->turn();
  }
  publisher->close();
  context->drain(); // until everything is delivered
} catch (const std::bad_expected_access<Error>& failed) { // of a value() that is none
  return std::fprintf(stderr, "%s\n", failed.error().text.c_str()), 1;
}
