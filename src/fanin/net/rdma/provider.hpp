// What a network has to do for an RdmaTransport (rdma/rdma.hpp). The provider of the network makes
// endpoints: an endpoint is one end of a connection. It has a few operations, each for many
// messages at once. The transport does the rest: hello, credits, pages, the life of a connection.
//
// connect() makes an endpoint, or a request from a peer brings one. When the route to the peer is
// known, the transport opens the endpoint, posts its first receives, and starts it with a hello for
// the peer. No function here blocks except listen(), which looks up a host's name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fanin/base/result.hpp"
#include "fanin/memory/arena.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/address.hpp"
#include "fanin/net/rdma/hello.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net::rdma {

// Most operations of one connection that are under way at one time.
inline constexpr std::uint32_t receives_most = 64;
inline constexpr std::uint32_t messages_most = 64; // a power of two
inline constexpr std::uint32_t sends_most =
    messages_most + 2; // with the end of the connection, and credits without a message

struct Connection;
class Endpoint;
class SharedReceives;

// An operation that is under way. The object stays in its place until the completion has come, or
// can no longer come.
struct Operation {
  enum class Kind : std::uint8_t { receive, message, other };
  std::array<void*, 8> of_provider{};
  Endpoint* endpoint = nullptr; // null: a receive that endpoints share
  SharedReceives* shared = nullptr; // of such a receive
  std::uint32_t number = 0; // of the receive's slot, or of the message
  Kind kind = Kind::other;
};

struct Receive {
  std::byte* to = nullptr;
  Operation* operation = nullptr;
};

struct Send {
  std::span<const memory::View> extents; // none is empty
  std::uint32_t size = 0; // their bytes
  std::uint32_t tag = 0;
  Operation* operation = nullptr;
  bool inlined = false; // copied when it is posted: its memory is free then
};

// The receives of one endpoint complete in the order of posting, and so do its sends. A send that
// succeeded stands for all sends before it.
struct Completion {
  enum class Status : std::uint8_t { done, canceled, too_large, failed };
  static constexpr std::uint64_t no_tag = ~0ULL;
  Operation* operation = nullptr;
  Endpoint* endpoint = nullptr; // that used a shared receive, if it is known still
  std::uint64_t tag = no_tag; // of a receive
  std::uint32_t size = 0; // of a receive
  Status status = Status::done;
  std::string_view text; // failed: why
};

// Receives that endpoints of one device have in common.
class SharedReceiveQueue {
public:
  SharedReceiveQueue() = default;
  SharedReceiveQueue(const SharedReceiveQueue&) = delete;
  SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;
  virtual ~SharedReceiveQueue() = default; // after its endpoints
  [[nodiscard]] virtual std::uint32_t most() const = 0; // receives at once
};

class Endpoint {
public:
  struct Limits {
    std::uint32_t receives = receives_most;
    std::uint32_t inline_most = 0; // bytes of a message that can be `inlined`
    std::size_t pieces_most = 1; // of a message
    bool reads_anything = false; // it needs no reach()
  };

  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  virtual ~Endpoint() = default; // it is destroyed when no completion can name it any more

  // Whether the route to the peer is known. If not, ProviderEvent::Kind::ready follows.
  [[nodiscard]] virtual bool ready() const { return true; }
  // Errors: exhausted, refused; the text says how to fix it.
  [[nodiscard]] virtual Result<Limits> open(const memory::PagePool& receive_pool) = 0;
  // Before open(): endpoints of the same device can share receives. Null: they cannot.
  [[nodiscard]] virtual const void* device() { return nullptr; }
  // A queue of its device. Errors: exhausted, unsupported.
  [[nodiscard]] virtual Result<std::unique_ptr<SharedReceiveQueue>> make_shared_receive_queue() {
    return fail(ErrorKind::unsupported, "this provider shares no receives");
  }
  // Called before open(): the endpoint uses the receives of this queue of its device.
  virtual void share(SharedReceiveQueue&) {}
  // Connects or accepts. ProviderEvent::Kind::connected or refused follows.
  [[nodiscard]] virtual Result<> start(const HelloBytes& hello) = 0;
  virtual void reject(const HelloBytes& hello) = 0; // of a request, instead of open()

  // Posts all of them; after close() only shared ones. Errors end the connection.
  [[nodiscard]] virtual Result<> post_receives(std::span<const Receive> receives,
                                               std::uint32_t size) = 0;
  // Returns how many were posted, from the first one on. Errors end the connection.
  [[nodiscard]] virtual Result<std::size_t> post_sends(std::span<const Send> sends) = 0;
  // Makes memory known to the device, each arena as a whole and once. Errors: exhausted (memlock).
  [[nodiscard]] virtual Result<> reach(const memory::Arena& arena) = 0;

  // Asks the peer's device, not its process, for an answer; without an answer the operation fails.
  // Does nothing where the network reports vanished peers by itself, or cannot ask.
  virtual void probe(Operation&) {}

  // Tells the peer. When the endpoint is retired, the network no longer reads or writes our memory.
  // Completions may still come.
  virtual void close() = 0;
  // After close(): whether the network is done with all that was posted. That may last as long as
  // the peer is there. An endpoint that is retired outside of close() and drained() makes
  // descriptor() readable.
  [[nodiscard]] virtual bool is_retired() const { return true; }
  // Called after close() while it is not retired: all queues have been empty once more.
  virtual void drained() {}
  // Called after RdmaOptions::retire_timeout: the endpoint waits no longer.
  virtual void retire_now() {}

  std::string peer; // its name, for messages
  Connection* connection = nullptr; // the transport's state of it
};

struct ProviderEvent {
  enum class Kind : std::uint8_t {
    request, // from a peer, to be opened or rejected
    ready,
    connected, // at both ends
    refused, // it could not be made
    gone, // the peer or the network has ended it
    news // something for the log
  };
  Kind kind = Kind::news;
  Endpoint* endpoint = nullptr;
  HelloBytes hello{}; // of request, connected (at the end that connects), refused; zeros: none came
  std::string text; // of refused, news
  std::unique_ptr<Endpoint> request;
  ListenerId listener = ListenerId::none; // of a request: who got it
};

class Listening {
public:
  Listening() = default;
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  virtual ~Listening() = default;
  Url url; // with the port that was chosen
};

class Provider {
public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default; // its endpoints are destroyed before it

  [[nodiscard]] virtual std::string scheme() const = 0;
  // Checks the options of an address, except for those in rdma/pages.hpp. Errors: usage, not_found.
  [[nodiscard]] virtual Result<> check(const Url& url) const = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Listening>>
  listen(const Url& url, ListenerId id, const memory::PagePool& receive_pool) = 0;
  // Connects to one of the addresses, which have the port; there is at least one. With an empty
  // host the provider chooses.
  [[nodiscard]] virtual Result<std::unique_ptr<Endpoint>>
  connect(const Url& url, std::span<const Address> addresses) = 0;

  // Reads completions and returns their number. Fewer than `to` holds: all queues were empty.
  [[nodiscard]] virtual std::size_t completions(std::span<Completion> to) = 0;
  // Reads one event; may cost a system call. False: there is none.
  [[nodiscard]] virtual bool next_event(ProviderEvent& event) = 0;
  // As those of a Transport. After a wait the transport calls next_event() until it returns false.
  [[nodiscard]] virtual bool arm() = 0;
  [[nodiscard]] virtual int descriptor() const = 0;

  // Called before endpoints are destroyed that are not retired. Afterwards the network no longer
  // writes to our memory.
  virtual void stop() {}
};

} // namespace fanin::net::rdma
