// subscribe URL: prints how much is published under tag 7 until the publisher leaves.
#include <fanin/message/sockets.hpp>

#include <cstdio>

using namespace fanin;

int main(int argc, char** argv) try {
  if (argc != 2) return std::fputs("usage: subscribe URL\n", stderr), 2;
  const auto context = message::Context::make().value();
  bool met = false;
  message::Message received;
  std::size_t messages = 0;
  std::unique_ptr<message::Subscriber> subscriber;
  subscriber = message::Subscriber::make(*context, {.on_ready =
                                                        [&] {
                                                          while (subscriber->recv(received))
                                                            ++messages;
                                                        },
                                                    .on_connected = [&](auto) { met = true; },
                                                    .on_disconnected =
                                                        [&](auto, auto) {
                                                          if (met) context->stop();
                                                        }});
  (void)subscriber->subscribe(net::Url::parse(argv[1]).value(), 7, message::Mode::high_throughput)
      .value();
  context->run();
  std::printf("%zu messages under tag 7\n", messages);
} catch (const std::bad_expected_access<Error>& failed) { // of a value() that is none
  return std::fprintf(stderr, "%s\n", failed.error().text.c_str()), 1;
}
