#include "fanin/net/stream/stream_connector.hpp"

#include <utility>

namespace fanin::net {

StreamConnector::StreamConnector(Loop& loop, Streams& streams, Url url,
                                 std::function<void()> on_answer)
    : loop_(loop),
      streams_(streams),
      url_(std::move(url)),
      question_([this, answered = std::move(on_answer)](const Resolver::Found& found) {
        found_ = found;
        answered();
      }) {
  ask();
}

void StreamConnector::ask() {
  Resolver& resolver = loop_.resolver();
  if (!addresses_.empty()) resolver.forget(url_.host);
  found_ = resolver.ask(url_.host, question_);
}

Result<std::unique_ptr<Stream>> StreamConnector::connect() {
  if (const auto found = std::exchange(found_, {})) {
    failed_ = 0;
    if (*found) {
      addresses_ = **found;
      address_ = 0;
    } else if (addresses_.empty()) {
      return std::unexpected(found->error());
    }
  }
  if (addresses_.empty()) return nullptr;
  Address& address = addresses_[address_];
  if (address.port() == 0) address.set_port(url_.port);
  return streams_.connect(address);
}

void StreamConnector::failed() {
  if (++address_ >= addresses_.size()) address_ = 0;
  if (++failed_ >= addresses_.size() && !found_ && !question_.waits()) ask();
}

void StreamConnector::answered() {
  failed_ = 0;
  found_.reset(); // of before: this address is right
  question_.withdraw();
}

} // namespace fanin::net
