#include "fanin/net/verbs/device.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

namespace fanin::net::verbs {
namespace {

constexpr std::uint32_t entries_at_first = 1024;

// A device locks what it may reach, and users may lock little unless somebody has allowed it.
std::string memory_lock_advice() {
  rlimit limit{};
  (void)getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; this process may lock {} (ulimit -l): allow more, in "
                     "/etc/security/limits.conf (\"* - memlock unlimited\") or LimitMEMLOCK of "
                     "the service",
                     format_size(limit.rlim_cur));
}

bool never_blocks(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  return flags >= 0 && fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0;
}

std::unexpected<Error> fail_of(ibv_context* context, std::string_view what, int error) {
  return fail_errno(ErrorKind::exhausted,
                    fmt::format("{}: {}", ibv_get_device_name(context->device), what), error);
}

} // namespace

// --- completions ---

Result<> Completions::make(ibv_context* context, ibv_comp_channel* channel) {
  queue_.reset(ibv_create_cq(context, entries_at_first, nullptr, channel, 0));
  if (queue_ == nullptr) return fail_of(context, "completion queue", errno);
  return {};
}

Result<> Completions::reserve(std::uint32_t entries) {
  const auto size = static_cast<std::uint32_t>(queue_->cqe);
  if (reserved_ + entries > size) {
    const std::uint32_t least = reserved_ + entries;
    int error = ibv_resize_cq(queue_.get(), static_cast<int>(std::max(2 * size, least)));
    if (error != 0) error = ibv_resize_cq(queue_.get(), static_cast<int>(least));
    if (error != 0) return fail_of(queue_->context, "a longer completion queue", error);
  }
  reserved_ += entries;
  return {};
}

bool Completions::arm() {
  if (armed_) return true;
  armed_ = ibv_req_notify_cq(queue_.get(), 0) == 0;
  return false;
}

void Completions::woken() {
  armed_ = false;
  ibv_ack_cq_events(queue_.get(), 1);
}

// --- device ---

Result<std::unique_ptr<Device>> Device::make(ibv_context* context) {
  std::unique_ptr<Device> device(new Device(context));
  device->domain_.reset(ibv_alloc_pd(context));
  if (device->domain_ == nullptr) return fail_of(context, "protection domain", errno);
  device->channel_.reset(ibv_create_comp_channel(context));
  if (device->channel_ == nullptr) return fail_of(context, "completion channel", errno);
  if (!never_blocks(device->channel_->fd) || !never_blocks(context->async_fd))
    return fail_of(context, "completion channel", errno);
  for (Completions* queue : {&device->sends, &device->receives})
    FANIN_TRY(queue->make(context, device->channel_.get()));
  return device;
}

Result<std::uint32_t> Device::find_or_register(const memory::Arena& arena) {
  const auto [found, is_new] = regions_.try_emplace(arena.id());
  constexpr int access = IBV_ACCESS_LOCAL_WRITE;
  if (is_new) found->second.reset(ibv_reg_mr(domain_.get(), arena.data(), arena.size(), access));
  if (found->second == nullptr) {
    return fail(ErrorKind::exhausted,
                fmt::format("{} cannot register {} of memory: {}{}", name(),
                            format_size(arena.size()), std::strerror(is_new ? errno : ENOMEM),
                            memory_lock_advice()));
  }
  last_key_ = {arena.id(), found->second->lkey};
  return last_key_.second;
}

Result<> Device::reserve(std::uint32_t send_requests, std::uint32_t receive_requests) {
  FANIN_TRY(sends.reserve(send_requests));
  auto room = receives.reserve(receive_requests);
  if (!room) sends.give_back(send_requests);
  return room;
}

std::optional<DeviceEvent> Device::take_async_event() {
  ibv_async_event event{};
  if (ibv_get_async_event(context_, &event) != 0) return {};
  DeviceEvent result;
  switch (event.event_type) {
  case IBV_EVENT_QP_LAST_WQE_REACHED:
    result.done_with_shared = endpoint_of(event.element.qp->qp_num);
    break;
  case IBV_EVENT_PORT_ERR:
    result.text = fmt::format("{}: port {} is down", name(), event.element.port_num);
    break;
  case IBV_EVENT_PORT_ACTIVE:
    result.text = fmt::format("{}: port {} is up", name(), event.element.port_num);
    break;
  case IBV_EVENT_DEVICE_FATAL:
    result.text = fmt::format("{}: the device has failed", name());
    break;
  case IBV_EVENT_CQ_ERR:
    result.text = fmt::format("{}: a completion queue has failed", name());
    break;
  case IBV_EVENT_QP_FATAL: result.text = fmt::format("{}: a queue pair has failed", name()); break;
  case IBV_EVENT_SRQ_ERR:
    result.text = fmt::format("{}: a shared receive queue has failed", name());
    break;
  default: break;
  }
  ibv_ack_async_event(&event);
  return result;
}

void Device::take_channel_events() {
  ibv_cq* queue = nullptr;
  void* unused = nullptr;
  while (ibv_get_cq_event(channel_.get(), &queue, &unused) == 0)
    (queue == sends.get() ? sends : receives).woken();
}

} // namespace fanin::net::verbs
