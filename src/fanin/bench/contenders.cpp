#include "fanin/bench/contenders.hpp"

#include <array>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/bench/contender_ends.hpp"

namespace fanin::bench {
namespace {

constexpr std::array<std::uint64_t, 3> page_sizes{64U << 10, usual_page, 1U << 20};

Result<Ends> raw_ends(const Spec& spec) {
  const bool roundtrip = spec.pattern == Pattern::roundtrip;
  if (spec.url.scheme == "tcp") return roundtrip ? bare_tcp_roundtrip(spec) : bare_tcp_ends(spec);
  if (spec.url.scheme == "shm" && roundtrip) return shared_memory_roundtrip(spec);
  if (spec.url.scheme == "shm" && spec.pattern == Pattern::stream)
    return shared_memory_stream(spec);
  if (spec.url.scheme == "inproc" && spec.pattern == Pattern::stream)
    return one_process_stream(spec);
  if (spec.url.scheme.starts_with("ofi+") && (roundtrip || spec.pattern == Pattern::stream))
    return bare_fabric_ends(spec);
  return fail(ErrorKind::unsupported, fmt::format("{}: there is no bare loop for {} over {}",
                                                  spec.peer, name(spec.pattern), spec.url.scheme));
}

Result<Ends> ends_of(const Spec& spec) {
  if (spec.peer == "fanin") return spec.shaping.on() ? shaped_nxn_ends(spec) : sockets_ends(spec);
  if (spec.peer == "raw" || (spec.peer == "fair" && spec.pattern == Pattern::nxn))
    return raw_ends(spec);
  if (spec.peer == "memcpy" && spec.pattern == Pattern::stream) return memcpy_stream(spec);
  if (spec.peer == "zeromq" && spec.pattern != Pattern::nxn) return zeromq_ends(spec);
  return fail(ErrorKind::unsupported, fmt::format("{}: not measured in this pattern", spec.peer));
}

} // namespace

Result<Ends> make_ends(const Spec& spec) {
  auto ends = ends_of(spec);
  if (ends) ends->one_core_each = spec.peer != "zeromq"; // which has threads of its own
  return ends;
}

Result<std::size_t> tune(Spec& spec, bool may_poll,
                         const std::function<Result<Sample>(const Spec&)>& probe,
                         const RoundOptions& options, const Progress& progress) {
  std::vector<Spec> specs;
  std::vector<Contender> probes;
  for (const net::WaitPolicy wait : {net::WaitPolicy::block, net::WaitPolicy::poll}) {
    if (wait == net::WaitPolicy::poll && !may_poll) continue;
    for (const std::uint64_t page : page_sizes) {
      Spec& own = specs.emplace_back(spec);
      own.wait = wait;
      own.page = page;
      probes.push_back(
          {fmt::format("probe {} with pages of {}, {}", spec.peer, format_size(page), name(wait)),
           [own, &probe] { return probe(own); }});
    }
  }
  const auto fastest = FANIN_TRY(find_fastest(probes, options, progress));
  spec = specs[fastest.index];
  return fastest.dropped;
}

} // namespace fanin::bench
