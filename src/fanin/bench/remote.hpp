// The same ends on two hosts: one serves the listeners, the other one has the connectors and says
// what is to be measured. Each listener is a RemoteProcess with a connection of its own; the
// listeners' ports are chosen by the system.
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/measure.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// Serves listeners, without an end. Errors: refused.
[[nodiscard]] Result<> serve_ends(const net::Url& url, const Progress& progress);

// spec's listeners where serve_ends() listens, its connectors (of `ends`) here. Errors: what either
// side says.
[[nodiscard]] Result<Sample> run_with_other_host(const net::Url& url, const Spec& spec,
                                                 const Ends& ends, const Window& window);

} // namespace fanin::bench
