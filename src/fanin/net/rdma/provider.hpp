// What a provider has to do for an RdmaTransport (rdma/rdma.hpp): a few operations on an endpoint,
// the provider's end of a connection, each for many messages at once. The rest (hello, credits,
// pages, the life of a connection) is the transport's.
//
// An endpoint is made by connect() or comes with a request. Once its way is known it is opened,
// gets its first receives, and is started, with a hello for the peer. Nothing here blocks but
// listen(), which looks up a host's name.
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

// By one connection at once.
inline constexpr std::uint32_t receives_most = 64;
inline constexpr std::uint32_t messages_most = 64; // a power of two
inline constexpr std::uint32_t sends_most = messages_most + 2; // and the end, and credits alone

struct Connection;
class Endpoint;
class SharedReceives;

// What is under way at the provider. It stays where it is until its completion has come, or none
// can come any more.
struct Operation {
  enum class Kind : std::uint8_t { receive, message, other };
  std::array<void*, 8> of_provider{};
  Endpoint* endpoint = nullptr; // none of a receive that endpoints share
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
  bool inlined = false; // taken with the request: the memory is free as soon as it is posted
};

// In the order of posting for one endpoint's receives, and for its sends, where one that succeeded
// stands for all before it.
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
    bool reads_anything = false; // memory need not be named to it (reach())
  };

  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  virtual ~Endpoint() = default; // when no completion can name it any more

  // Its way is known; if not, ProviderEvent::Kind::ready follows.
  [[nodiscard]] virtual bool ready() const { return true; }
  // Errors: exhausted, refused; the text says how to fix it.
  [[nodiscard]] virtual Result<Limits> open(const memory::PagePool& receive_pool) = 0;
  // Before open(): endpoints of the same device can share receives. Null: they cannot.
  [[nodiscard]] virtual const void* device() { return nullptr; }
  // Of its device. Errors: exhausted, unsupported.
  [[nodiscard]] virtual Result<std::unique_ptr<SharedReceiveQueue>> make_shared_receive_queue() {
    return fail(ErrorKind::unsupported, "this provider shares no receives");
  }
  // Before open(): its receives are those of a queue of its device.
  virtual void share(SharedReceiveQueue&) {}
  // Connects or accepts. ProviderEvent::Kind::connected or refused follows.
  [[nodiscard]] virtual Result<> start(const HelloBytes& hello) = 0;
  virtual void reject(const HelloBytes& hello) = 0; // a request, instead of open()

  // All of them, after close() only those that it shares. Errors end the connection.
  [[nodiscard]] virtual Result<> post_receives(std::span<const Receive> receives,
                                               std::uint32_t size) = 0;
  // How many were taken, from the front. Errors end the connection.
  [[nodiscard]] virtual Result<std::size_t> post_sends(std::span<const Send> sends) = 0;
  // Makes memory known, a whole arena once. Errors: exhausted (memlock).
  [[nodiscard]] virtual Result<> reach(const memory::Arena& arena) = 0;

  // Asks the peer's device, not its process, for a sign of life: without one the operation fails.
  // Nothing where the provider itself tells of peers that vanish, or cannot ask.
  virtual void probe(Operation&) {}

  // The peer is told, and nothing of ours is read or written any more once it is at rest.
  // Completions may be left.
  virtual void close() = 0;
  // After close(): whether the provider is done with all that was posted. It may use it as long as
  // the peer is there. If neither close() nor drained() made it done, the transition makes
  // descriptor() readable.
  [[nodiscard]] virtual bool at_rest() const { return true; }
  // After close() and not at rest: the queues have been empty once more.
  virtual void drained() {}
  // The same for RdmaOptions::rest_timeout: what it waits for will not come.
  virtual void rest_now() {}

  std::string peer; // for people
  Connection* connection = nullptr; // the transport's
};

struct ProviderEvent {
  enum class Kind : std::uint8_t {
    request, // from a peer, to be opened or rejected
    ready,
    connected, // at both ends
    refused, // it could not be made
    gone, // the peer or the provider has ended it
    news // of the provider, for people
  };
  Kind kind = Kind::news;
  Endpoint* endpoint = nullptr;
  HelloBytes hello{}; // of request, connected (who has asked for it), refused; zeros: none was said
  std::string text; // of refused, news
  std::unique_ptr<Endpoint> request;
  ListenerId listener = ListenerId::none; // that got it
};

class Listening {
public:
  Listening() = default;
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  virtual ~Listening() = default;
  Url url; // the real one
};

class Provider {
public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default; // after its endpoints

  [[nodiscard]] virtual std::string scheme() const = 0;
  // The options of an address; that of all such providers is rdma/pages.hpp's. Errors: usage.
  [[nodiscard]] virtual Result<> check(const Url& url) const = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Listening>>
  listen(const Url& url, ListenerId id, const memory::PagePool& receive_pool) = 0;
  // To one of the addresses, with the port; there is at least one. An empty host is the provider's
  // own choice.
  [[nodiscard]] virtual Result<std::unique_ptr<Endpoint>>
  connect(const Url& url, std::span<const Address> addresses) = 0;

  // Fewer than there is room for: all queues have been empty since the call.
  [[nodiscard]] virtual std::size_t completions(std::span<Completion> to) = 0;
  // May cost a system call. False: there is none.
  [[nodiscard]] virtual bool next_event(ProviderEvent& event) = 0;
  // As those of a transport. After a wait, next_event() is called until it has none.
  [[nodiscard]] virtual bool arm() = 0;
  [[nodiscard]] virtual int descriptor() const = 0;

  // Before its endpoints end that are not at rest: after it, nothing of ours is written any more.
  virtual void stop() {}
};

} // namespace fanin::net::rdma
