// N x N traffic on a simulated network: what `fanin bench nxn` runs, in virtual time. Through
// fanin's message sockets, or with traffic shaping.
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/simulation/configuration_file.hpp"
#include "fanin/simulation/point.hpp"
#include "fanin/simulation/progress.hpp"

namespace fanin::simulation {

// `fabric.nodes` senders, each of which sends to as many receivers, as fast as they take messages
// of traffic.size: in turn, or in the order of `shaping.policy` with carriers full of such
// messages. Errors: usage, refused.
[[nodiscard]] Result<Outcome> run_nxn(const ConfigurationFile& file, const Watch& watch);

// What is wrong with it, before anything runs.
[[nodiscard]] Result<> check_nxn(const ConfigurationFile& file);

} // namespace fanin::simulation
