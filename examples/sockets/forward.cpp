// forward FROM TO: sends on to TO what it receives at FROM, until the sender leaves.
#include <fanin/message/sockets.hpp>

#include <cstdio>

using namespace fanin;

int main(int argc, char** argv) try {
  if (argc != 3) return std::fputs("usage: forward FROM TO\n", stderr), 2;
  const auto context = message::Context::make().value();
  std::unique_ptr<message::HighThroughputSender> sender;
  std::unique_ptr<message::HighThroughputReceiver> receiver;
  message::Message held; // the one to send; used again, since it holds the page it is in
  bool waits = false; // `held` could not be sent
  bool left = false; // the sender before us
  // A callback must not wait, nor call turn(). While `held` waits, nothing is received. So the
  // receive pages fill, and the sender before us gets backpressure in its turn.
  const auto forward = [&] {
    while (waits || receiver->recv(held)) {
      const net::SendOutcome outcome = sender->send(held.bytes());
      waits = outcome == net::SendOutcome::backpressure || outcome == net::SendOutcome::closed;
      if (waits) return; // until on_writable, or on_connected
    }
    if (left) context->stop();
  };
  sender = message::HighThroughputSender::connect(*context, net::Url::parse(argv[2]).value(),
                                                  {.on_connected = forward, .on_writable = forward})
               .value();
  const auto leave = [&](auto, auto) {
    left = true;
    forward(); // what is queued
  };
  receiver =
      message::HighThroughputReceiver::listen(*context, net::Url::parse(argv[1]).value(),
                                              {.on_ready = forward, .on_disconnected = leave})
          .value();
  context->run();
  sender->close();
  context->drain(); // until everything is delivered
} catch (const std::bad_expected_access<Error>& failed) { // of a value() that is none
  return std::fprintf(stderr, "%s\n", failed.error().text.c_str()), 1;
}
