#include "virtual/virtual_system.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/builder/testing/make_system.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/source/registry.hpp"
#include "fanin/storage/sink_decorator.hpp"

namespace fanin::testing {
namespace {

constexpr const char* source_type = "virtual";
constexpr std::size_t bytes_kept = 16; // of each fragment, when all were checked

net::Url url_of(const std::string& text) { return net::Url::parse("sim://" + text).value(); }

// What sinks were told in the wrong order: the first time; empty: never.
struct WrongOrder {
  std::string batches; // one was stored after later ones
  std::string begin; // the begin of the run came twice, or after a batch
};

// Can be found for as long as it lives; a unit that joins anew has another one.
class KnownSink final : public storage::MemorySink {
public:
  KnownSink(KnownSink*& place, net::Loop& loop, storage::MemoryStore& store,
            storage::MemorySinkOptions options, WrongOrder& wrong)
      : MemorySink(loop, store, std::move(options)), place_(place), wrong_(wrong) {
    place_ = this;
  }
  void run_began(std::int64_t /*unix_ns*/) override {
    if (std::exchange(run_has_begun, true)) wrong_.begin = "the run has begun twice";
  }
  storage::SubmitOutcome submit(storage::BuiltBatch& batch) override {
    const EventRange range = batch.range;
    if (!run_has_begun) wrong_.begin = "there is a batch before the run has begun";
    const storage::SubmitOutcome outcome = MemorySink::submit(batch);
    if (outcome == storage::SubmitOutcome::busy) return outcome;
    if (range.first < end_ && wrong_.batches.empty())
      wrong_.batches =
          fmt::format("events {} to {} were stored after {}", range.first, range.end, end_);
    end_ = std::max(end_, range.end);
    return outcome;
  }
  ~KnownSink() override {
    if (place_ == this) place_ = nullptr;
  }
  KnownSink(const KnownSink&) = delete;
  KnownSink& operator=(const KnownSink&) = delete;

  bool run_has_begun = false;

private:
  KnownSink*& place_;
  WrongOrder& wrong_;
  EventNumber end_ = 0;
};

// Keeps what a sink gets, and what it says of it.
class RecordedSink final : public storage::SinkDecorator {
public:
  RecordedSink(std::unique_ptr<storage::EventSink> inner, std::vector<Forwarded>& batches)
      : SinkDecorator(std::move(inner)), batches_(batches) {
    this->inner().on_commit([this](const storage::Committed& committed) {
      Forwarded& batch = batches_[places_.at(committed.ticket)];
      batch.committed = true;
      batch.undelivered = committed.undelivered;
      commit_(committed);
    });
  }
  storage::SubmitOutcome submit(storage::BuiltBatch& batch) override {
    Forwarded kept{.range = batch.range, .has = {}};
    for (const auto& piece : batch.pieces) {
      const std::byte* table = piece.table.bytes().data();
      for (EventNumber event = piece.range.first; event < piece.range.end; ++event) {
        wire::FragmentEntry entry;
        std::memcpy(&entry, table + (event - piece.range.first) * sizeof entry, sizeof entry);
        if (!entry.absent()) kept.has[event].insert(piece.source);
      }
    }
    const std::uint64_t ticket = batch.ticket;
    const storage::SubmitOutcome outcome = inner().submit(batch);
    if (outcome == storage::SubmitOutcome::busy) return outcome;
    places_[ticket] = batches_.size();
    batches_.push_back(std::move(kept));
    return outcome;
  }

private:
  std::vector<Forwarded>& batches_;
  std::map<std::uint64_t, std::size_t> places_; // by ticket
};

} // namespace

bool emulated_bytes(const storage::StoredFragment& fragment, EventNumber event) {
  return source::check_emulated_payload(fragment.bytes, event, fragment.source);
}

VirtualSystemOptions triggered(std::size_t readouts, std::size_t builders, double rate_hz,
                               std::size_t sources) {
  VirtualSystemOptions options;
  options.system = builder::testing::make_system(readouts, builders, sources);
  options.system.trigger_rate_hz = rate_hz;
  return options;
}

// The disks of all nodes.
class VirtualSystem::MemoryOutput final : public executive::RunOutput {
public:
  explicit MemoryOutput(VirtualSystem& system)
      : stores(system.options_.system.builder_units.size()),
        sinks(stores.size()),
        system_(system) {}

  Result<std::unique_ptr<executive::RunRecord>> make_record(std::uint64_t, const Clock&,
                                                            const LogFunction&) override {
    return std::make_unique<Record>(winners, system_.options_.system.slice);
  }
  Result<std::unique_ptr<storage::EventSink>>
  make_sink(const executive::SinkOwner& owner) override {
    const VirtualSystemOptions& options = system_.options_;
    if (owner.builder == options.without_file)
      return fail(ErrorKind::exhausted, "no inode is left");
    if (system_.forward_) {
      auto made = FANIN_TRY(system_.forward_->make_sink(owner));
      return std::make_unique<RecordedSink>(std::move(made), system_.forwarded_);
    }
    storage::MemorySinkOptions sink;
    storage::EventSources sources = executive::event_sources(options.system, owner.run);
    sink.sources = std::move(sources.sources);
    sink.merged = std::move(sources.merged);
    sink.slice = sources.slice;
    sink.run = sources.run;
    sink.node = owner.builder;
    sink.incarnation = owner.incarnation;
    sink.commit_delay = options.commit_delay;
    sink.depth = options.sink_depth;
    sink.keep_bytes = static_cast<bool>(options.check_bytes);
    return std::make_unique<KnownSink>(sinks[owner.builder], *owner.loop, stores[owner.builder],
                                       std::move(sink), wrong);
  }

  std::vector<storage::MemoryStore> stores; // of each builder unit
  std::vector<KnownSink*> sinks; // null: there is none now
  WrongOrder wrong;
  std::map<EventNumber, Attempt> winners; // of events that were assigned more than once

private:
  class Record final : public executive::RunRecord {
  public:
    Record(std::map<EventNumber, Attempt>& winners, const wire::Slice& slice)
        : winners_(winners), slice_(slice) {}
    void file(NodeId, Incarnation, const std::string&) override {}
    void winner(EventRange batch, Attempt attempt, NodeId, Incarnation) override {
      for (EventNumber event = batch.first; event < batch.end; ++event)
        winners_[slice_.detector_number(event)] = attempt;
    }
    void summary(const builder::RunSummary&) override {}
    bool retry() override { return true; }
    bool check_file() override { return false; }
    const std::string& path() const override { return path_; }

  private:
    std::map<EventNumber, Attempt>& winners_;
    const wire::Slice slice_;
    std::string path_;
  };

  VirtualSystem& system_;
};

VirtualSystem::VirtualSystem(VirtualSystemOptions options)
    : OwnWorld(options),
      System(options.world != nullptr ? *options.world : *own_world),
      options_(std::move(options)),
      bytes_checked_(options_.system.builder_units.size()),
      output_(std::make_unique<MemoryOutput>(*this)) {
  simulation::SystemParts parts;
  parts.configuration = make_configuration();
  parts.plugins = make_plugins();
  parts.plans = make_plans(parts.configuration, parts.plugins);
  parts.output = output_.get();
  parts.log = [this](const std::string& node, LogLevel, std::string_view text) {
    log_.push_back(fmt::format("{:.6f} {}: {}",
                               static_cast<double>(world().now().time_since_epoch().count()) * 1e-9,
                               node, text));
  };
  FANIN_ASSERT(make(std::move(parts)).has_value());
  if (configuration().forwards())
    forward_ = executive::make_run_output(configuration(), options_.system, {});
}

VirtualSystem::~VirtualSystem() {
  destroy_nodes();
  own_world.reset(); // before the pools: its messages hold their pages
}

config::Configuration VirtualSystem::make_configuration() const {
  config::Configuration configuration;
  const builder::System& system = options_.system;
  const std::string& manager = options_.event_manager;
  configuration.file = "virtual system";
  configuration.system = system;
  configuration.forward = options_.forward;
  configuration.storage.on_full =
      options_.failure_ends_run ? storage::OnFull::stop : storage::OnFull::wait;
  configuration.nodes.push_back({.role = config::Role::event_manager, .name = manager});
  std::vector<net::Url>& control = configuration.nodes.back().urls;
  if (options_.control_rails == 1) control.push_back(url_of(manager));
  while (control.size() < options_.control_rails) {
    control.push_back(url_of(fmt::format("{}:{}", manager, control.size() + 1)));
  }
  for (std::size_t i = 0; i < system.readout_units.size(); ++i) {
    const auto [first, last] = system.sources_of(static_cast<NodeId>(i));
    configuration.nodes.push_back(
        {.role = config::Role::readout,
         .name = system.readout_units[i],
         .buffer = (last - first) * options_.source_pages * std::uint64_t{options_.source_page}});
  }
  for (const auto& name : system.builder_units) {
    std::vector<net::Url> rails;
    while (rails.size() < system.rails) {
      rails.push_back(url_of(fmt::format("{}:{}", name, rails.size() + 1)));
    }
    configuration.nodes.push_back(
        {.role = config::Role::builder,
         .name = name,
         .urls = std::move(rails),
         .buffer = options_.receive_pages * std::uint64_t{system.data_page}});
  }
  for (const auto& info : system.sources) {
    config::Source source{.readout = info.readout_unit, .required = info.required};
    source.settings.id = info.id;
    source.settings.name = info.name;
    source.settings.type = source_type;
    if (const auto url = options_.listen.find(info.id); url != options_.listen.end()) {
      source.settings.type = "receive";
      source.settings.values["listen"].value = url->second;
    }
    source.queue = {.source = info.id,
                    .fragment_max = options_.fragment_max,
                    .checksum = system.integrity,
                    .near = system.event_window};
    if (options_.queue) options_.queue(info, source.queue);
    configuration.sources.push_back(std::move(source));
  }
  return configuration;
}

executive::Plugins VirtualSystem::make_plugins() {
  executive::Plugins plugins;
  add_transport(plugins, options_.network.strict ? options_.network.posted_receives : 0);
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
  FANIN_ASSERT(plugins.sources.add(source_type, make).has_value());
  source::add_built_in_sources(plugins.sources);
  return plugins;
}

std::vector<executive::NodePlan>
VirtualSystem::make_plans(const config::Configuration& configuration,
                          const executive::Plugins& plugins) const {
  auto plans = executive::plan_memory(
      configuration, plugins.transports,
      {.control = 16U << 10,
       .source_least = options_.source_page,
       .source_most = options_.source_page,
       .metadata = options_.metadata_page,
       .metadata_least = std::uint64_t{options_.metadata_pages} * options_.metadata_page});
  if (!plans) fmt::print(stderr, "{}\n", plans.error().text);
  FANIN_ASSERT(plans.has_value());
  for (executive::NodePlan& plan : *plans) {
    plan.window = options_.source_window; // a process holds more
  }
  return std::move(*plans);
}

bool VirtualSystem::run_until_ended(Duration limit) {
  const Time end = world().now() + limit;
  while (!manager().ended() && world().now() < end) {
    run_for(std::min(end - world().now(), Duration{std::chrono::milliseconds{10}}));
  }
  return manager().ended();
}

void VirtualSystem::run_for(Duration time) {
  world().run_until(world().now() + time);
  if (options_.check_bytes) check_new_bytes();
}

storage::MemorySink* VirtualSystem::sink(std::size_t builder) { return output_->sinks[builder]; }

bool VirtualSystem::knows_of_the_begin(std::size_t builder) const {
  return output_->sinks[builder]->run_has_begun;
}

const storage::MemoryStore& VirtualSystem::store(std::size_t builder) const {
  return output_->stores[builder];
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

void VirtualSystem::check_new_bytes() {
  for (std::size_t builder = 0; builder < builders(); ++builder) {
    auto& events = output_->stores[builder].events;
    for (std::size_t& at = bytes_checked_[builder]; at < events.size(); ++at) {
      for (storage::StoredFragment& fragment : events[at].fragments) {
        const EventNumber event = events[at].row.event;
        if (fragment.bytes.size() != fragment.size || !options_.check_bytes(fragment, event)) {
          wrong_bytes_ =
              fmt::format("event {}: the bytes of source {} are wrong", event, fragment.source);
        }
        fragment.bytes.resize(std::min(fragment.bytes.size(), bytes_kept));
        fragment.bytes.shrink_to_fit();
      }
    }
  }
}

// Every source is there once, or missing once.
std::string VirtualSystem::check_rows(const storage::StoredEvent& event) {
  std::vector<std::pair<SourceId, bool>> rows; // and whether there is a fragment
  for (const auto& fragment : event.fragments) rows.emplace_back(fragment.source, true);
  for (const auto& missing : event.missing) rows.emplace_back(missing.source, false);
  std::ranges::sort(rows);
  bool incomplete = false;
  bool right = rows.size() == options_.system.sources.size();
  for (const auto& info : options_.system.sources) {
    const auto row = std::ranges::lower_bound(rows, std::pair{info.id, false});
    right = right && row != rows.end() && row->first == info.id;
    incomplete = incomplete || (right && info.required && !row->second);
  }
  const bool said = (event.row.flags & storage::event_incomplete) != 0;
  if (right && said == incomplete) return {};
  return fmt::format("event {}: {} fragments and {} missing ones of {} sources, incomplete: {}",
                     event.row.event, event.fragments.size(), event.missing.size(),
                     options_.system.sources.size(), said);
}

// Builder units are told of a gap with the next batch: of none after the last event.
std::string VirtualSystem::check_gaps(EventNumber end) {
  std::vector<storage::GapRow> rows;
  for (const auto& store : output_->stores) {
    rows.insert(rows.end(), store.gaps.begin(), store.gaps.end());
  }
  std::ranges::sort(rows, {}, &storage::GapRow::first);
  std::vector<EventRange> stored;
  for (const auto& row : rows) {
    if (stored.empty() || stored.back().end < row.first) stored.push_back({row.first, row.end});
    stored.back().end = std::max(stored.back().end, row.end);
  }
  std::uint64_t listed = 0;
  std::vector<EventRange> known;
  for (const EventRange& gap : summary().gap_list) {
    listed += gap.count();
    if (gap.first < end) known.push_back({gap.first, std::min(gap.end, end)});
  }
  const bool all_listed = listed == summary().gaps;
  if (!all_listed || stored == known) return {};
  const auto differ = std::ranges::mismatch(stored, known);
  const auto text = [](auto at, auto last) {
    return at == last ? std::string{"none"} : fmt::format("{} to {}", at->first, at->end);
  };
  return fmt::format("gaps: {} is stored, {} is known", text(differ.in1, stored.end()),
                     text(differ.in2, known.end()));
}

std::string VirtualSystem::check_stored() {
  std::string wrong = wrong_bytes_;
  if (options_.system.in_order && !output_->wrong.batches.empty()) wrong = output_->wrong.batches;
  if (!output_->wrong.begin.empty()) wrong = output_->wrong.begin;
  std::map<EventNumber, std::size_t> counted;
  std::map<SourceId, wire::MissingCounts> missing;
  std::uint64_t fragments = 0;
  std::uint64_t incomplete = 0;
  for_each_stored([&](const storage::StoredEvent& event) {
    if (++counted[event.row.event] > 1)
      wrong = fmt::format("event {} is there twice", event.row.event);
    fragments += event.fragments.size();
    incomplete += (event.row.flags & storage::event_incomplete) != 0 ? 1U : 0U;
    for (const auto& row : event.missing) {
      ++missing[row.source].at(std::min<std::size_t>(row.reason, wire::missing_reasons - 1));
    }
    if (auto rows = check_rows(event); !rows.empty()) wrong = std::move(rows);
  });
  if (!wrong.empty()) return wrong;
  const builder::RunSummary& known = summary();
  const auto differ = [&](const char* what, std::uint64_t stored, std::uint64_t ledger) {
    if (stored != ledger) wrong = fmt::format("{}: {} stored, {} known", what, stored, ledger);
  };
  differ("fragments", fragments, known.fragments.built);
  differ("incomplete events", incomplete, known.events_incomplete);
  differ("events", counted.size(), known.events_built);
  for (const auto& source : known.sources) {
    for (std::size_t reason = 0; reason < wire::missing_reasons; ++reason) {
      const auto text = fmt::format("missing fragments of {}, {}", source.source.name,
                                    wire::name(static_cast<wire::MissingReason>(reason)));
      differ(text.c_str(), missing[source.source.id][reason], source.missing[reason]);
    }
  }
  if (!wrong.empty()) return wrong;
  for (const EventRange& gap : known.gap_list) {
    const auto event = counted.lower_bound(gap.first);
    if (event != counted.end() && event->first < gap.end)
      return fmt::format("event {} is in a gap", event->first);
  }
  return check_gaps(counted.empty() ? 0 : counted.rbegin()->first + 1);
}

std::string VirtualSystem::check_slice() const {
  std::string wrong = wrong_bytes_;
  std::set<EventNumber> stored;
  const wire::Slice& slice = options_.system.slice;
  for_each_stored([&](const storage::StoredEvent& event) {
    const EventNumber number = event.row.event;
    if (!stored.insert(number).second) wrong = fmt::format("event {} is there twice", number);
    if (number / slice.block % slice.of != slice.number)
      wrong = fmt::format("event {} is not of slice {}", number, slice.number);
  });
  return wrong;
}

} // namespace fanin::testing
