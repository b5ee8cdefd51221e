// What a process of a benchmark on another host is to do, as JSON:
//   {"ends": spec, "listen": index}                         one of a contender's ends
//   {"ends": spec, "connect": index, "addresses": [...]}
//   {"evb": shape, "hosts", "node": index, "control": url, "poll"}   one node of an event builder
//   {"send": options}                                       the senders of a readout unit
#pragma once

#include <cstddef>

#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/measure.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/bench/spec.hpp"
#include "fanin/executive/host_list.hpp"

namespace fanin::bench {

// A listener, or a connector to these addresses.
[[nodiscard]] json::Value end_task(const Spec& spec, std::size_t index,
                                   const std::vector<std::string>* addresses);

// Errors: malformed, and those of the body's maker.
[[nodiscard]] Result<ProcessGroup::Body> body_of(const json::Value& task);

// As run_ends(), with the senders and receivers of an N x M measurement each on a host of its own:
// those that readout and builder units get. `readouts`: of the whole event builder, whose builder
// units' hosts follow theirs.
[[nodiscard]] Result<Sample> run_on_hosts(const Spec& spec, std::size_t readouts,
                                          const executive::HostList& hosts, const Window& window);

// As run_ends(), with the listeners where serve_ends() listens, and the connectors here. Errors:
// what either side says.
[[nodiscard]] Result<Sample> run_with_other_host(const net::Url& url, const Spec& spec,
                                                 const Ends& ends, const Window& window);
// Serves listeners, without an end: each is a RemoteProcess with a connection of its own. The
// listeners' ports are chosen by the system. Errors: refused.
[[nodiscard]] Result<> serve_ends(const net::Url& url, const Progress& progress);

// The same list for a sender and a receiver on each host: those of the senders, twice. There are as
// many receivers as senders.
[[nodiscard]] executive::HostList with_both_on_each(const executive::HostList& hosts,
                                                    std::size_t senders);

} // namespace fanin::bench
