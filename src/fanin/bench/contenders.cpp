#include "fanin/bench/contenders.hpp"

#include <fmt/format.h>

#include "fanin/bench/bare_fabric.hpp"
#include "fanin/bench/bare_memory.hpp"
#include "fanin/bench/bare_roundtrip.hpp"
#include "fanin/bench/bare_tcp.hpp"
#include "fanin/bench/shaped_nxn.hpp"
#include "fanin/bench/sockets.hpp"
#include "fanin/bench/zeromq.hpp"

namespace fanin::bench {
namespace {

// What a process of event building goes through while a batch is under way, about.
constexpr std::uint64_t fair_set = 8U << 20;

BareOptions bare_options(const Spec& spec) {
  const bool nxn = spec.pattern == Pattern::nxn;
  const bool fair = spec.peer == "fair";
  return {.senders = spec.senders,
          .receivers = spec.receivers,
          .size = spec.size,
          .page = spec.page,
          .send_set = fair ? fair_set : 0,
          .receive_set = fair ? fair_set : 0,
          .checksum = fair,
          .read = spec.read,
          .fill = nxn ? Fill::emulated : Fill::copied,
          .spin = spec.wait == net::WaitPolicy::poll,
          .to_all = spec.pattern == Pattern::pubsub,
          .url = spec.url,
          .congestion = spec.congestion,
          .warmup = {},
          .duration = {}};
}

Result<Ends> raw_ends(const Spec& spec) {
  const bool roundtrip = spec.pattern == Pattern::roundtrip;
  if (spec.url.scheme == "tcp")
    return roundtrip ? bare_tcp_roundtrip(spec) : bare_tcp_ends(bare_options(spec));
  if (spec.url.scheme == "shm" && roundtrip) return shared_memory_roundtrip(spec);
  if (spec.url.scheme == "shm" && spec.pattern == Pattern::stream)
    return shared_memory_stream(spec);
  if (spec.url.scheme == "inproc" && spec.pattern == Pattern::stream)
    return one_process_stream(spec);
  if (spec.url.scheme.starts_with("ofi+") && roundtrip) return bare_fabric_roundtrip(spec);
  if (spec.url.scheme.starts_with("ofi+") && spec.pattern == Pattern::stream)
    return bare_fabric_stream(spec);
  return fail(ErrorKind::unsupported, fmt::format("{}: there is no bare loop for {} over {}",
                                                  spec.peer, name(spec.pattern), spec.url.scheme));
}

Result<Ends> ends_of(const Spec& spec) {
  if (spec.peer == "fanin") return spec.shaping.on() ? shaped_nxn_ends(spec) : sockets_ends(spec);
  if (spec.peer == "raw" || (spec.peer == "fair" && spec.pattern == Pattern::nxn))
    return raw_ends(spec);
  if (spec.peer == "memcpy" && spec.pattern == Pattern::stream) return memcpy_stream(spec);
  if (spec.peer == "zeromq") return zeromq_ends(spec);
  return fail(ErrorKind::unsupported, fmt::format("{}: not measured in this pattern", spec.peer));
}

} // namespace

Result<Ends> make_ends(const Spec& spec) {
  auto ends = ends_of(spec);
  if (ends) ends->one_core_each = spec.peer != "zeromq"; // which has threads of its own
  return ends;
}

} // namespace fanin::bench
