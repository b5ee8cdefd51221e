// What a provider keeps for each RDMA device it uses: the completion queues that all its
// connections there share, and the memory that was registered with it. An arena is registered when
// it is first used, as a whole and once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/base/result.hpp"
#include "fanin/memory/arena.hpp"
#include "fanin/net/verbs/handle.hpp"

namespace fanin::net::verbs {

// A completion queue that is polled without system calls, and can wake a sleeping loop.
class Completions {
public:
  [[nodiscard]] Result<> make(ibv_context* context, ibv_comp_channel* channel);
  [[nodiscard]] ibv_cq* get() const { return queue_.get(); }
  // Reserves room for so many more work requests at once; give_back() returns it. Errors:
  // exhausted.
  [[nodiscard]] Result<> reserve(std::uint32_t entries);
  void give_back(std::uint32_t entries) {
    FANIN_ASSERT(entries <= reserved_);
    reserved_ -= entries;
  }

  // False: it was not armed before, so look for completions that have come already. True: the
  // channel becomes readable with the next completion.
  [[nodiscard]] bool arm();
  void woken();

private:
  CompletionQueue queue_;
  std::uint32_t reserved_ = 0;
  bool armed_ = false;
};

class VerbsEndpoint;

// What has happened to a device, a port of it or a queue.
struct DeviceEvent {
  std::string text; // human-readable
  VerbsEndpoint* done_with_shared = nullptr; // takes no more of the receives that it shares
};

class Device {
public:
  // Errors: exhausted (memlock, mostly), internal.
  [[nodiscard]] static Result<std::unique_ptr<Device>> make(ibv_context* context);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] const char* name() const { return ibv_get_device_name(context_->device); }
  [[nodiscard]] ibv_pd* domain() const { return domain_.get(); }
  [[nodiscard]] int channel_descriptor() const { return channel_->fd; }

  // The key under which the device may read and write it; registers it the first time. Errors:
  // exhausted, with the remedy.
  [[nodiscard]] Result<std::uint32_t> key(const memory::Arena& arena) {
    if (arena.id() == last_key_.first) return last_key_.second;
    return find_or_register(arena);
  }

  // Room in the completion queues for so many requests at once, for as long as a connection lives.
  // Errors: exhausted.
  [[nodiscard]] Result<> reserve(std::uint32_t send_requests, std::uint32_t receive_requests);
  void give_back(std::uint32_t send_requests, std::uint32_t receive_requests) {
    sends.give_back(send_requests);
    receives.give_back(receive_requests);
  }

  // Those that take receives from a shared receive queue, by the number of their queue pair.
  void add_sharing(const ibv_qp& queue_pair, VerbsEndpoint& endpoint) {
    sharing_[queue_pair.qp_num] = &endpoint;
  }
  void remove_sharing(const ibv_qp& queue_pair) { sharing_.erase(queue_pair.qp_num); }
  [[nodiscard]] VerbsEndpoint* endpoint_of(std::uint32_t queue_pair) const {
    const auto found = sharing_.find(queue_pair);
    return found == sharing_.end() ? nullptr : found->second;
  }

  // Reads the events of the channel: which queues have woken the loop.
  void take_channel_events();
  // Empty: there is no event.
  [[nodiscard]] std::optional<DeviceEvent> take_async_event();

private:
  explicit Device(ibv_context* context) : context_(context) {}
  [[nodiscard]] Result<std::uint32_t> find_or_register(const memory::Arena& arena);

  ibv_context* context_;
  CompletionChannel channel_;
  ProtectionDomain domain_;

public:
  Completions sends; // end before their channel
  Completions receives;

private:
  std::unordered_map<std::uint32_t, VerbsEndpoint*> sharing_;
  std::unordered_map<std::uint64_t, MemoryRegion> regions_; // by Arena::id(); null: it failed
  std::pair<std::uint64_t, std::uint32_t> last_key_{~0ULL, 0}; // Arena::id() and key
};

} // namespace fanin::net::verbs
