#include "fanin/net/socket_listeners.hpp"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace fanin::net {
namespace {

// Why accept() failed for one connection, which is gone: the next may be good.
bool is_of_one_connection(int error) {
  switch (error) {
  case EINTR:
  case ECONNABORTED:
  case EPROTO: // and these are passed on from the network (accept(2))
  case ENETDOWN:
  case ENOPROTOOPT:
  case EHOSTDOWN:
  case ENONET:
  case EHOSTUNREACH:
  case EOPNOTSUPP:
  case ENETUNREACH: return true;
  default: return false;
  }
}

} // namespace

SocketListeners::Listener::Listener(SocketListeners& owner, const ConnectionOptions& given,
                                    Url real, Descriptor bound)
    : options(given),
      url(std::move(real)),
      socket(std::move(bound)),
      pause([this, &owner] { owner.waiting_.add(waiting); }) {}

Result<ListenerId> SocketListeners::add(const ConnectionOptions& options, Url real,
                                        Descriptor socket, int epoll) {
  const int descriptor = socket.get();
  const auto [id, listener] =
      listeners_.emplace(*this, options, std::move(real), std::move(socket));
  listener.id = id;
  epoll_event event{.events = EPOLLIN | EPOLLET,
                    .data = {.u64 = static_cast<std::uint64_t>(id) | epoll_bit}};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0) return id;
  const int error = errno;
  const std::string text = fmt::format("{}: epoll", listener.url.text());
  listeners_.erase(id);
  return fail_errno(ErrorKind::exhausted, text, error);
}

Url SocketListeners::url(ListenerId id) const {
  const Listener* const found = listeners_.find(id);
  return found == nullptr ? Url{} : found->url;
}

bool SocketListeners::close(ListenerId id) {
  if (listeners_.find(id) == nullptr) return false;
  listeners_.erase(id);
  return true;
}

void SocketListeners::mark_waiting(ListenerId id) {
  if (Listener* const listener = listeners_.find(id)) waiting_.add(listener->waiting);
}

void SocketListeners::pause(Listener& listener) {
  listener.pause.start(loop_, loop_.now() + pause_);
}

bool SocketListeners::may_go_on(Listener& listener, int error) {
  if (error == EAGAIN) return false;
  if (is_of_one_connection(error)) return true;
  pause_after_failure(listener, std::strerror(error));
  return false;
}

void SocketListeners::pause_after_failure(Listener& listener, std::string_view text) {
  ++accounts_.accept_failures;
  pause(listener);
  accounts_.report(CloseReason::local, listener.url.text(),
                   fmt::format("accept: {}; raise the limit of open files (ulimit -n)", text));
}

} // namespace fanin::net
