/// \file
/// Byte streams: what a node is given to listen and to connect where it speaks no messages. Over
/// TCP (tcp_streams.hpp), or in virtual time (VirtualNode::streams()).
///
/// Nothing here blocks, unless it says so. What has its turn is looked for in two steps: a
/// StreamWatch says that something has happened, and each stream says what.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/address.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net {

class StreamWatch;

/// What a StreamWatch can watch.
class FANIN_INTERNAL_API Watchable {
public:
  Watchable(const Watchable&) = delete;
  Watchable& operator=(const Watchable&) = delete;

  /// There may be something to read, or to accept: from the beginning, and again when it is watched
  /// and more comes. False once nothing was found.
  [[nodiscard]] bool readable() const { return readable_; }
  /// There may be room to write, likewise. Of a stream: it may be connected, or broken.
  [[nodiscard]] bool writable() const { return writable_; }
  /// Readable with it; -1 in virtual time. Of a watch, it stays the same.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

protected:
  explicit Watchable(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  ~Watchable();
  [[nodiscard]] const Descriptor& owned() const { return descriptor_; }

  bool readable_ = true;
  bool writable_ = true;

private:
  friend class StreamWatch;
  Descriptor descriptor_;
  std::vector<StreamWatch*> watches_; // that watch it
};

/// Says when one of the streams and listeners of an owner has something to do: a new connection,
/// bytes, room to write, an end. Another watch can be among them: it is readable() when poll() of
/// it has something. What it watches and it may be destroyed in any order.
class FANIN_INTERNAL_API StreamWatch : public Watchable {
public:
  virtual ~StreamWatch();
  /// Errors: exhausted.
  [[nodiscard]] Result<> add(Watchable& one);
  void remove(Watchable& one); ///< no effect if it is not watched
  /// Sets readable() and writable() of what it watches.
  virtual void poll() = 0;
  /// Called when there is something, if there is no descriptor(). It may do nothing but set a flag.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }

protected:
  explicit StreamWatch(Descriptor descriptor) : Watchable(std::move(descriptor)) {
    readable_ = false;
  }
  static void happened(Watchable& one, bool readable, bool writable) {
    one.readable_ = one.readable_ || readable;
    one.writable_ = one.writable_ || writable;
  }
  /// Wakes who watches it, if there is no descriptor.
  static void wake(Watchable& one);

private:
  [[nodiscard]] virtual Result<> begin(Watchable&) { return {}; }
  virtual void end(Watchable&) {}
  std::function<void()> wake_;
  std::vector<Watchable*> members_;
};

/// How a read or a write went.
struct FANIN_INTERNAL_API Transfer {
  enum class Outcome : std::uint8_t {
    done,
    blocked, ///< nothing is there, or no room; or it is not connected yet
    ended, ///< the peer has ended its side, and everything was read
    failed ///< the connection is lost, or was not made: `error` says why
  };
  Outcome outcome = Outcome::done;
  std::size_t bytes = 0;
  int error = 0; ///< an errno value
  [[nodiscard]] std::string why() const; ///< `error` in words
};

/// One end of a connection. Destroying it closes the connection: what was written still goes out,
/// unless there is something that was not read, or reset_on_close() was called. Then the peer finds
/// its connection broken, and what is under way may be lost.
///
/// Who writes to a peer that does not read is blocked once the buffers of both hosts are full, and
/// what was not read stays where it is. Over TCP the kernels choose their size, up to the last
/// numbers of net.ipv4.tcp_wmem and tcp_rmem, some megabytes: so much may be under way.
class FANIN_INTERNAL_API Stream : public Watchable {
public:
  virtual ~Stream() = default;
  /// At least one byte of room, in at most IOV_MAX parts.
  [[nodiscard]] Transfer read(std::span<const iovec> room);
  /// At most IOV_MAX parts. `more_follows` at once: they go out together.
  [[nodiscard]] Transfer write(std::span<const iovec> bytes, bool more_follows = false);
  [[nodiscard]] Transfer read(std::span<std::byte> room);
  [[nodiscard]] Transfer write(std::span<const std::byte> bytes, bool more_follows = false);
  /// Nothing more will be written: the peer reads the end behind what was.
  virtual void end_writing() = 0;
  /// What has come can still be read, and the end behind it.
  virtual void end_reading() = 0;
  /// The peer has ended its side or is lost, and everything was read. Takes nothing away.
  [[nodiscard]] virtual bool has_ended() const = 0;
  /// The peer has ended its side or is lost; what it sent before may still be there.
  [[nodiscard]] virtual bool peer_has_left() const = 0;
  /// The peer's host acknowledges nothing for about 25 s: it or the network is dead. A process
  /// without room is not meant.
  [[nodiscard]] virtual bool is_unanswered() const = 0;
  virtual void reset_on_close() = 0;

protected:
  using Watchable::Watchable;

private:
  [[nodiscard]] virtual Transfer read_parts(std::span<const iovec> room) = 0;
  [[nodiscard]] virtual Transfer write_parts(std::span<const iovec> bytes, bool more_follows) = 0;
};

/// Connections wait in it, as many as the host takes, until they are accepted.
class FANIN_INTERNAL_API StreamListener : public Watchable {
public:
  struct Accepted {
    std::unique_ptr<Stream> stream; ///< null: none waits, or `error`
    Address peer;
    int error = 0; ///< there may be one, but it cannot be accepted now
  };
  virtual ~StreamListener() = default;
  [[nodiscard]] virtual Accepted accept() = 0;
  [[nodiscard]] virtual bool has_next() const = 0; ///< a connection waits
  [[nodiscard]] virtual std::string url() const = 0; ///< with the real port

protected:
  using Watchable::Watchable;
};

/// Makes streams, for one node.
class FANIN_INTERNAL_API Streams {
public:
  virtual ~Streams() = default;
  /// Where to listen for this URL. May block while the name is looked up. Errors: not_found;
  /// disconnected, if asking again may help.
  [[nodiscard]] virtual Result<std::vector<Address>> addresses_to_listen(const Url& url) = 0;
  /// At the first of `addresses` where that is possible. Errors: refused, with the remedy.
  [[nodiscard]] virtual Result<std::unique_ptr<StreamListener>>
  listen(const Url& url, std::span<const Address> addresses) = 0;
  /// Begins to connect. Errors: disconnected.
  [[nodiscard]] virtual Result<std::unique_ptr<Stream>> connect(const Address& address) = 0;
  /// Errors: exhausted.
  [[nodiscard]] virtual Result<std::unique_ptr<StreamWatch>> make_watch() = 0;
};

} // namespace fanin::net
