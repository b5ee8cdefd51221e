#include "fanin/bench/contender_ends.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/sockets_process.hpp"
#include "fanin/net/registry.hpp"

namespace fanin::bench {
namespace {

constexpr std::uint64_t page_unit = 64U << 10;
constexpr std::uint64_t headers_max = 4096; // of a page
constexpr std::uint64_t send_bytes = 16U << 20;
constexpr std::uint64_t pages_min = 8;

Result<std::unique_ptr<message::Context>> make_context(const Spec& spec, const Roles& roles) {
  std::uint64_t page = send_page;
  if (roles.one_page)
    page = std::max(page, (roles.message + headers_max + page_unit - 1) / page_unit * page_unit);
  const std::uint64_t pages =
      std::max({pages_min, send_bytes / page,
                roles.one_page ? 0 : 2 * std::max(roles.message, stream_queue_bytes(spec)) / page});
  message::ContextOptions options;
  options.send_pool.page_size = static_cast<std::uint32_t>(page);
  options.send_pool.pages = static_cast<std::uint32_t>(pages);
  options.receive_pool.page_size = static_cast<std::uint32_t>(2 * page);
  options.receive_pool.pages = static_cast<std::uint32_t>(std::max(pages_min, pages / 2));
  options.wait = spec.wait;
  return message::Context::make(std::move(options));
}

net::Url listening_url(const Spec& spec, std::size_t index) {
  net::Url url = spec.url;
  if (url.scheme == "inproc") url.host = fmt::format("listener{}", index);
  return url;
}

// Until it is terminated.
Result<> run(message::Context& context) {
  on_termination([&context] {
    context.loop().stop();
    context.loop().wake();
  });
  if (!termination_asked()) context.run();
  if (termination_asked()) return {};
  return fail(ErrorKind::disconnected, "a peer is gone");
}

// What a process makes is not taken down: it ends with the process.
template <class T>
T& keep(std::unique_ptr<T> made) {
  return *made.release();
}

Result<net::Url> listen(message::Context& context, const Spec& spec, const Roles& roles,
                        std::size_t index, ProcessStats& stats) {
  net::Url url = listening_url(spec, index);
  auto role = FANIN_TRY(roles.listen(context, index, url, stats));
  keep(std::move(role));
  return url;
}

Result<> connect(message::Context& context, const Roles& roles, std::size_t index,
                 const std::vector<net::Url>& urls, ProcessStats& stats) {
  auto role = FANIN_TRY(roles.connect(context, index, urls, stats));
  keep(std::move(role));
  return {};
}

Result<> run_all_in_one(const Spec& spec, const Roles& roles, ProcessStats& stats) {
  auto made = FANIN_TRY(make_context(spec, roles));
  message::Context& context = keep(std::move(made));
  std::vector<net::Url> urls;
  for (std::size_t i = 0; i < roles.listeners; ++i) {
    const auto url = FANIN_TRY(listen(context, spec, roles, i, stats));
    urls.push_back(url);
  }
  for (std::size_t i = 0; i < roles.connectors; ++i)
    FANIN_TRY(connect(context, roles, i, urls, stats));
  return run(context);
}

} // namespace

Ends to_ends(const Spec& spec, const Roles& roles) {
  if (spec.url.scheme == "inproc") {
    Ends ends =
        in_one_process([=](ProcessStats& stats) { return run_all_in_one(spec, roles, stats); });
    ends.latency = roles.latency;
    return ends;
  }
  Ends ends;
  ends.connectors_count = roles.connectors_count;
  ends.latency = roles.latency;
  ends.listeners = roles.listeners;
  ends.connectors = roles.connectors;
  ends.listen = [=](std::size_t index, ProcessStats& stats) -> Result<> {
    auto context = FANIN_TRY(make_context(spec, roles));
    const auto url = FANIN_TRY(listen(*context, spec, roles, index, stats));
    stats.listens_at(url.text());
    auto ended = run(keep(std::move(context)));
    return roles.latency ? Result<>{} : ended; // who measures goes first
  };
  ends.connect = [=](std::size_t index, const std::vector<std::string>& addresses,
                     ProcessStats& stats) -> Result<> {
    auto context = FANIN_TRY(make_context(spec, roles));
    std::vector<net::Url> urls;
    for (const auto& address : addresses) {
      auto url = FANIN_TRY(net::Url::parse(address));
      url.options = spec.url.options;
      urls.push_back(std::move(url));
    }
    FANIN_TRY(connect(*context, roles, index, urls, stats));
    return run(keep(std::move(context)));
  };
  return ends;
}

Result<Ends> sockets_ends(const Spec& spec) {
  net::TransportRegistry registry;
  net::add_built_in_transports(registry);
  if (registry.find(spec.url.scheme) == nullptr)
    return fail(ErrorKind::unsupported, fmt::format("no transport for {} here", spec.url.text()));
  switch (spec.pattern) {
  case Pattern::stream: return to_ends(spec, stream_roles(spec));
  case Pattern::roundtrip: return to_ends(spec, roundtrip_roles(spec));
  case Pattern::pubsub: return to_ends(spec, pubsub_roles(spec));
  case Pattern::nxn: return to_ends(spec, nxn_roles(spec));
  }
  return fail(ErrorKind::unsupported, "no such pattern");
}

} // namespace fanin::bench
