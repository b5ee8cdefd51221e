// Where the events of a run and its record go: to files, to a second stage, to the sink of a
// plug-in, or nowhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"
#include "fanin/builder/manager/event_manager.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/net/stream/stream.hpp"
#include "fanin/source/settings.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/sink_registry.hpp"

namespace fanin::executive {

// What the event manager has to say about a run.
class RunRecord : public builder::RunRecorder {
public:
  // Writes what could not be written so far. False: something is still missing.
  virtual bool retry() = 0;
  // True: it is not at its place any more, and that is new. One system call.
  [[nodiscard]] virtual bool check_file() = 0;
  [[nodiscard]] virtual const std::string& path() const = 0;
};

// For whom a sink is made.
struct SinkOwner {
  NodeId builder = 0;
  RunNumber run = 0;
  std::uint64_t run_id = 0; // random
  Incarnation incarnation = 0;
  std::uint64_t session = 0; // of the process
  net::Loop* loop = nullptr; // of the sink
  net::Streams* streams = nullptr; // likewise
  LogFunction log{};
  // A file of the sink, with so many events, is not at its place any more. On the loop.
  std::function<void(const std::string& path, std::uint64_t events)> on_gone;
};

// The number by which slices know a sink of a builder unit: another one for each sink of the
// process with that session. Not 0. `sink` is below 2^31.
[[nodiscard]] constexpr std::uint64_t sender_number(std::uint64_t session, NodeId builder,
                                                    std::uint64_t sink) {
  return (session ^ (std::uint64_t{builder} << 32) ^ (sink << 1)) | 1;
}

// Thread: that of the nodes that use it. Outlives them and what it makes.
class RunOutput {
public:
  virtual ~RunOutput() = default;
  // Of the run with that random id. `clock` measures the run, and outlives the record. Null: there
  // is none. Errors: those of storage::RunNumbers; refused, exhausted, internal.
  [[nodiscard]] virtual Result<std::unique_ptr<RunRecord>>
  make_record(std::uint64_t /*run_id*/, const Clock& /*clock*/, const LogFunction& /*log*/) {
    return nullptr;
  }
  // A sink that was started. Errors: refused, exhausted, internal.
  [[nodiscard]] virtual Result<std::unique_ptr<storage::EventSink>>
  make_sink(const SinkOwner& owner) = 0;
};

// As `configuration` says; a folder is made where there is none. `sinks`: those of plug-ins.
// `system` gets its run number when the record is made. All of it outlives the output.
[[nodiscard]] std::unique_ptr<RunOutput> make_run_output(const config::Configuration& configuration,
                                                         builder::System& system,
                                                         const storage::SinkRegistry& sinks);

// The sources of a run, as its files name them; `readout_unit` of each, too.
[[nodiscard]] storage::EventSources event_sources(const builder::System& system, RunNumber run);

// What this host's clock says.
[[nodiscard]] FANIN_INTERNAL_API std::int64_t unix_ns();

// Of a plug-in's sink, for its factory.
[[nodiscard]] source::SourceSettings sink_settings(const config::Configuration& configuration);

} // namespace fanin::executive
