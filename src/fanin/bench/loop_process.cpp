#include "fanin/bench/loop_process.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/net/registry.hpp"

namespace fanin::bench {

Result<std::unique_ptr<LoopProcess>> LoopProcess::make(const net::Url& url, net::WaitPolicy wait) {
  std::unique_ptr<LoopProcess> process{new LoopProcess(wait)};
  net::TransportRegistry registry;
  net::add_built_in_transports(registry);
  const net::TransportFactory factory = registry.find(url.scheme);
  if (!factory) {
    return fail(ErrorKind::unsupported, fmt::format("no transport for {} here", url.text()));
  }
  process->transport_ = FANIN_TRY(factory(process->loop_, [](LogLevel, std::string_view) {}));
  process->loop_.add(*process->transport_);
  process->transports_.add(url.scheme, *process->transport_);
  return process;
}

Result<std::unique_ptr<memory::PagePool>> make_pool(std::uint32_t page, std::uint64_t bytes,
                                                    bool shared) {
  return memory::PagePool::make(
      {.page_size = page,
       .pages = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, bytes / page)),
       .arena = {.shared = shared}});
}

} // namespace fanin::bench
