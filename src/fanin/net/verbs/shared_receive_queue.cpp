#include "fanin/net/verbs/shared_receive_queue.hpp"
#include "fanin/base/try.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

namespace fanin::net::verbs {
namespace {

// Receives of 256 to 4096 connections. For more of them there are more queues.
constexpr int receives_usual = 8192;

} // namespace

Result<std::unique_ptr<SharedReceiveQueue>> SharedReceiveQueue::make(Device& device) {
  ibv_device_attr limits{};
  if (ibv_query_device(device.context(), &limits) != 0 || limits.max_srq_wr < 1) {
    return fail(ErrorKind::unsupported,
                fmt::format("{} has no shared receive queues", device.name()));
  }
  const auto most = static_cast<std::uint32_t>(std::min(limits.max_srq_wr, receives_usual));
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = most;
  attributes.attr.max_sge = 1;
  SharedReceiveQueueHandle handle(ibv_create_srq(device.domain(), &attributes));
  if (handle == nullptr) {
    return fail_errno(ErrorKind::exhausted, fmt::format("{}: shared receive queue", device.name()),
                      errno);
  }
  FANIN_TRY(device.reserve(0, most));
  return std::unique_ptr<SharedReceiveQueue>(
      new SharedReceiveQueue(device, std::move(handle), most));
}

} // namespace fanin::net::verbs
