#include "fanin/bench/evb_processes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/bench/loop_process.hpp"
#include "fanin/builder/builder_unit.hpp"
#include "fanin/builder/event_manager.hpp"
#include "fanin/builder/readout_unit.hpp"
#include "fanin/source/emulator.hpp"
#include "fanin/storage/discard_sink.hpp"
#include "fanin/storage/file_sink.hpp"

namespace fanin::bench {
namespace {

constexpr std::uint32_t control_page = 64U << 10;
constexpr std::uint32_t metadata_page = 64U << 10;
constexpr std::uint32_t window_max = 65536;
constexpr Duration node_patience = std::chrono::seconds{10};

// A node of the event builder: pools, then the application on them.
class Node {
public:
  virtual ~Node() = default;
  [[nodiscard]] virtual Result<> start() = 0;
  // SIGTERM has come.
  virtual void stop() {}
  [[nodiscard]] virtual bool connected() const { return true; } // to the event manager
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] const Result<>& outcome() const { return outcome_; }
  virtual void look() {} // once per turn

protected:
  Node(LoopProcess& process, Cell& cell) : process_(process), cell_(cell) {}
  Result<builder::NodeEnvironment> environment(std::size_t connections) {
    auto pool = make_pool(control_page,
                          builder::control_pages(connections) * std::uint64_t{control_page} * 2,
                          process_.transport().shares_memory());
    if (!pool) return std::unexpected(pool.error());
    control_pool_ = std::move(*pool);
    return builder::NodeEnvironment{.loop = &process_.loop(),
                                    .transports = &process_.transports(),
                                    .control_pool = control_pool_.get(),
                                    .log = [this](LogLevel level, std::string_view text) {
                                      if (level == LogLevel::error) cell_.note(text);
                                    }};
  }
  void end(const Result<>& result) {
    ended_ = true;
    outcome_ = result;
  }

  LoopProcess& process_;
  Cell& cell_;
  std::unique_ptr<memory::PagePool> control_pool_;

private:
  bool ended_ = false;
  Result<> outcome_;
};

class ManagerNode final : public Node {
public:
  ManagerNode(const EvbSetup& setup, net::Url url, LoopProcess& process, Cell& cell)
      : Node(process, cell), setup_(setup), url_(std::move(url)) {}

  Result<> start() override {
    auto made =
        environment(setup_.system.readout_units.size() + setup_.system.builder_units.size());
    if (!made) return std::unexpected(made.error());
    manager_ = std::make_unique<builder::EventManager>(
        setup_.system,
        builder::EventManagerOptions{
            .url = url_, .on_end = [this](const builder::RunSummary& run) { finish(run); }},
        std::move(*made));
    if (auto started = manager_->start(); !started) return started;
    cell_.say(manager_->url().text());
    return {};
  }
  void stop() override { manager_->stop(); }

private:
  void finish(const builder::RunSummary& run) {
    cell_.latency = run.latency;
    if (!run.error.empty()) {
      cell_.note(run.error);
    } else if (!run.balanced || run.events_incomplete != 0 || run.events_lost != 0) {
      cell_.note(fmt::format("{} built, {} incomplete, {} lost, {}", run.events_built,
                             run.events_incomplete, run.events_lost,
                             run.balanced ? "balanced" : "NOT BALANCED"));
    }
    end({});
  }

  const EvbSetup& setup_;
  net::Url url_;
  std::unique_ptr<builder::EventManager> manager_;
};

class ReadoutNode final : public Node {
public:
  ReadoutNode(const EvbSetup& setup, std::size_t index, net::Url manager, LoopProcess& process,
              Cell& cell)
      : Node(process, cell),
        setup_(setup),
        index_(static_cast<NodeId>(index)),
        manager_(std::move(manager)) {}

  Result<> start() override {
    auto made = environment(setup_.system.builder_units.size() + 1);
    if (!made) return std::unexpected(made.error());
    builder::ReadoutOptions options;
    options.node = index_;
    options.event_manager = manager_;
    options.on_end = [this](const Result<>& result) { end(result); };
    auto metadata =
        make_pool(metadata_page, std::max<std::uint64_t>(4U << 20, setup_.readout_buffer / 8),
                  process_.transport().shares_memory());
    if (!metadata) return std::unexpected(metadata.error());
    metadata_pool_ = std::move(*metadata);
    options.metadata_pool = metadata_pool_.get();
    const auto [first, last] = setup_.system.sources_of(index_);
    for (std::size_t i = first; i < last; ++i) {
      auto pool = make_pool(setup_.source_page, setup_.readout_buffer / (last - first),
                            process_.transport().shares_memory());
      if (!pool) return std::unexpected(pool.error());
      pools_.push_back(std::move(*pool));
      options.inputs.push_back(make_input(setup_.system.sources[i].id, *pools_.back()));
    }
    unit_ =
        std::make_unique<builder::ReadoutUnit>(setup_.system, std::move(options), std::move(*made));
    unit_->start();
    return {};
  }
  [[nodiscard]] bool connected() const override { return unit_->connected(); }
  void look() override {
    std::uint64_t held = 0;
    for (const auto& pool : pools_) {
      held += std::uint64_t{pool->pages() - pool->available()} * pool->page_size();
    }
    cell_.held_bytes.add(held);
    cell_.held_looks.add(1);
  }

private:
  builder::ReadoutInput make_input(SourceId id, memory::PagePool& pool) {
    builder::ReadoutInput input;
    input.pool = &pool;
    input.queue = {.source = id,
                   .window = window_max,
                   .fragment_max = std::max(setup_.fragment_size, 1U),
                   .checksum = setup_.system.checksum};
    input.source = std::make_unique<source::Emulator>(
        source::EmulatorOptions{.source = id, .size = source::FixedSize{setup_.fragment_size}});
    return input;
  }

  const EvbSetup& setup_;
  NodeId index_;
  net::Url manager_;
  std::vector<std::unique_ptr<memory::PagePool>> pools_;
  std::unique_ptr<memory::PagePool> metadata_pool_;
  std::unique_ptr<builder::ReadoutUnit> unit_;
};

// Counts what is built on its way to where it goes.
template <class Sink>
class Counting final : public storage::EventSink {
public:
  Counting(std::unique_ptr<Sink> sink, Cell& cell) : sink_(std::move(sink)), cell_(cell) {
    sink_->on_commit([this](std::uint64_t ticket) { this->commit_(ticket); });
    sink_->on_failure([this](const Error& error, bool fatal) { this->failure_(error, fatal); });
  }
  storage::SubmitOutcome submit(storage::BuiltBatch& batch) override {
    std::uint64_t fragments = 0;
    std::uint64_t bytes = 0;
    for (const auto& piece : batch.pieces) {
      bytes += piece.payload.size;
      if (piece.payload_offset == 0) fragments += piece.range.count();
    }
    const std::uint64_t events = batch.range.count();
    if (sink_->submit(batch) == storage::SubmitOutcome::busy) return storage::SubmitOutcome::busy;
    cell_.batches.add(1);
    cell_.events.add(events);
    cell_.messages.add(fragments);
    cell_.bytes.add(bytes);
    return storage::SubmitOutcome::accepted;
  }
  void finish() override { sink_->finish(); }
  [[nodiscard]] bool finished() const override { return sink_->finished(); }
  [[nodiscard]] std::vector<std::string> files() const override { return sink_->files(); }
  [[nodiscard]] std::size_t file_count() const override { return sink_->file_count(); }
  [[nodiscard]] std::uint64_t bytes_written() const override { return sink_->bytes_written(); }
  bool poll() override { return sink_->poll(); }
  bool arm() override { return sink_->arm(); }
  [[nodiscard]] int descriptor() const override { return sink_->descriptor(); }

private:
  std::unique_ptr<Sink> sink_;
  Cell& cell_;
};

class BuilderNode final : public Node {
public:
  BuilderNode(const EvbSetup& setup, std::size_t index, net::Url manager, LoopProcess& process,
              Cell& cell)
      : Node(process, cell),
        setup_(setup),
        index_(static_cast<NodeId>(index)),
        manager_(std::move(manager)) {}

  Result<> start() override {
    auto made = environment(setup_.system.readout_units.size() + 1);
    if (!made) return std::unexpected(made.error());
    auto pool = make_pool(setup_.system.data_page, setup_.builder_buffer);
    if (!pool) return std::unexpected(pool.error());
    pool_ = std::move(*pool);
    unit_ = std::make_unique<builder::BuilderUnit>(
        setup_.system,
        builder::BuilderOptions{
            .node = index_,
            .event_manager = manager_,
            .data = {data_url()},
            .receive_pool = pool_.get(),
            .make_sink = [this](RunNumber run,
                                Incarnation incarnation) { return make_sink(run, incarnation); },
            .on_end = [this](const Result<>& result) { end(result); }},
        std::move(*made));
    return unit_->start();
  }
  [[nodiscard]] bool connected() const override { return unit_->connected(); }
  void look() override {
    cell_.held_bytes.add(std::uint64_t{pool_->pages() - pool_->available()} * pool_->page_size());
    cell_.held_looks.add(1);
  }

private:
  net::Url data_url() const {
    net::Url url = setup_.url;
    if (url.scheme == "inproc") url.host = setup_.system.builder_units[index_];
    return url;
  }

  using MadeSink = Result<std::unique_ptr<storage::EventSink>>;

  MadeSink make_sink(RunNumber run, Incarnation incarnation) {
    if (setup_.storage.empty()) {
      return std::make_unique<Counting<storage::DiscardSink>>(
          std::make_unique<storage::DiscardSink>(), cell_);
    }
    storage::FileSinkOptions options;
    options.file.directory = setup_.storage;
    options.file.run = run;
    options.file.node = setup_.system.builder_units[index_];
    options.file.node_index = index_;
    options.file.incarnation = incarnation;
    options.file.integrity = setup_.system.checksum;
    for (const auto& source : setup_.system.sources) {
      options.file.sources.push_back(
          {.id = source.id,
           .name = source.name,
           .readout_unit = setup_.system.readout_units[source.readout_unit],
           .required = source.required});
    }
    auto sink = storage::FileSink::make(std::move(options));
    if (!sink) return std::unexpected(sink.error());
    if (auto started = (*sink)->start(); !started) return std::unexpected(started.error());
    return std::make_unique<Counting<storage::FileSink>>(std::move(*sink), cell_);
  }

  const EvbSetup& setup_;
  NodeId index_;
  net::Url manager_;
  std::unique_ptr<memory::PagePool> pool_;
  std::unique_ptr<builder::BuilderUnit> unit_;
};

// Ends the loop when its nodes have ended and what they had to say is on its way.
class Watch final : public net::Service {
public:
  Watch(LoopProcess& process, std::vector<std::unique_ptr<Node>> nodes, Cell& cell)
      : process_(process), nodes_(std::move(nodes)), cell_(cell) {}

  Result<> run() {
    for (auto& node : nodes_) {
      if (auto started = node->start(); !started) return started;
    }
    process_.loop().add(*this);
    process_.loop().run();
    for (auto& node : nodes_) {
      if (!node->outcome()) return node->outcome();
    }
    return {};
  }
  bool poll() override {
    if (!ready_ &&
        std::ranges::all_of(nodes_, [](const auto& node) { return node->connected(); })) {
      ready_ = true;
      cell_.state = Cell::State::ready;
    }
    if (!stopping_ && termination_asked()) {
      stopping_ = true;
      for (auto& node : nodes_) node->stop();
    }
    for (auto& node : nodes_) node->look();
    const bool ended = std::ranges::all_of(nodes_, [](const auto& node) { return node->ended(); });
    if (ended && process_.transport().closing() == 0) process_.loop().stop();
    return false;
  }

private:
  LoopProcess& process_;
  std::vector<std::unique_ptr<Node>> nodes_;
  Cell& cell_;
  bool ready_ = false;
  bool stopping_ = false;
};

using MakeNodes = std::function<std::vector<std::unique_ptr<Node>>(LoopProcess&, Cell&)>;

Result<> live(const EvbSetup& setup, net::WaitPolicy wait, const MakeNodes& make, Cell& cell) {
  auto process = LoopProcess::make(setup.url, wait);
  if (!process) return std::unexpected(process.error());
  // Neither is destroyed: the process ends with them.
  auto* watch = new Watch(**process, make(**process, cell), cell);
  on_termination([loop = &(*process)->loop()] { loop->wake(); });
  return watch->run();
}

net::Url with_host(net::Url url, const std::string& host) {
  if (url.scheme == "inproc") url.host = host;
  return url;
}

Result<> start_in_one_process(ProcessGroup& group, const EvbSetup& setup) {
  auto started = group.start("all", [&](Cell& cell) {
    return live(
        setup, setup.wait,
        [&](LoopProcess& process, Cell& own) {
          const net::Url manager = with_host(setup.url, "evm");
          std::vector<std::unique_ptr<Node>> nodes;
          nodes.push_back(std::make_unique<ManagerNode>(setup, manager, process, own));
          for (std::size_t i = 0; i < setup.system.readout_units.size(); ++i) {
            nodes.push_back(std::make_unique<ReadoutNode>(setup, i, manager, process, own));
          }
          for (std::size_t i = 0; i < setup.system.builder_units.size(); ++i) {
            nodes.push_back(std::make_unique<BuilderNode>(setup, i, manager, process, own));
          }
          return nodes;
        },
        cell);
  });
  if (!started) return std::unexpected(started.error());
  return group.wait_until_ready(*started);
}

template <class NodeType>
Result<> start_nodes(ProcessGroup& group, const EvbSetup& setup,
                     const std::vector<std::string>& names, const net::Url& manager) {
  const std::size_t first = group.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto started = group.start(names[i], [&](Cell& cell) {
      return live(
          setup, setup.wait,
          [&](LoopProcess& process, Cell& own) {
            std::vector<std::unique_ptr<Node>> nodes;
            nodes.push_back(std::make_unique<NodeType>(setup, i, manager, process, own));
            return nodes;
          },
          cell);
    });
    if (!started) return std::unexpected(started.error());
  }
  for (std::size_t i = first; i < group.size(); ++i) {
    if (auto ready = group.wait_until_ready(i); !ready) return ready;
  }
  return {};
}

Result<> start_processes(ProcessGroup& group, const EvbSetup& setup) {
  auto manager = group.start("evm", [&](Cell& cell) {
    return live(
        setup, setup.manager_wait,
        [&](LoopProcess& process, Cell& own) {
          std::vector<std::unique_ptr<Node>> nodes;
          nodes.push_back(std::make_unique<ManagerNode>(setup, setup.url, process, own));
          return nodes;
        },
        cell);
  });
  if (!manager) return std::unexpected(manager.error());
  if (auto ready = group.wait_until_ready(*manager); !ready) return ready;
  const auto url = net::Url::parse(group.cell(*manager).text.data());
  if (!url) return std::unexpected(url.error());
  auto done = start_nodes<BuilderNode>(group, setup, setup.system.builder_units, *url);
  if (done) done = start_nodes<ReadoutNode>(group, setup, setup.system.readout_units, *url);
  return done;
}

} // namespace

builder::System make_system(std::size_t readout_units, std::size_t builder_units,
                            std::size_t sources) {
  builder::System system;
  for (std::size_t i = 0; i < readout_units; ++i) {
    system.readout_units.push_back(fmt::format("ru{}", i));
    for (std::size_t k = 0; k < sources; ++k) {
      const auto id = static_cast<SourceId>(i * sources + k + 1);
      system.sources.push_back({id, fmt::format("source{}", id), static_cast<NodeId>(i), true});
    }
  }
  for (std::size_t i = 0; i < builder_units; ++i)
    system.builder_units.push_back(fmt::format("bu{}", i));
  return system;
}

namespace {

// Where one measurement writes to; removed with all that is in it.
class Folder {
public:
  static Result<Folder> make(const std::string& parent) {
    std::error_code error;
    std::filesystem::create_directories(parent, error);
    std::string path = parent + "/evb-XXXXXX";
    if (error || mkdtemp(path.data()) == nullptr)
      return fail_errno(ErrorKind::usage, fmt::format("{}: no folder can be made there", parent),
                        errno);
    return Folder(std::move(path));
  }
  Folder(Folder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Folder& operator=(Folder&&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Result<Sample> measure_evb(const EvbSetup& setup, Duration warmup, Duration duration, bool idle) {
  ProcessGroup group;
  auto started = setup.url.scheme == "inproc" ? start_in_one_process(group, setup)
                                              : start_processes(group, setup);
  if (!started) return std::unexpected(started.error());
  auto sample = group.measure(warmup, duration, !idle);
  if (!sample) return sample;
  group.terminate(0); // the event manager ends the run
  if (auto ended = group.wait_until_ended(node_patience); !ended) {
    sample->remark = ended.error().text;
  }
  sample->latency = group.cell(0).latency;
  for (std::size_t i = 0; i < group.size() && sample->remark.empty(); ++i) {
    sample->remark = group.cell(i).remark.data();
  }
  return sample;
}

} // namespace

Result<Sample> run_evb(const EvbSetup& setup, Duration warmup, Duration duration, bool idle) {
  if (setup.storage.empty()) return measure_evb(setup, warmup, duration, idle);
  const auto folder = Folder::make(setup.storage);
  if (!folder) return std::unexpected(folder.error());
  EvbSetup own = setup;
  own.storage = folder->path();
  return measure_evb(own, warmup, duration, idle);
}

} // namespace fanin::bench
