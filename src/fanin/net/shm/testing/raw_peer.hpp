// A peer of shm:// made by hand, which can say and write whatever it likes.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/net/shm/lent_memory.hpp"
#include "fanin/net/shm/outbox.hpp"
#include "fanin/net/shm/packet.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net::shm {

inline Descriptor make_sealed(std::size_t size, int seals = F_SEAL_SHRINK) {
  Descriptor file(memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  FANIN_ASSERT(file && ftruncate(file.get(), static_cast<off_t>(size)) == 0);
  if (seals != 0) FANIN_ASSERT(fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

class RawPeer {
public:
  explicit RawPeer(const Url& url)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        file_(make_sealed(sizeof(Outbox))) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "fanin/shm/" + url.host + ":" + std::to_string(url.port);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    FANIN_ASSERT(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    void* const memory =
        mmap(nullptr, sizeof(Outbox), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    FANIN_ASSERT(memory != MAP_FAILED);
    outbox_ = new (memory) Outbox;
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer() { munmap(outbox_, sizeof(Outbox)); }

  void say(std::span<const std::byte> bytes, std::vector<int> descriptors) const {
    PacketBytes packet{};
    std::memcpy(packet.data(), bytes.data(), std::min(bytes.size(), packet.size()));
    (void)send_packet(socket_.get(), packet, descriptors);
  }
  void say_hello(const Hello& hello = {.max_message = 4096}) const {
    say(encode(hello), {file_.get(), wake_.get()});
  }
  void announce(const Descriptor& memory, std::uint64_t size) const {
    say(encode(Memory{size}), {memory.get()});
  }
  void put(const Record& record, std::span<const Piece> pieces = {}) {
    std::byte* const at = outbox_->units.data() + std::size_t{written_ % units_max} * unit_size;
    std::memcpy(at, &record, sizeof record);
    if (!pieces.empty()) std::memcpy(at + sizeof record, pieces.data(), pieces.size_bytes());
    written_ += units_of(sizeof record + pieces.size_bytes());
    outbox_->written = written_;
  }
  [[nodiscard]] Outbox& outbox() { return *outbox_; }
  [[nodiscard]] const Descriptor& socket() const { return socket_; }
  [[nodiscard]] const Descriptor& wake() const { return wake_; }
  [[nodiscard]] const Descriptor& file() const { return file_; }

private:
  Descriptor socket_;
  Descriptor wake_;
  Descriptor file_;
  Outbox* outbox_ = nullptr;
  std::uint32_t written_ = first_count;
};

} // namespace fanin::net::shm
