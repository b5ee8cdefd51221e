#include "fanin/message/listening_socket.hpp"

#include "fanin/message/acceptor.hpp"

namespace fanin::message {

ListeningSocket::ListeningSocket() = default;

ListeningSocket::~ListeningSocket() = default;

Result<net::Url> ListeningSocket::also_listen(const net::Url& url) {
  return acceptor_->listen(url);
}

std::string ListeningSocket::peer_name(PeerId id) const {
  const auto peer = acceptor_->find(id);
  return peer == nullptr ? "" : peer->name;
}

std::size_t ListeningSocket::connections() const { return acceptor_->peers(); }

void ListeningSocket::close() { acceptor_->close(); }

} // namespace fanin::message
