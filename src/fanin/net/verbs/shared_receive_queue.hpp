// A shared receive queue of a device: its queue pairs take receives from there.
#pragma once

#include <cstdint>
#include <memory>

#include "fanin/base/result.hpp"
#include "fanin/net/rdma/provider.hpp"
#include "fanin/net/verbs/device.hpp"
#include "fanin/net/verbs/handle.hpp"

namespace fanin::net::verbs {

class SharedReceiveQueue final : public rdma::SharedReceiveQueue {
public:
  // Errors: exhausted, unsupported.
  [[nodiscard]] static Result<std::unique_ptr<SharedReceiveQueue>> make(Device& device);
  ~SharedReceiveQueue() override { device_.give_back(0, most_); }
  [[nodiscard]] std::uint32_t most() const override { return most_; }
  [[nodiscard]] ibv_srq* get() const { return handle_.get(); }

private:
  SharedReceiveQueue(Device& device, SharedReceiveQueueHandle handle, std::uint32_t most)
      : device_(device), handle_(std::move(handle)), most_(most) {}

  Device& device_;
  SharedReceiveQueueHandle handle_;
  std::uint32_t most_;
};

} // namespace fanin::net::verbs
