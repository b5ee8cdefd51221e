// low_latency_receive URL: prints each message as it comes, until "bye".
#include <fanin/message/sockets.hpp>

#include <cstdio>
#include <string>
#include <string_view>

using namespace fanin;

int main(int argc, char** argv) try {
  if (argc != 2) return std::fputs("usage: low_latency_receive URL\n", stderr), 2;
  const auto context = message::Context::make().value();
  const auto print = [&](message::Message& received) {
    const auto bytes = received.bytes(); // valid in here; to keep it, move the message
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::puts(std::string(text).c_str());
    if (text == "bye") context->stop();
  };
  const auto receiver = message::LowLatencyReceiver::listen(
                            *context, net::Url::parse(argv[1]).value(), {.on_message = print})
                            .value();
  context->run();
} catch (const std::bad_expected_access<Error>& failed) { // of a value() that is none
  return std::fprintf(stderr, "%s\n", failed.error().text.c_str()), 1;
}
