// subscribe URL: prints how much is published under tag 7 until the publisher leaves.
#include <fanin/message/sockets.hpp>

#include <cstdio>

using namespace fanin;

int main(int, char** argv) {
  const auto context = message::Context::make().value();
  bool met = false;
  message::Message received;
  std::size_t messages = 0;
  message::Subscriber subscriber(*context, {.on_ready =
                                                [&] {
                                                  while (subscriber.recv(received)) ++messages;
                                                },
                                            .on_connected = [&](auto) { met = true; },
                                            .on_disconnected =
                                                [&](auto, auto) {
                                                  if (met) context->stop();
                                                }});
  if (!subscriber.subscribe(net::Url::parse(argv[1]).value(), 7, message::Mode::high_throughput))
    return 2;
  context->run();
  std::printf("%zu messages under tag 7\n", messages);
}
