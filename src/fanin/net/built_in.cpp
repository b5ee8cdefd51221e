// The transports that come with fanin.
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/log_limiter.hpp"
#include "fanin/net/fault/fault.hpp"
#include "fanin/net/inproc/inproc.hpp"
#include "fanin/net/ofi/ofi.hpp"
#include "fanin/net/posted/posted.hpp"
#include "fanin/net/registry.hpp"
#include "fanin/net/shm/shm.hpp"
#include "fanin/net/tcp/tcp.hpp"
#include "fanin/net/trace/trace.hpp"
#include "fanin/net/verbs/verbs.hpp"

namespace fanin::net {
namespace {

using MadeTransport = Result<std::unique_ptr<Transport>>;

// Connections by who is no node of a run: a port scan would fill the log.
class StrangerLog {
public:
  StrangerLog(Loop& loop, LogFunction log) : loop_(loop), log_(std::move(log)) {}

  void operator()(CloseReason reason, std::string_view text) {
    const bool strange = reason == CloseReason::protocol_violation ||
                         reason == CloseReason::version_mismatch ||
                         reason == CloseReason::local || // something is missing here
                         reason == CloseReason::message_too_large;
    if (!strange) return log_(LogLevel::debug, text);
    limiter_.say(log_, loop_.now(), LogLevel::warning, text);
  }

private:
  Loop& loop_;
  LogFunction log_;
  LogLimiter limiter_;
};

MadeTransport make_tcp(Loop& loop, const LogFunction& log) {
  TcpOptions options;
  options.report = StrangerLog(loop, log);
  return std::make_unique<TcpTransport>(loop, std::move(options));
}

MadeTransport make_shm(Loop& loop, const LogFunction& log) {
  ShmOptions options;
  options.report = StrangerLog(loop, log);
  return std::make_unique<ShmTransport>(loop, std::move(options));
}

MadeTransport make_inproc(Loop&, const LogFunction&) { return std::make_unique<InprocTransport>(); }

[[maybe_unused]] MadeTransport make_posted(Loop& loop, const LogFunction& log,
                                           Result<std::unique_ptr<posted::Network>> network) {
  if (!network) return std::unexpected(network.error());
  PostedOptions options;
  options.report = StrangerLog(loop, log);
  return std::make_unique<PostedTransport>(loop, std::move(*network), std::move(options));
}

MadeTransport make_verbs([[maybe_unused]] Loop& loop, [[maybe_unused]] const LogFunction& log) {
#if FANIN_HAVE_VERBS
  return make_posted(loop, log, verbs::make_network());
#else
  return fail(ErrorKind::unsupported, "verbs: this fanin was built without RDMA; install it "
                                      "(libibverbs-dev, librdmacm-dev) and build again");
#endif
}

MadeTransport make_ofi([[maybe_unused]] Loop& loop, [[maybe_unused]] const LogFunction& log,
                       std::string_view provider) {
#if FANIN_HAVE_OFI
  return make_posted(loop, log, ofi::make_network(loop, provider));
#else
  return fail(ErrorKind::unsupported,
              fmt::format("ofi+{}: this fanin was built without libfabric; install it "
                          "(libfabric-dev, 1.17 or later) and build again",
                          provider));
#endif
}

std::unique_ptr<Transport> lay_fault(Loop& loop, const LogFunction&,
                                     std::unique_ptr<Transport> below) {
  return std::make_unique<FaultTransport>(loop, std::move(below));
}

std::unique_ptr<Transport> lay_trace(Loop& loop, const LogFunction& log,
                                     std::unique_ptr<Transport> below) {
  return std::make_unique<TraceTransport>(loop, std::move(below), log);
}

} // namespace

// One line a transport: whoever adds one adds it here.
void add_built_in_transports(TransportRegistry& registry) {
  const std::pair<const char*, TransportFactory> table[] = {
      {"tcp", make_tcp}, {"shm", make_shm}, {"verbs", make_verbs}, {"inproc", make_inproc}};
  for (const auto& [scheme, factory] : table) {
    const auto added = registry.add(scheme, factory);
    FANIN_ASSERT(added.has_value());
  }
  registry.add_family("ofi", make_ofi);
  registry.add_decorator("fault", lay_fault);
  registry.add_decorator("trace", lay_trace);
}

} // namespace fanin::net
