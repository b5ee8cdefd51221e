#include "virtual/virtual_system.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/builder/testing/make_system.hpp"

namespace fanin::testing {
namespace {

constexpr const char* source_type = "virtual";

net::Url url_of(const std::string& text) { return net::Url::parse("sim://" + text).value(); }

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

VirtualSystemOptions triggered(std::size_t readouts, std::size_t builders, double rate_hz,
                               std::size_t sources) {
  VirtualSystemOptions options;
  options.system = builder::testing::make_system(readouts, builders, sources);
  options.system.trigger_rate_hz = rate_hz;
  return options;
}

// What a process does in each turn.
class VirtualSystem::Turns final : public net::Service {
public:
  Turns(net::Loop& loop, executive::Node& node) : loop_(loop), node_(node) { loop_.add(*this); }
  ~Turns() override { loop_.remove(*this); }
  bool poll() override {
    node_.turn();
    return false;
  }

private:
  net::Loop& loop_;
  executive::Node& node_;
};

// The disks of all nodes.
class VirtualSystem::MemoryOutput final : public executive::RunOutput {
public:
  explicit MemoryOutput(VirtualSystem& system)
      : stores(system.builders_.size()), sinks(system.builders_.size()), system_(system) {}

  Result<std::unique_ptr<executive::RunRecord>> make_record(const Clock&,
                                                            const LogFunction&) override {
    return std::make_unique<Record>(winners);
  }
  Result<std::unique_ptr<storage::EventSink>>
  make_sink(const executive::SinkOwner& owner) override {
    const VirtualSystemOptions& options = system_.options_;
    if (owner.builder == options.without_file)
      return fail(ErrorKind::exhausted, "no inode is left");
    storage::MemorySinkOptions sink;
    for (const auto& info : options.system.sources) {
      sink.sources.push_back({.id = info.id,
                              .name = info.name,
                              .readout_unit = options.system.readout_units[info.readout_unit],
                              .required = info.required});
    }
    sink.node = owner.builder;
    sink.incarnation = owner.incarnation;
    sink.commit_delay = options.commit_delay;
    sink.depth = options.sink_depth;
    sink.keep_bytes = options.keep_bytes;
    return std::make_unique<KnownSink>(sinks[owner.builder],
                                       system_.builders_[owner.builder]->host->loop(),
                                       stores[owner.builder], std::move(sink));
  }

  std::vector<storage::MemoryStore> stores; // of each builder unit
  std::vector<storage::MemorySink*> sinks; // null: there is none now
  std::map<EventNumber, Attempt> winners; // of events that were assigned more than once

private:
  class Record final : public executive::RunRecord {
  public:
    explicit Record(std::map<EventNumber, Attempt>& winners) : winners_(winners) {}
    void file(NodeId, Incarnation, const std::string&) override {}
    void winner(EventRange batch, Attempt attempt, NodeId, Incarnation) override {
      for (EventNumber event = batch.first; event < batch.end; ++event) winners_[event] = attempt;
    }
    void summary(const builder::RunSummary&) override {}
    bool retry() override { return true; }
    bool look() override { return false; }
    const std::string& path() const override { return path_; }

  private:
    std::map<EventNumber, Attempt>& winners_;
    std::string path_;
  };

  VirtualSystem& system_;
};

VirtualSystem::VirtualSystem(VirtualSystemOptions options)
    : options_(std::move(options)), world_(options_.seed, options_.network) {
  const builder::System& system = options_.system;
  for (std::size_t i = 0; i < system.readout_units.size(); ++i) {
    readouts_.push_back(std::make_unique<PlaceOf<executive::ReadoutNode>>());
  }
  for (std::size_t i = 0; i < system.builder_units.size(); ++i) {
    builders_.push_back(std::make_unique<PlaceOf<executive::BuilderNode>>());
  }
  output_ = std::make_unique<MemoryOutput>(*this);
  make_configuration();
  make_plugins();
  make_pools();
}

VirtualSystem::~VirtualSystem() { destroy_nodes(); }

void VirtualSystem::make_configuration() {
  const builder::System& system = options_.system;
  configuration_.file = "virtual system";
  configuration_.system = system;
  configuration_.storage.on_full =
      options_.failure_ends_run ? storage::OnFull::stop : storage::OnFull::wait;
  configuration_.nodes.push_back(
      {.role = config::Role::event_manager, .name = "evm", .urls = {url_of("evm")}});
  for (std::size_t i = 0; i < system.readout_units.size(); ++i) {
    const auto [first, last] = system.sources_of(static_cast<NodeId>(i));
    configuration_.nodes.push_back(
        {.role = config::Role::readout,
         .name = system.readout_units[i],
         .buffer = (last - first) * options_.source_pages * std::uint64_t{options_.source_page}});
  }
  for (const auto& name : system.builder_units) {
    configuration_.nodes.push_back(
        {.role = config::Role::builder,
         .name = name,
         .urls = {url_of(name + ":1"), url_of(name + ":2")},
         .buffer = options_.receive_pages * std::uint64_t{system.data_page}});
  }
  for (const auto& info : system.sources) {
    config::Source source{.readout = info.readout_unit, .required = info.required};
    source.settings.id = info.id;
    source.settings.name = info.name;
    source.settings.type = source_type;
    source.queue = {.source = info.id,
                    .fragment_max = options_.fragment_max,
                    .checksum = system.checksum,
                    .near = system.event_window};
    if (options_.queue) options_.queue(info, source.queue);
    configuration_.sources.push_back(std::move(source));
  }
}

void VirtualSystem::make_plugins() {
  const auto pages = [strict = options_.network](const net::Url&, std::uint32_t connections) {
    return strict.strict ? strict.posted_receives * connections : 0;
  };
  const auto none = [](net::Loop&, const LogFunction&) -> Result<std::unique_ptr<net::Transport>> {
    return fail(ErrorKind::unsupported, "the virtual world has the transports");
  };
  FANIN_ASSERT(plugins_.transports.add("sim", none, pages).has_value());
  const auto make =
      [this](const source::SourceSettings& settings) -> Result<std::unique_ptr<source::Source>> {
    const builder::System& system = options_.system;
    if (options_.make_source)
      return options_.make_source(system.sources[system.find_source(settings.id)]);
    return std::make_unique<source::Emulator>(
        source::EmulatorOptions{.source = settings.id,
                                .size = options_.size,
                                .rate_hz = system.trigger_rate_hz > 0 ? 0 : options_.source_rate_hz,
                                .seed = options_.seed,
                                .event_count = options_.source_events});
  };
  FANIN_ASSERT(plugins_.sources.add(source_type, make).has_value());
}

void VirtualSystem::make_pools() {
  auto plans = executive::plan_memory(
      configuration_, plugins_.transports,
      {.control = 16U << 10,
       .source_least = options_.source_page,
       .source_most = options_.source_page,
       .metadata = options_.metadata_page,
       .metadata_least = std::uint64_t{options_.metadata_pages} * options_.metadata_page});
  if (!plans) fmt::print(stderr, "{}\n", plans.error().text);
  FANIN_ASSERT(plans.has_value());
  plans_ = std::move(*plans);
  const std::vector<Place*> all = places();
  for (std::size_t i = 0; i < all.size(); ++i) {
    plans_[i].window = options_.source_window; // a process holds more
    auto pools = executive::NodePools::make(
        plans_[i], {.huge_pages = memory::HugePages::off, .reserve_only = true});
    FANIN_ASSERT(pools.has_value());
    all[i]->pools = std::move(*pools);
    all[i]->host = &world_.add_node(configuration_.nodes[i].name);
  }
}

// In the order of the configuration's nodes.
std::vector<VirtualSystem::Place*> VirtualSystem::places() {
  std::vector<Place*> all{&manager_};
  for (const auto& place : readouts_) all.push_back(place.get());
  for (const auto& place : builders_) all.push_back(place.get());
  return all;
}

executive::NodeContext VirtualSystem::context(Place& place, std::size_t index) {
  place.transports = {};
  place.transports.add("sim", place.host->transport());
  place.session = ++sessions_;
  executive::NodeContext context;
  context.configuration = &configuration_;
  context.system = &options_.system;
  context.plugins = &plugins_;
  context.plan = &plans_[index];
  context.pools = &place.pools;
  context.output = output_.get();
  context.index = index;
  context.event_manager = configuration_.event_manager().urls.front();
  context.loop = &place.host->loop();
  context.session = place.session;
  context.transports = &place.transports;
  context.report = [](const json::Value&) {};
  context.log = [this, &place](LogLevel, std::string_view text) {
    log_.push_back(fmt::format("{:.6f} {}: {}",
                               static_cast<double>(world_.now().time_since_epoch().count()) * 1e-9,
                               place.host->name(), text));
  };
  return context;
}

template <class Node>
void VirtualSystem::start(PlaceOf<Node>& place, std::size_t index) {
  destroy(place);
  if (!place.host->alive()) place.host->restart();
  place.node = std::make_unique<Node>(context(place, index));
  FANIN_ASSERT(place.node->start().has_value());
  place.turns = std::make_unique<Turns>(place.host->loop(), *place.node);
}

template <class Node>
void VirtualSystem::destroy(PlaceOf<Node>& place) {
  place.turns.reset();
  place.node.reset();
}

void VirtualSystem::destroy_nodes() {
  for (auto& place : readouts_) destroy(*place);
  for (auto& place : builders_) destroy(*place);
  destroy(manager_);
}

void VirtualSystem::start_event_manager() { start(manager_, 0); }

void VirtualSystem::start_readout(std::size_t index) {
  start(*readouts_[index], configuration_.readout_node(index));
}

void VirtualSystem::start_builder(std::size_t index) {
  start(*builders_[index], configuration_.builder_node(index));
}

void VirtualSystem::start_all() {
  start_event_manager();
  for (std::size_t i = 0; i < readouts_.size(); ++i) start_readout(i);
  for (std::size_t i = 0; i < builders_.size(); ++i) start_builder(i);
}

void VirtualSystem::kill_readout(std::size_t index) {
  destroy(*readouts_[index]);
  readouts_[index]->host->kill();
}

void VirtualSystem::kill_builder(std::size_t index) {
  destroy(*builders_[index]);
  builders_[index]->host->kill();
}

void VirtualSystem::kill_event_manager() {
  destroy(manager_);
  manager_.host->kill();
}

bool VirtualSystem::run_until_ended(Duration limit) {
  const Time end = world_.now() + limit;
  while (!manager().ended() && world_.now() < end) {
    world_.run_until(std::min(end, world_.now() + std::chrono::milliseconds{10}));
  }
  return manager().ended();
}

void VirtualSystem::run_for(Duration time) { world_.run_until(world_.now() + time); }

storage::MemorySink* VirtualSystem::sink(std::size_t builder) { return output_->sinks[builder]; }

const storage::MemoryStore& VirtualSystem::store(std::size_t builder) const {
  return output_->stores[builder];
}

std::size_t VirtualSystem::ended_nodes() const {
  const auto ended = [](const auto& place) { return place->node && place->node->ended(); };
  return static_cast<std::size_t>(std::ranges::count_if(readouts_, ended) +
                                  std::ranges::count_if(builders_, ended));
}

void VirtualSystem::for_each_stored(
    const std::function<void(const storage::StoredEvent&)>& look) const {
  for (const auto& store : output_->stores) {
    for (const auto& event : store.events) {
      const auto winner = output_->winners.find(event.row.event);
      const Attempt authoritative = winner == output_->winners.end() ? Attempt{0} : winner->second;
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
  const builder::RunSummary& known = summary();
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
  const std::vector<Place*> all = places();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i]->pools.all_home()) return configuration_.nodes[i].name + ": pages are not home";
  }
  return {};
}

} // namespace fanin::testing
