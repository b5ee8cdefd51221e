#include "fanin/bench/loop_process.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fanin/net/inproc/inproc.hpp"
#include "fanin/net/tcp/tcp.hpp"

namespace fanin::bench {

Result<std::unique_ptr<LoopProcess>> LoopProcess::make(const net::Url& url) {
  std::unique_ptr<LoopProcess> process{new LoopProcess};
  if (url.scheme == "tcp") {
    process->transport_ = std::make_unique<net::TcpTransport>(process->loop_);
  } else if (url.scheme == "inproc") {
    process->transport_ = std::make_unique<net::InprocTransport>();
  } else {
    return fail(ErrorKind::unsupported, fmt::format("no transport for {} here", url.text()));
  }
  process->loop_.add(*process->transport_);
  process->transports_.add(url.scheme, *process->transport_);
  return process;
}

Result<std::unique_ptr<memory::PagePool>> make_pool(std::uint32_t page, std::uint64_t bytes) {
  return memory::PagePool::make(
      {.page_size = page,
       .pages = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, bytes / page)),
       .arena = {}});
}

} // namespace fanin::bench
