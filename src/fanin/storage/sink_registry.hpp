/// \file
/// The sinks of plug-ins by type: where a builder unit's events go if `storage.sink` names one.
/// docs/plugins.md has the contract.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/source/settings.hpp"
#include "fanin/storage/batch_events.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::storage {

/// What a sink is made for: a builder unit that has joined a run.
struct SinkRun {
  RunNumber run = 0;
  std::string node; ///< name of the builder unit
  NodeId node_index = 0;
  Incarnation incarnation = 0; ///< which start of the builder unit; from 1
  std::string folder; ///< `run.output`, which is there; empty: "discard"
  EventSources sources; ///< for BatchEvents
  std::vector<StreamInfo> streams; ///< of filter units; empty: there are none
  bool integrity = true; ///< fragments have checksums
  net::Loop* loop = nullptr; ///< of the builder unit; outlives the sink
  LogFunction log; ///< lines of the builder unit
};

/// Makes one sink: for each builder unit and run, and again if the builder unit loses the event
/// manager and joins once more. The earlier sink may still be finishing then. Errors and exceptions
/// end the builder unit.
using SinkMaker = std::function<Result<std::unique_ptr<EventSink>>(const SinkRun& run)>;

/// Reads the type's own keys of [storage], and opens nothing: `fanin check` calls it too. An
/// exception becomes an error.
using SinkFactory = std::function<Result<SinkMaker>(const source::SourceSettings& settings)>;

class SinkRegistry {
public:
  /// Errors: usage, if a sink of that type is registered already, or belongs to fanin.
  [[nodiscard]] FANIN_API Result<> add(std::string type, SinkFactory factory);
  /// The maker for settings.type. An exception of the maker becomes an error, and so does a null
  /// sink. Errors: usage for an unknown type, and errors of the factory.
  [[nodiscard]] Result<SinkMaker> find(const source::SourceSettings& settings) const;

private:
  std::map<std::string, SinkFactory, std::less<>> factories_;
};

/// True for the sinks of fanin: "file", "discard" and "forward".
[[nodiscard]] bool is_own_sink(std::string_view type);

} // namespace fanin::storage
