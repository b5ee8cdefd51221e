/// \file
/// Byte streams in virtual time: what the kernels of all hosts do with them, also of hosts whose
/// process stands still. Bytes take a time, buffers are bounded in both directions, reads and
/// writes are cut at random boundaries, and connections are refused, broken and held back, as over
/// TCP. Latencies and broken paths are those of messages (in_memory/network.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/random.hpp"
#include "fanin/net/in_memory/network.hpp"
#include "fanin/net/stream/stream.hpp"

namespace fanin::net::in_memory {

struct BytePipe;
class HostStreams;

/// Of one side of a connection.
struct ByteEnd {
  std::uint32_t host = 0;
  Stream* stream = nullptr; ///< null: not accepted yet, or closed
  bool open = false; ///< it was connected
  bool closed = false; ///< by its process
  int error = 0; ///< it is lost
  Time last_due{}; ///< keeps the order of what goes to the other end
  /// reading
  std::vector<std::byte> received;
  std::size_t taken = 0; ///< of them
  std::size_t room_to_report = 0; ///< of what was taken
  bool end_came = false;
  bool end_wanted = false; ///< end_reading()
  /// writing
  std::size_t unread = 0; ///< bytes that the peer may not have read yet
  std::size_t unanswered = 0; ///< bytes that its host does not have, as far as is known
  Time answered_at{}; ///< since when that is so
  bool end_sent = false;
};

class ByteNetwork {
public:
  /// `buffer`: bytes of a connection in one direction that are written and not read.
  ByteNetwork(Network& network, std::uint64_t seed, std::size_t buffer);
  ~ByteNetwork();
  ByteNetwork(const ByteNetwork&) = delete;
  ByteNetwork& operator=(const ByteNetwork&) = delete;

  /// Called when something has come to the process of a host.
  std::function<void(std::uint32_t)> on_event;

  void add_host(std::string name); ///< numbered from 0 on
  [[nodiscard]] std::optional<Address> find(const std::string& name) const;
  void set_extra_latency(std::uint32_t host, Duration extra) { hosts_[host].extra = extra; }
  void set_rate(std::uint32_t host, std::uint64_t rate) { hosts_[host].rate = rate; }
  /// Of a process on that host, one at a time. All that they make ends before they do.
  [[nodiscard]] std::unique_ptr<Streams> make_streams(std::uint32_t host);

  /// When deliver() has something to do.
  [[nodiscard]] Time next() const;
  void deliver(); ///< the first that is under way
  void disconnect(std::uint32_t host, std::uint32_t other);
  void release_held(); ///< a path was repaired

private:
  friend class HostStreams;
  friend class ByteStream;
  friend class ByteListener;
  using Pipe = std::shared_ptr<BytePipe>;
  enum class Kind : std::uint8_t { connect, accepted, refused, data, answered, room, end, reset };
  struct Packet {
    Kind kind;
    std::uint8_t side; // of the pipe, where it goes
    Pipe pipe;
    std::vector<std::byte> bytes;
    std::size_t size = 0; // answered, room
  };
  struct Host {
    std::string name;
    Address address;
    Duration extra{};
    std::uint64_t rate = 0;
    HostStreams* streams = nullptr; // null: its process is dead
  };

  [[nodiscard]] std::optional<std::uint32_t> host_at(const std::string& number) const;
  [[nodiscard]] std::size_t part_of(std::size_t size, std::size_t least);
  [[nodiscard]] Pipe connect(std::uint32_t from, std::uint32_t to, std::uint16_t port);
  void send(const Pipe& pipe, int side, Kind kind, std::vector<std::byte> bytes = {},
            std::size_t size = 0);
  [[nodiscard]] bool broken(const BytePipe& pipe, int to) const;
  void drop(const BytePipe& pipe, std::optional<int> side = {});
  void close(const Pipe& pipe, int side, bool reset);
  void on_connect(Packet& packet);
  void on_data(Packet& packet);
  void take(Packet& packet);
  void tell(ByteEnd& end, bool readable, bool writable);
  void answered(ByteEnd& end, std::size_t bytes);

  Network& network_;
  Random random_;
  const std::size_t buffer_;
  std::vector<Host> hosts_;
  std::vector<std::weak_ptr<BytePipe>> pipes_;
  std::map<std::pair<Time, std::uint64_t>, Packet> under_way_; // by time, then as they were sent
  std::uint64_t sequence_ = 0;
  std::uint16_t next_port_ = 40'000;
};

} // namespace fanin::net::in_memory
