#include "fanin/net/verbs/queue_pair.hpp"

#include <arpa/inet.h>

#include <bit>
#include <cerrno>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net::verbs {
namespace {

// 4.096 us x 2^17 = 0.54 s for an acknowledgement, which a device may take four times as long (the
// InfiniBand specification, 9.7.6), and six retries; seven is for ever on SoftRoCE.
constexpr std::uint8_t ack_timeout = 17;
constexpr std::uint8_t retries = 6;
// A message that finds no receive would be a fault of ours, and must not look like a slow peer.
// Where receives are shared, another peer or its end may be the cause, and that ends soon.
constexpr std::uint8_t not_ready_retries = 0;
constexpr std::uint8_t not_ready_retries_shared = 6; // 0.66 s each
constexpr std::uint32_t inline_wanted = 192; // bytes; what devices take without a second access

// What the address says of the path goes over what the connection manager has chosen.
Result<> apply_path(const PathOptions& path, rdma_cm_id& id, ibv_qp_attr& attributes) {
  if (attributes.qp_state == IBV_QPS_INIT && path.pkey) {
    ibv_device_attr device{};
    (void)ibv_query_device(id.verbs, &device);
    for (std::uint16_t i = 0; i < device.max_pkeys; ++i) {
      __be16 key = 0;
      if (ibv_query_pkey(id.verbs, id.port_num, i, &key) != 0 || ntohs(key) != *path.pkey) continue;
      attributes.pkey_index = i;
      return {};
    }
    return fail(ErrorKind::refused,
                fmt::format("pkey {:#06x} is not one of the port's partitions", *path.pkey));
  }
  if (attributes.qp_state != IBV_QPS_RTR) return {};
  if (path.service_level) attributes.ah_attr.sl = *path.service_level;
  if (path.traffic_class) attributes.ah_attr.grh.traffic_class = *path.traffic_class;
  if (path.gid_index) {
    ibv_gid gid{};
    if (ibv_query_gid(id.verbs, id.port_num, *path.gid_index, &gid) != 0) {
      return fail(ErrorKind::refused,
                  fmt::format("gid_index {} is not in the port's table", *path.gid_index));
    }
    attributes.ah_attr.grh.sgid_index = *path.gid_index;
  }
  if (path.mtu) {
    const auto mtu = static_cast<ibv_mtu>(std::bit_width(*path.mtu) - 8); // 256 is 1
    ibv_port_attr port{};
    if (ibv_query_port(id.verbs, id.port_num, &port) == 0 && mtu > port.active_mtu) {
      return fail(ErrorKind::refused, fmt::format("mtu {} is more than the port's, which is {}",
                                                  *path.mtu, 128U << port.active_mtu));
    }
    attributes.path_mtu = mtu;
  }
  return {};
}

} // namespace

Result<> check_path(const PathOptions& path, rdma_cm_id& id) {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR}) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    FANIN_TRY(apply_path(path, id, attributes));
  }
  return {};
}

Result<QueuePair> make_queue_pair(Device& device, std::uint32_t sends, std::uint32_t receives,
                                  ibv_srq* shared, std::uint32_t& inline_most) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = device.sends.get();
  attributes.recv_cq = device.receives.get();
  attributes.srq = shared;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {.max_send_wr = sends,
                    .max_recv_wr = shared == nullptr ? receives : 0,
                    .max_send_sge = max_extents,
                    .max_recv_sge = shared == nullptr ? 1U : 0U,
                    .max_inline_data = inline_wanted};
  QueuePair made(ibv_create_qp(device.domain(), &attributes));
  if (made == nullptr) { // not all devices take messages with the request
    attributes.cap.max_inline_data = 0;
    made.reset(ibv_create_qp(device.domain(), &attributes));
  }
  if (made == nullptr)
    return fail_errno(ErrorKind::exhausted, fmt::format("{}: queue pair", device.name()), errno);
  inline_most = attributes.cap.max_inline_data;
  return made;
}

Result<> change_state(rdma_cm_id& id, ibv_qp& queue_pair, const PathOptions& path,
                      ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  int mask = 0;
  if (rdma_init_qp_attr(&id, &attributes, &mask) != 0)
    return fail_errno(ErrorKind::internal, "RDMA connection manager", errno);
  attributes.qp_state = state;
  // For VerbsEndpoint::probe(); no memory is registered for peers to write.
  if (state == IBV_QPS_INIT) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
  FANIN_TRY(apply_path(path, id, attributes));
  if (state == IBV_QPS_RTS) {
    attributes.timeout = ack_timeout;
    attributes.retry_cnt = retries;
  }
  const int error = ibv_modify_qp(&queue_pair, &attributes, mask);
  if (error == 0) return {};
  return fail_errno(ErrorKind::refused, "the device refuses this path", error);
}

rdma_conn_param connect_parameters(const rdma::HelloBytes& hello, const ibv_qp& queue_pair) {
  rdma_conn_param result{};
  result.private_data = hello.data();
  result.private_data_len = rdma::hello_size;
  result.retry_count = retries;
  // Of the peer.
  result.rnr_retry_count = queue_pair.srq == nullptr ? not_ready_retries : not_ready_retries_shared;
  result.srq = queue_pair.srq != nullptr ? 1 : 0;
  result.qp_num = queue_pair.qp_num;
  return result;
}

} // namespace fanin::net::verbs
