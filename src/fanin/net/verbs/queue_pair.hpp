// The queue pair of a reliable connection. fanin changes its states itself, so that the options of
// the address replace what the connection manager has chosen.
#pragma once

#include <cstdint>

#include "fanin/base/result.hpp"
#include "fanin/net/rdma/hello.hpp"
#include "fanin/net/verbs/device.hpp"
#include "fanin/net/verbs/handle.hpp"
#include "fanin/net/verbs/path_options.hpp"

namespace fanin::net::verbs {

// Whether the port of an id that is bound can give what an address asks for. Errors: refused, with
// the option that it cannot fulfil.
[[nodiscard]] Result<> check_path(const PathOptions& path, rdma_cm_id& id);

// For so many requests at once; with `shared`, its receives are those of this queue. Its
// completions go to the device's queues. Errors: exhausted.
[[nodiscard]] Result<QueuePair> make_queue_pair(Device& device, std::uint32_t sends,
                                                std::uint32_t receives, ibv_srq* shared,
                                                std::uint32_t& inline_most);

// To the next of the states INIT, RTR (ready to receive), RTS (ready to send). Errors: refused,
// with the option that the port cannot fulfil.
[[nodiscard]] Result<> change_state(rdma_cm_id& id, ibv_qp& queue_pair, const PathOptions& path,
                                    ibv_qp_state state);

// The parameters of a request or an answer. They refer to `hello`.
[[nodiscard]] rdma_conn_param connect_parameters(const rdma::HelloBytes& hello,
                                                 const ibv_qp& queue_pair);

} // namespace fanin::net::verbs
