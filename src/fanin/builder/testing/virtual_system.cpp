#include "fanin/builder/testing/virtual_system.hpp"

#include <algorithm>

namespace fanin::builder::testing {

namespace {

std::unique_ptr<memory::PagePool> make_pool(std::uint32_t page_size, std::uint32_t pages) {
  auto pool = memory::PagePool::make(
      {.page_size = page_size,
       .pages = pages,
       .arena = {.huge_pages = memory::HugePages::off, .reserve_only = true}});
  FANIN_ASSERT(pool.has_value());
  return std::move(*pool);
}

constexpr std::uint32_t control_page = 16U << 10;

// Can be found for as long as it lives; a unit that joins anew has another one.
class KnownSink final : public storage::MemorySink {
public:
  KnownSink(storage::MemorySink*& place, net::Loop& loop, storage::MemoryStore& store,
            storage::MemorySinkOptions options)
      : MemorySink(loop, store, std::move(options)), place_(place) {
    place_ = this;
  }
  ~KnownSink() override {
    if (place_ == this) place_ = nullptr;
  }
  KnownSink(const KnownSink&) = delete;
  KnownSink& operator=(const KnownSink&) = delete;

private:
  storage::MemorySink*& place_;
};

} // namespace

System make_system(std::size_t readouts, std::size_t builders, std::size_t sources) {
  System system;
  for (std::size_t i = 0; i < readouts; ++i) {
    system.readout_units.push_back(fmt::format("ru{}", i));
    for (std::size_t k = 0; k < sources; ++k) {
      const auto id = static_cast<SourceId>(i * sources + k + 1);
      system.sources.push_back({id, fmt::format("source{}", id), static_cast<NodeId>(i), true});
    }
  }
  for (std::size_t i = 0; i < builders; ++i) system.builder_units.push_back(fmt::format("bu{}", i));
  system.data_page = 32U << 10;
  system.batch_events = 64;
  system.batch_bytes = 64U << 10;
  system.latency = Duration{0};
  system.event_deadline = std::chrono::milliseconds{200};
  system.grace = std::chrono::milliseconds{40};
  system.dead_after = std::chrono::seconds{2};
  return system;
}

class VirtualSystem::Recorder final : public RunRecorder {
public:
  void file(NodeId, Incarnation, const std::string&) override {}
  void winner(EventRange batch, Attempt attempt, NodeId, Incarnation) override {
    for (EventNumber event = batch.first; event < batch.end; ++event) winners[event] = attempt;
  }
  void summary(const RunSummary&) override {}
  std::map<EventNumber, Attempt> winners; // of events that were assigned more than once
};

VirtualSystem::VirtualSystem(VirtualSystemOptions options)
    : options_(std::move(options)),
      recorder_(std::make_unique<Recorder>()),
      world_(options_.seed, options_.network) {
  const System& system = options_.system;
  const auto nodes =
      static_cast<std::uint32_t>(system.readout_units.size() + system.builder_units.size());
  manager_.control_pool = make_pool(control_page, 64 + 8 * nodes);
  make_node(manager_, "evm");
  for (const auto& name : system.readout_units) {
    auto node = std::make_unique<ReadoutNode>();
    node->control_pool =
        make_pool(control_page, 64 + 8 * static_cast<std::uint32_t>(system.builder_units.size()));
    const auto [first, last] = system.sources_of(static_cast<NodeId>(readouts_.size()));
    for (std::size_t i = first; i < last; ++i) {
      node->source_pools.push_back(make_pool(options_.source_page, options_.source_pages));
    }
    const MetadataLayout metadata{.page = options_.metadata_page,
                                  .batch_events = system.batch_events,
                                  .message_max = system.message_max(),
                                  .builders = system.builder_units.size(),
                                  .sources = last - first,
                                  .payload = (last - first) * options_.source_pages *
                                             std::uint64_t{options_.source_page},
                                  .source_page = options_.source_page};
    node->metadata_pool = make_pool(
        options_.metadata_page,
        std::max(options_.metadata_pages, static_cast<std::uint32_t>(metadata.pages_least())));
    make_node(*node, name);
    readouts_.push_back(std::move(node));
  }
  for (const auto& name : system.builder_units) {
    auto node = std::make_unique<BuilderNode>();
    node->control_pool =
        make_pool(control_page, 64 + 8 * static_cast<std::uint32_t>(system.readout_units.size()));
    node->receive_pool = make_pool(system.data_page, options_.receive_pages + posted_pages());
    make_node(*node, name);
    builders_.push_back(std::move(node));
  }
}

VirtualSystem::~VirtualSystem() { destroy_applications(); }

std::uint32_t VirtualSystem::posted_pages() const {
  if (!options_.network.strict) return 0;
  const std::size_t connections =
      options_.system.readout_units.size() * (options_.system.protocol == Protocol::pull ? 2 : 1);
  return 1 + options_.network.posted_receives * static_cast<std::uint32_t>(connections);
}

void VirtualSystem::destroy_applications() {
  for (auto& node : readouts_) node->unit.reset();
  for (auto& node : builders_) node->unit.reset();
  event_manager_.reset();
}

void VirtualSystem::make_node(Node& node, const std::string& name) {
  node.node = &world_.add_node(name);
  node.transports.add("sim", node.node->transport());
}

NodeEnvironment VirtualSystem::environment(Node& node) {
  node.transports = {};
  node.transports.add("sim", node.node->transport());
  node.session = ++sessions_;
  return {.loop = &node.node->loop(),
          .transports = &node.transports,
          .control_pool = node.control_pool.get(),
          .log =
              [this, &node](LogLevel, std::string_view text) {
                log_.push_back(
                    fmt::format("{:.6f} {}: {}",
                                static_cast<double>(world_.now().time_since_epoch().count()) * 1e-9,
                                node.node->name(), text));
              },
          .session = node.session};
}

void VirtualSystem::start_event_manager() {
  event_manager_ =
      std::make_unique<EventManager>(options_.system,
                                     EventManagerOptions{.url = *net::Url::parse("sim://evm"),
                                                         .recorder = recorder_.get(),
                                                         .on_end = [](const RunSummary&) {}},
                                     environment(manager_));
  FANIN_ASSERT(event_manager_->start().has_value());
}

void VirtualSystem::start_readout(std::size_t index) {
  ReadoutNode& node = *readouts_[index];
  if (!node.node->alive()) node.node->restart();
  ReadoutOptions options;
  options.node = static_cast<NodeId>(index);
  options.event_manager = *net::Url::parse("sim://evm");
  options.metadata_pool = node.metadata_pool.get();
  options.on_end = [this](const Result<>&) { ++ended_; };
  const auto [first, last] = options_.system.sources_of(options.node);
  for (std::size_t i = first; i < last; ++i) {
    const SourceInfo& info = options_.system.sources[i];
    ReadoutInput input;
    input.pool = node.source_pools[i - first].get();
    input.queue = {.source = info.id,
                   .window = options_.source_window,
                   .fragment_max = options_.fragment_max,
                   .checksum = options_.system.checksum,
                   .near = options_.system.event_window};
    if (options_.queue) options_.queue(info, input.queue);
    if (options_.make_source) {
      input.source = options_.make_source(info);
    } else {
      input.source = std::make_unique<source::Emulator>(source::EmulatorOptions{
          .source = info.id,
          .size = options_.size,
          .rate_hz = options_.system.trigger_rate_hz > 0 ? 0 : options_.source_rate_hz,
          .seed = options_.seed,
          .event_count = options_.source_events});
    }
    options.inputs.push_back(std::move(input));
  }
  node.unit = std::make_unique<ReadoutUnit>(options_.system, std::move(options), environment(node));
  node.unit->start();
}

void VirtualSystem::start_builder(std::size_t index) {
  BuilderNode& node = *builders_[index];
  if (!node.node->alive()) node.node->restart();
  BuilderOptions options;
  options.node = static_cast<NodeId>(index);
  options.event_manager = *net::Url::parse("sim://evm");
  options.data = {*net::Url::parse("sim://" + node.node->name() + ":1"),
                  *net::Url::parse("sim://" + node.node->name() + ":2")};
  options.receive_pool = node.receive_pool.get();
  options.posted_pages = posted_pages();
  options.failure_ends_run = options_.failure_ends_run;
  options.on_end = [this](const Result<>&) { ++ended_; };
  options.make_sink =
      [this, &node, index](RunNumber,
                           Incarnation incarnation) -> Result<std::unique_ptr<storage::EventSink>> {
    if (index == options_.without_file) return fail(ErrorKind::exhausted, "no inode is left");
    storage::MemorySinkOptions sink_options;
    for (const auto& info : options_.system.sources) {
      sink_options.sources.push_back(
          {.id = info.id,
           .name = info.name,
           .readout_unit = options_.system.readout_units[info.readout_unit],
           .required = info.required});
    }
    sink_options.node = static_cast<NodeId>(index);
    sink_options.incarnation = incarnation;
    sink_options.commit_delay = options_.commit_delay;
    sink_options.depth = options_.sink_depth;
    sink_options.keep_bytes = options_.keep_bytes;
    return std::make_unique<KnownSink>(node.sink, node.node->loop(), node.store, sink_options);
  };
  node.unit = std::make_unique<BuilderUnit>(options_.system, std::move(options), environment(node));
  FANIN_ASSERT(node.unit->start().has_value());
}

void VirtualSystem::start_all() {
  start_event_manager();
  for (std::size_t i = 0; i < readouts_.size(); ++i) start_readout(i);
  for (std::size_t i = 0; i < builders_.size(); ++i) start_builder(i);
}

void VirtualSystem::kill_readout(std::size_t index) {
  readouts_[index]->unit.reset();
  readouts_[index]->node->kill();
}

void VirtualSystem::kill_builder(std::size_t index) {
  builders_[index]->unit.reset();
  builders_[index]->node->kill();
}

void VirtualSystem::kill_event_manager() {
  event_manager_.reset();
  manager_.node->kill();
}

bool VirtualSystem::run_until_ended(Duration limit) {
  const Time end = world_.now() + limit;
  while (!event_manager_->ended() && world_.now() < end) {
    world_.run_until(std::min(end, world_.now() + std::chrono::milliseconds{10}));
  }
  return event_manager_->ended();
}

void VirtualSystem::run_for(Duration time) { world_.run_until(world_.now() + time); }

void VirtualSystem::for_each_stored(
    const std::function<void(const storage::StoredEvent&)>& look) const {
  for (const auto& node : builders_) {
    for (const auto& event : node->store.events) {
      const auto winner = recorder_->winners.find(event.row.event);
      const Attempt authoritative =
          winner == recorder_->winners.end() ? Attempt{0} : winner->second;
      if (event.row.attempt == authoritative) look(event); // else superseded
    }
  }
}

std::string VirtualSystem::check_stored() {
  std::map<EventNumber, std::size_t> counted;
  std::uint64_t events = 0;
  std::uint64_t fragments = 0;
  std::uint64_t incomplete = 0;
  std::string wrong;
  for_each_stored([&](const storage::StoredEvent& event) {
    if (++counted[event.row.event] > 1)
      wrong = fmt::format("event {} is there twice", event.row.event);
    ++events;
    fragments += event.fragments.size();
    incomplete += (event.row.flags & storage::event_incomplete) != 0 ? 1U : 0U;
    for (const auto& fragment : event.fragments) {
      if (options_.keep_bytes && !options_.make_source &&
          !source::check_emulated_payload(fragment.bytes, event.row.event, fragment.source)) {
        wrong = fmt::format("event {}: the bytes of source {} are wrong", event.row.event,
                            fragment.source);
      }
    }
  });
  if (!wrong.empty()) return wrong;
  const RunSummary& known = summary();
  if (events != known.events_built) {
    return fmt::format("{} events stored, {} built", events, known.events_built);
  }
  if (incomplete != known.events_incomplete) {
    return fmt::format("{} incomplete events stored, {} known", incomplete,
                       known.events_incomplete);
  }
  if (fragments != known.fragments.built) {
    return fmt::format("{} fragments stored, {} built", fragments, known.fragments.built);
  }
  return {};
}

std::string VirtualSystem::check_pools() {
  const auto home = [](const std::unique_ptr<memory::PagePool>& pool) {
    return pool->available() == pool->pages();
  };
  for (const auto& node : readouts_) {
    for (const auto& pool : node->source_pools) {
      if (!home(pool)) return node->node->name() + ": pages of a source are not home";
    }
    if (!home(node->metadata_pool)) return node->node->name() + ": metadata pages are not home";
    if (!home(node->control_pool)) return node->node->name() + ": control pages are not home";
  }
  for (const auto& node : builders_) {
    if (!home(node->receive_pool)) return node->node->name() + ": receive pages are not home";
    if (!home(node->control_pool)) return node->node->name() + ": control pages are not home";
  }
  if (!home(manager_.control_pool)) return "evm: control pages are not home";
  return {};
}

} // namespace fanin::builder::testing
