// The builder unit (BU): collects the parts of the batches that it was assigned, checks them, and
// gives the built events to storage. What is committed it reports to the event manager, whose word
// decides whether it counts.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/control_client.hpp"
#include "fanin/builder/deadline_clock.hpp"
#include "fanin/builder/recently_decided.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/wire/part.hpp"

namespace fanin::builder {

struct BuilderOptions {
  NodeId node = 0;
  net::Url event_manager;
  std::vector<net::Url> data; // rails where to listen for readout units (rails.hpp); port 0 works
  memory::PagePool* receive_pool = nullptr; // pages of System::data_page
  std::uint32_t posted_pages = 0; // of those, held by a transport that posts receives beforehand
  Duration give_up_after = std::chrono::seconds{10};
  bool failure_ends_run = false; // of storage; else the others go on without this unit
  // A new sink, with new files, for each incarnation.
  std::function<Result<std::unique_ptr<storage::EventSink>>(RunNumber, Incarnation)> make_sink;
  // The run is over for this node; an error unless it ended in good order. Called once, on the
  // loop; must not destroy the node.
  std::function<void(const Result<>&)> on_end;
};

// Pages that a builder unit needs to have `capacity` bytes under construction: pages are at least
// half full (net/transport.hpp), and each readout unit's connection may have two begun.
[[nodiscard]] std::uint64_t receive_pages(std::uint64_t capacity, std::uint32_t page_size,
                                          std::size_t readout_units);
// The converse; 0 if there are too few pages to work at all.
[[nodiscard]] std::uint64_t build_capacity(std::uint64_t pages, std::uint32_t page_size,
                                           std::size_t readout_units);

// Thread: its loop. Registered there as a service for its lifetime.
class BuilderUnit final : public net::Handler, public net::Service {
public:
  BuilderUnit(const System& system, BuilderOptions options, NodeEnvironment environment);
  ~BuilderUnit() override;

  // Errors: the data address cannot be listened on.
  [[nodiscard]] Result<> start();

  // To the event manager, now.
  [[nodiscard]] bool connected() const { return control_ && control_->connected(); }
  [[nodiscard]] const wire::NodeCounters& counters() const { return counters_; }
  [[nodiscard]] std::vector<std::string> files() const;

  void on_event(net::Transport& transport, net::Event& event) override;
  bool poll() override;

private:
  // How far one source of a batch has got.
  struct Progress {
    EventNumber next = 0;            // events below are answered
    std::uint32_t payload_offset = 0; // of a fragment that comes in several parts
    std::uint32_t crc32c = 0;
    wire::FragmentEntry entry; // of that fragment, as its first part says
  };
  struct Assembly { // a batch under construction, or waiting for its commit
    EventRange range;
    Attempt attempt = 0;
    std::uint64_t epoch = 0;
    bool assigned = false;           // the event manager's word has come too
    bool decided = false;            // handed to storage, or waiting to be
    std::uint64_t bytes = 0;
    std::uint32_t open_sources = 0;  // not complete yet
    std::vector<Progress> progress;  // by index of source
    storage::BuiltBatch batch;
    std::vector<wire::MissingRun> missing;
    std::vector<wire::BadFragment> bad;
    std::vector<wire::Gap> gaps;        // as the event manager says
    std::vector<wire::MissingRun> lost; // likewise
    std::uint32_t incomplete = 0;
    bool spoiled = false;            // blocks of it were thrown away
    bool heard = false;              // a block has come since heard_at
    Duration heard_at{};             // or assigned; on the fair clock
    Duration assigned_at{};
    struct Said {                    // to the event manager, of the lists above
      std::size_t missing = 0;
      std::size_t bad = 0;
    } said;
  };
  struct Stranger { // a connection that has not said hello
    net::Link link;
    Time since;
  };
  struct Readout { // a readout unit
    Incarnation member = 0;          // as the event manager says; 0: takes no part
    std::uint64_t member_since = 0;  // epoch
    Incarnation connected = 0;       // of its data connection
    std::uint32_t connection = 0;    // the latest one that said hello
    wire::Reached said;              // to the event manager
    bool heard = false;              // a block has come since heard_at
    Duration heard_at{};             // on the fair clock
    net::Link data;
    Gather requests; // pull
    Incarnation requests_to = 0;
    std::deque<EventNumber> to_request; // batches, when the readout unit has read the earlier ones
  };
  using Assemblies = std::pmr::map<EventNumber, Assembly*>;

  // control
  bool on_control(wire::MessageType type, std::span<const std::byte> body);
  bool on_welcome(const wire::Welcome& welcome);
  bool on_members(const wire::Members& members, std::span<const Incarnation> incarnations);
  bool on_assign(const wire::Assign& assign, wire::MessageReader& reader);
  bool on_lost_fragments(std::span<const wire::MissingRun> lost);
  void on_lost();
  [[nodiscard]] bool say_files();
  [[nodiscard]] bool say_failed();
  void finish_if_written();
  template <class Message>
  bool send_counters();
  void end(Result<> result);
  void reset();

  // data
  void on_hello(net::Link link, const memory::View& page);
  void disconnect(Readout& readout);
  Assembly* find_or_open(const wire::PartHeader& header);
  void forget_stranger(net::Link link);
  void close_silent_strangers();
  void on_part(Readout& readout, NodeId node, const net::Event& event);
  void hang_up(net::Link link, std::string_view why);
  void accept_partial(Assembly& assembly, Progress& progress, const wire::PartView& part);
  void check_fragments(Assembly& assembly, const wire::PartView& part);
  void send_requests(Readout& readout);

  // deciding
  Assembly& open(EventRange range, Attempt attempt);
  void release(Assembly& assembly);
  static void add_missing(Assembly& assembly, SourceId source, EventRange events,
                          storage::MissingReason reason);
  void give_up_source(Assembly& assembly, std::size_t source);
  void give_up_lost(Assembly& assembly);
  void give_up_lost();
  void decide(Assembly& assembly);
  void sort_out_missing(Assembly& assembly);
  void submit_decided();
  void on_commit(std::uint64_t ticket);
  void report_progress();
  bool report(Assembly& assembly);
  [[nodiscard]] Duration fair_now();
  void watch_paths();
  void check_paths(Duration now);
  [[nodiscard]] bool owes(const Assembly& assembly, std::size_t node) const;
  void give_back_path(std::size_t node);
  void hand_back(Assembly& assembly, std::optional<NodeId> blamed);
  void throw_away(Assembly& assembly);
  void say_reached();

  const System& system_;
  const std::uint64_t digest_; // of system_
  const SourceIndex sources_;
  BuilderOptions options_;
  NodeEnvironment environment_;
  std::unique_ptr<ControlClient> control_;
  std::unique_ptr<storage::EventSink> sink_;
  std::vector<std::unique_ptr<storage::EventSink>> old_sinks_; // of earlier incarnations, finishing
  struct Listener {
    net::Transport* transport = nullptr;
    net::ListenerId id = net::ListenerId::none;
  };
  std::vector<Listener> listeners_; // one a rail
  net::Timer status_tick_;
  net::Timer path_tick_; // runs while there are assemblies
  net::Timer stranger_tick_; // runs while there are strangers

  Incarnation incarnation_ = 0; // 0: not welcomed
  RunNumber run_ = 0;
  std::uint64_t epoch_ = 0;
  std::vector<Readout> readouts_;
  LogLimiter refusals_; // of peers that nobody knows
  std::vector<Stranger> strangers_; // oldest first
  std::map<net::Link, NodeId> links_; // data connections that have said hello

  std::pmr::unsynchronized_pool_resource memory_; // nodes of the map, reused
  Assemblies assemblies_{&memory_}; // by first event
  std::vector<std::unique_ptr<Assembly>> all_; // every one ever made
  std::vector<Assembly*> spare_;
  std::deque<Assembly*> decided_; // waiting for room in storage
  // What the event manager has to be told, while there is room for it.
  std::deque<wire::Received> received_;
  std::deque<wire::HandBack> handed_back_;
  std::deque<Assembly*> committed_;
  std::size_t files_said_ = 0; // of the sink's
  RecentlyDecided recently_decided_;

  const Duration path_timeout_; // without a block that is owed
  DeadlineClock clock_;
  Duration next_check_{}; // of paths, on the fair clock
  std::size_t early_ = 0; // assemblies that are not assigned
  std::optional<Error> failure_; // of storage, fatal
  bool failure_said_ = false;
  bool finishing_ = false;
  bool ended_ = false;
  wire::NodeCounters counters_;
};

} // namespace fanin::builder
