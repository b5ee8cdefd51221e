#include "fanin/executive/run_output.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/executive/manifest_recorder.hpp"
#include "fanin/executive/plugin_call.hpp"
#include "fanin/executive/signals.hpp"
#include "fanin/executive/watched_sink.hpp"
#include "fanin/storage/discard_sink.hpp"
#include "fanin/storage/file_sink.hpp"
#include "fanin/storage/forward_sink.hpp"
#include "fanin/storage/run_numbers.hpp"

namespace fanin::executive {
namespace {

using MadeRecord = Result<std::unique_ptr<RunRecord>>;
using MadeSink = Result<std::unique_ptr<storage::EventSink>>;

class NoOutput final : public RunOutput {
public:
  MadeSink make_sink(const SinkOwner&) override { return std::make_unique<storage::DiscardSink>(); }
};

// To the slices of a second stage, which have the files and the record.
class ForwardOutput final : public RunOutput {
public:
  ForwardOutput(const config::Configuration& configuration, const builder::System& system)
      : current_(configuration.builders()) {
    options_.source = configuration.forward.source;
    options_.block = system.batch_events;
    options_.integrity = system.integrity;
    options_.give_up = configuration.forward.give_up;
    options_.slices = configuration.forward.urls;
    options_.builders = configuration.builders();
    for (const auto& source : system.sources) {
      options_.sources.push_back({source.id, source.name, {}, source.required});
    }
  }

  MadeSink make_sink(const SinkOwner& owner) override {
    storage::ForwardSinkOptions options = options_;
    options.builder = owner.builder;
    options.run = owner.run;
    options.run_id = owner.run_id;
    options.first = owner.incarnation == 1;
    options.log = owner.log;
    std::uint64_t& current = current_[owner.builder];
    const std::uint64_t mine = ++current;
    options.superseded = [&current, mine] { return current != mine; };
    options.sender = sender_number(owner.session, owner.builder, mine);
    return FANIN_TRY(storage::ForwardSink::make(*owner.loop, *owner.streams, std::move(options)));
  }

private:
  storage::ForwardSinkOptions options_; // what all sinks have
  std::vector<std::uint64_t> current_; // of each builder unit: number of its latest sink
};

// With a manifest in a folder, unless that is "discard".
class RecordedOutput : public RunOutput {
public:
  RecordedOutput(const config::Configuration& configuration, builder::System& system)
      : configuration_(configuration), system_(system) {}

  MadeRecord make_record(std::uint64_t run_id, const Clock& clock,
                         const LogFunction& log) override {
    if (folder().empty()) return nullptr;
    if (!configuration_.run.id) {
      const storage::RunNumbers numbers({folder()}, log, is_stop_pending);
      system_.run = FANIN_TRY(numbers.reserve(configuration_.run.number));
    }
    std::vector<std::string> hosts;
    for (std::size_t i = 0; i < configuration_.builders(); ++i) hosts.push_back(builder(i).host);
    return FANIN_TRY(ManifestRecorder::make(folder(), system_, run_id, hosts, clock, log));
  }

protected:
  [[nodiscard]] const std::string& folder() const { return configuration_.run.output; }
  [[nodiscard]] Result<> make_folder() const {
    std::error_code error;
    if (!folder().empty()) std::filesystem::create_directories(folder(), error);
    if (!error) return {};
    return fail(ErrorKind::refused,
                fmt::format("run.output: folder {} cannot be made: {}", folder(), error.message()));
  }
  [[nodiscard]] const config::Node& builder(std::size_t i) const {
    return configuration_.nodes[configuration_.builder_node(i)];
  }
  [[nodiscard]] const config::Configuration& configuration() const { return configuration_; }
  [[nodiscard]] const builder::System& system() const { return system_; }

private:
  const config::Configuration& configuration_;
  builder::System& system_;
};

class FileOutput final : public RecordedOutput {
public:
  using RecordedOutput::RecordedOutput;

  MadeSink make_sink(const SinkOwner& owner) override {
    const config::Node& node = builder(owner.builder);
    storage::FileSinkOptions options = configuration().storage;
    options.file.directory = folder();
    options.file.run = owner.run;
    options.file.run_id = owner.run_id;
    options.file.node = node.name;
    options.file.node_index = owner.builder;
    options.file.incarnation = owner.incarnation;
    storage::EventSources sources = event_sources(system(), owner.run);
    options.file.sources = std::move(sources.sources);
    options.file.merged = std::move(sources.merged);
    options.file.slice = sources.slice;
    options.file.streams = system().streams;
    options.file.integrity = system().integrity;
    options.file.started_unix_ns = unix_ns(); // until the run begins
    options.file.configuration = settings::to_toml(configuration().written);
    options.file.comment = configuration().run.comment;
    options.file.metadata = configuration().run.metadata;
    options.on_gone = owner.on_gone;
    if (node.cpus.size() > 1) options.cpu = node.cpus[1];
    FANIN_TRY(make_folder());
    auto sink = FANIN_TRY(storage::FileSink::make(std::move(options)));
    FANIN_TRY(sink->start());
    return sink;
  }
};

// To a plug-in's sink.
class PluginOutput final : public RecordedOutput {
public:
  PluginOutput(const config::Configuration& configuration, builder::System& system,
               const storage::SinkRegistry& sinks)
      : RecordedOutput(configuration, system), make_(sinks.find(sink_settings(configuration))) {}

  MadeSink make_sink(const SinkOwner& owner) override {
    if (!make_) return std::unexpected(make_.error());
    FANIN_TRY(make_folder());
    const PluginCall call(sink_settings(configuration()), "sink");
    auto sink = FANIN_TRY((*make_)({.run = owner.run,
                                    .node = builder(owner.builder).name,
                                    .node_index = owner.builder,
                                    .incarnation = owner.incarnation,
                                    .folder = folder(),
                                    .sources = event_sources(system(), owner.run),
                                    .streams = system().streams,
                                    .integrity = system().integrity,
                                    .loop = owner.loop,
                                    .log = owner.log}));
    return std::make_unique<WatchedSink>(std::move(sink),
                                         fmt::format("sink \"{}\"", configuration().sink.type),
                                         owner.loop->clock(), owner.log);
  }

private:
  Result<storage::SinkMaker> make_;
};

} // namespace

std::unique_ptr<RunOutput> make_run_output(const config::Configuration& configuration,
                                           builder::System& system,
                                           const storage::SinkRegistry& sinks) {
  if (!configuration.sink.type.empty())
    return std::make_unique<PluginOutput>(configuration, system, sinks);
  if (configuration.forwards()) return std::make_unique<ForwardOutput>(configuration, system);
  if (configuration.run.output.empty()) return std::make_unique<NoOutput>();
  return std::make_unique<FileOutput>(configuration, system);
}

std::int64_t unix_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What is merged stands in files for its super-fragments.
storage::EventSources event_sources(const builder::System& system, RunNumber run) {
  storage::EventSources found;
  found.slice = system.slice;
  found.run = run;
  for (const auto& source : system.sources) {
    const std::string& unit = system.readout_units[source.readout_unit];
    if (source.merged.empty()) {
      found.sources.push_back({source.id, source.name, unit, source.required});
      continue;
    }
    found.merged.push_back({source.id, source.merged});
    for (const auto& member : source.merged) {
      found.sources.push_back({member.id, member.name, unit, member.required});
    }
  }
  std::ranges::sort(found.sources, {}, &storage::SourceInfo::id);
  std::ranges::sort(found.merged, {}, &storage::MergedSource::source);
  return found;
}

source::SourceSettings sink_settings(const config::Configuration& configuration) {
  const config::Sink& sink = configuration.sink;
  source::SourceSettings settings;
  settings.name = settings.type = sink.type;
  settings.key = "storage";
  settings.place = configuration.place_of("storage.sink");
  settings.seed = configuration.run.seed;
  settings.values = sink.settings;
  settings.common_keys = sink.common_keys;
  return settings;
}

} // namespace fanin::executive
