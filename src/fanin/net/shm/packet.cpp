#include "fanin/net/shm/packet.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <cstring>

namespace fanin::net::shm {
namespace {

static_assert(std::endian::native == std::endian::little, "packets are little-endian");

constexpr char hello_magic[] = "FANINSHM";
constexpr char memory_magic[] = "FANINMEM";
constexpr std::size_t magic_size = 8;
constexpr std::size_t version_at = 10;

template <class T>
void put(PacketBytes& to, std::size_t at, const T& value) {
  std::memcpy(to.data() + at, &value, sizeof value);
}
template <class T>
void get(std::span<const std::byte> from, std::size_t at, T& value) {
  std::memcpy(&value, from.data() + at, sizeof value);
}

} // namespace

PacketBytes encode(const Hello& hello) {
  PacketBytes bytes{};
  std::memcpy(bytes.data(), hello_magic, magic_size);
  put(bytes, version_at, hello.version);
  put(bytes, 12, hello.max_message);
  put(bytes, 16, hello.outbox_size);
  return bytes;
}

PacketBytes encode(const Memory& memory) {
  PacketBytes bytes{};
  std::memcpy(bytes.data(), memory_magic, magic_size);
  put(bytes, 8, memory.size);
  return bytes;
}

Result<std::variant<Hello, Memory>> decode(std::span<const std::byte> packet) {
  if (packet.size() != packet_size) return fail(ErrorKind::malformed, "packet of a wrong size");
  if (std::memcmp(packet.data(), hello_magic, magic_size) == 0) {
    Hello hello;
    get(packet, version_at, hello.version);
    get(packet, 12, hello.max_message);
    get(packet, 16, hello.outbox_size);
    return hello;
  }
  if (std::memcmp(packet.data(), memory_magic, magic_size) == 0) {
    Memory memory;
    get(packet, 8, memory.size);
    if (memory.size == 0) return fail(ErrorKind::malformed, "memory of size 0");
    return memory;
  }
  return fail(ErrorKind::malformed, "a packet that is not one of shm://");
}

namespace {

union ControlBuffer {
  cmsghdr header;
  std::byte bytes[CMSG_SPACE(descriptors_max * sizeof(int))];
};

enum class Taken : std::uint8_t { all, too_many, no_room };

// Takes what came with a packet.
Taken take_descriptors(msghdr& message, ReceivedPacket& packet) {
  std::size_t count = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t here = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < here; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof(int), sizeof number);
      Descriptor descriptor(number);
      if (count < descriptors_max) packet.descriptors[count] = std::move(descriptor);
      ++count;
    }
  }
  if (count > descriptors_max) return Taken::too_many;
  if ((message.msg_flags & MSG_CTRUNC) == 0) return Taken::all;
  // The kernel stops where the process has no room for another one.
  return count == descriptors_max ? Taken::too_many : Taken::no_room;
}

ssize_t receive(int socket, msghdr& message, int flags) {
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  return got;
}

ErrorKind kind_of(int error) {
  if (error == EAGAIN) return ErrorKind::not_found;
  return error == ECONNRESET ? ErrorKind::disconnected : ErrorKind::exhausted;
}

} // namespace

bool send_packet(int socket, const PacketBytes& bytes, std::span<const int> descriptors) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

// Looked at first: a packet whose descriptors found no room must not be gone.
Result<ReceivedPacket> receive_packet(int socket) {
  ReceivedPacket packet;
  iovec piece{packet.bytes.data(), packet.bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t got = receive(socket, message, MSG_PEEK);
  if (got < 0) return fail_errno(kind_of(errno), "recvmsg", errno);
  packet.size = static_cast<std::size_t>(got);
  const bool too_long = (message.msg_flags & MSG_TRUNC) != 0;
  const Taken taken = take_descriptors(message, packet);
  if (taken == Taken::no_room)
    return fail(ErrorKind::exhausted,
                "no descriptor is left for its memory, and its messages wait: raise `ulimit -n`");
  msghdr nothing{};
  if (receive(socket, nothing, 0) < 0) return fail_errno(kind_of(errno), "recvmsg", errno);
  if (taken == Taken::too_many || too_long)
    return fail(ErrorKind::malformed, "packet that is too long or has too many descriptors");
  return packet;
}

bool has_hung_up(int socket) {
  pollfd one{.fd = socket, .events = 0, .revents = 0};
  return ::poll(&one, 1, 0) == 1 && (one.revents & POLLHUP) != 0;
}

} // namespace fanin::net::shm
