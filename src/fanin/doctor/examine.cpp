#include "fanin/doctor/examine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fanin::doctor {
namespace {

Finding about_providers(const Result<std::vector<std::string>>& providers) {
  constexpr const char* what = "libfabric";
  if (!providers) {
    return {what, Level::hint, "no ofi+PROVIDER://: " + providers.error().text,
            "install libfabric1, 1.17 or later, and a fanin that was built with libfabric-dev"};
  }
  if (providers->empty()) {
    return {what, Level::hint, "no provider with connected endpoints or reliable datagrams",
            "`fi_info` shows what libfabric finds"};
  }
  return {what, Level::good, fmt::format("ofi+{}", fmt::join(*providers, ", ofi+")), ""};
}

} // namespace

std::string_view name(Level level) {
  switch (level) {
  case Level::good: return "good";
  case Level::hint: return "hint";
  case Level::problem: return "problem";
  }
  return "unknown";
}

Findings examine(const Host& host, const Result<std::vector<std::string>>& providers) {
  Findings findings;
  detail::examine_rdma(host, findings);
  findings.push_back(about_providers(providers));
  detail::examine_interfaces(host, findings);
  detail::examine_numa(host, findings);
  detail::examine_limits(host, findings);
  detail::examine_memory(host, findings);
  detail::examine_tcp(host, findings);
  detail::examine_processors(host, findings);
  return findings;
}

} // namespace fanin::doctor
