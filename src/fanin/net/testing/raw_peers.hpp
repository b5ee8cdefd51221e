// For the tests: peers of the transports of this library that are made by hand.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>

#include <gtest/gtest.h>

#include "fanin/net/address.hpp"
#include "fanin/net/conformance/backend.hpp"
#include "fanin/net/shm/testing/raw_peer.hpp"
#include "fanin/net/tcp/frame.hpp"

namespace fanin::net::conformance {

// Of tcp://, and of what makes its connections with one of TCP.
class RawTcpPeer final : public RawPeer {
public:
  explicit RawTcpPeer(const Url& url) {
    const auto addresses = resolve(url, false);
    const Address& to = addresses.value().front();
    socket_ = Descriptor(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket_.get(), to.get(), to.length), 0);
  }
  bool begin_message(std::uint32_t size) override {
    std::array<std::byte, tcp::preface_size + tcp::header_size + 1> bytes{};
    const auto all = std::span(bytes);
    tcp::encode_preface(all.first<tcp::preface_size>(), {.max_message = 1000});
    tcp::encode_header(all.subspan<tcp::preface_size, tcp::header_size>(), size);
    return ::send(socket_.get(), all.data(), all.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(all.size());
  }

private:
  Descriptor socket_;
};

// Of a provider that makes its connections over TCP.
class RawSocket final : public RawPeer {
public:
  explicit RawSocket(const Url& url) : peer_(url) {}

private:
  RawTcpPeer peer_;
};

class RawShmPeer final : public RawPeer {
public:
  explicit RawShmPeer(const Url& url) : peer_(url) {}

private:
  shm::RawPeer peer_;
};

// Null: the network of the address has no connections that could be made so. One of verbs:// is
// requested with an introduction; verbs_test.cpp requests some with a wrong one, or with none.
inline std::unique_ptr<RawPeer> connect_raw(const Url& url) {
  if (url.network() == "verbs") return nullptr;
  if (url.scheme.find("ofi+") != std::string::npos) return std::make_unique<RawSocket>(url);
  if (url.network() == "tcp") return std::make_unique<RawTcpPeer>(url);
  if (url.network() == "shm") return std::make_unique<RawShmPeer>(url);
  return nullptr;
}

} // namespace fanin::net::conformance
