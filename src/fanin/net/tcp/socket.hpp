// Small things about sockets: owning one, addresses, options.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net::tcp {

class Descriptor {
public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() { reset(); }
  void reset();
  [[nodiscard]] int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

private:
  int descriptor_ = -1;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string host() const;
};

// The addresses of a host, numeric ones without asking anybody; an empty host is loopback. Blocks
// for as long as the host's resolver does. Errors: not_found, and disconnected where asking again
// may help.
[[nodiscard]] Result<std::vector<Address>> resolve(const Url& url, bool to_listen);

[[nodiscard]] Address local_address(int socket);
[[nodiscard]] Address peer_address(int socket);

// "tcp://10.0.0.1:7000"
[[nodiscard]] std::string address_text(const Address& address);

[[nodiscard]] std::string error_text(int error);

// Makes closing send a reset and forget what was not delivered.
void set_reset_on_close(const Descriptor& socket);

// Wanted by every connection; none of them is an error where it is missing.
void set_stream_options(int socket, const std::string& congestion);

} // namespace fanin::net::tcp
