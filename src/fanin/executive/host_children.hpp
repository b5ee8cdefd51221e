// The processes of a run on the hosts of a list (host_process.hpp): here the launcher's side of
// each, and there the side of `fanin on-host`, which starts the process as a child of its own.
//
//   to it     {"start": {"folder", "arguments"[], "input"}}   once
//             {"stop": true}, {"kill": true}, {"death": session}   as Child, tell_of_death()
//   from it   reports (report.hpp), then {"exit": {"status", "signal", "peak_rss_bytes", "cpu_s"}}
//             {"refused": why}                                it could not be started
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/log.hpp"
#include "fanin/executive/child.hpp"
#include "fanin/executive/host_list.hpp"

namespace fanin::executive {

inline constexpr Duration host_patience = std::chrono::seconds{20}; // until a host answers

// The configuration's process that has the place i runs on host number i. A child's pid() is that
// of the command that reaches its host.
class HostChildren final : public Children {
public:
  // What a host writes to its standard error, and is no report, goes to the log. `hosts` outlives
  // it.
  FANIN_INTERNAL_API HostChildren(net::Loop& loop, const HostList& hosts, LogFunction log,
                                  Duration patience = host_patience);
  FANIN_INTERNAL_API ~HostChildren() override;
  [[nodiscard]] FANIN_INTERNAL_API Result<std::unique_ptr<Child>>
  start(std::size_t place, std::vector<std::string> arguments, const std::string& input,
        Child::Handlers handlers) override;
  FANIN_INTERNAL_API void tell_of_death(Child& child, std::uint64_t session) override;

private:
  net::Loop& loop_;
  const HostList& hosts_;
  LogFunction log_;
  Duration patience_;
};

// The other side, with `start` from the first line. Returns when the process has ended, which was
// reported, or when standard input ends; then the process is killed. Errors: it cannot be started.
[[nodiscard]] FANIN_INTERNAL_API Result<> serve_process(const json::Value& start);

} // namespace fanin::executive
