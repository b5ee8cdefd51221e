// What fanin bench can measure, a file each.
#pragma once

namespace CLI {
class App;
}

namespace fanin::command {

// --stolen-max, in percent.
void add_stolen_option(CLI::App& command, double& percent);
void add_message_benches(CLI::App& bench, int& status); // stream, roundtrip, pubsub, nxn
void add_evb(CLI::App& bench, int& status);

} // namespace fanin::command
