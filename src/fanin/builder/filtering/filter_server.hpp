// A builder unit's filter units: they connect and ask for batches; what they decide goes back to
// the sink that the batch came from. A batch whose filter unit dies goes to another one
// (BatchDecisions).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/control/node_environment.hpp"
#include "fanin/builder/control/unidentified_links.hpp"
#include "fanin/builder/filtering/batch_decisions.hpp"
#include "fanin/builder/filtering/batch_selection.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/net/link.hpp"
#include "fanin/net/listener.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::builder {

// A batch under decision.
struct FilterJob {
  // Gets the batch when it is decided. Thread: the loop's.
  class Owner {
  public:
    virtual ~Owner() = default;
    virtual void decided(std::unique_ptr<FilterJob> job) = 0;
    // It takes longer than others (FilterServer::Options::set_aside_after).
    virtual void set_aside(std::uint64_t ticket) = 0;
  };

  FilterJob(storage::BuiltBatch built, RunNumber number, Owner& from)
      : batch(std::move(built)), run(number), decisions(batch.range), owner(&from) {}

  storage::BuiltBatch batch; // its pages stay as they are until it is decided
  RunNumber run = 0;
  BatchDecisions decisions;
  FilterResults results;
  Time since{}; // when it was added
  bool set_aside = false;
  Owner* owner = nullptr; // null: it is gone, and nobody wants the decisions any more
};

// Thread: the loop's. Outlives the owners of its jobs.
class FilterServer final : public net::Service, private net::Handler {
public:
  // Most bytes of filters' results for events that are not written yet. Beyond that, filter units
  // get no further batch. Batches that they already have may still add results.
  static constexpr std::uint64_t results_max = 64U << 20;

  struct Options {
    // A batch that a filter unit has had for so long is set aside, so that others need not wait for
    // it; at most so many.
    Duration set_aside_after = std::chrono::milliseconds{100};
    std::size_t set_aside_max = 0;
    // Filter units of this host read pages of this pool in place; other pages are copied into it.
    // Null: the network copies.
    memory::PagePool* shared_pool = nullptr;
    std::function<void(const std::string& name)> on_silent; // a filter unit that was given up
  };
  // `system` outlives it.
  FilterServer(const System& system, NodeEnvironment environment, Options options);
  ~FilterServer() override;

  // Errors: as of Transport::listen().
  [[nodiscard]] Result<> listen(const net::Url& url);

  // True: it takes no further batch now.
  [[nodiscard]] bool full() const { return jobs_ >= jobs_max; }
  void add(std::unique_ptr<FilterJob> job);
  // Its jobs are dropped.
  void forget(FilterJob::Owner& owner);
  // Human-readable: which filter unit has to decide what before the oldest batch goes to storage;
  // empty: none.
  [[nodiscard]] std::string waits_for() const;
  [[nodiscard]] ResultPages& result_pages() { return pages_; }
  [[nodiscard]] const System& system() const { return system_; }

  bool poll() override;

private:
  static constexpr std::size_t jobs_max = 256;

  struct Unit {
    std::string name; // empty: it has not said hello
    std::uint32_t ahead = 0;
    Duration silence{};
    Time heard_at{}; // or given something to do
    std::deque<std::unique_ptr<FilterJob>> jobs; // as they were sent; the first one is at hand
    std::uint64_t first_ticket = 0; // of jobs.front()
    std::size_t sent = 0; // messages of jobs.back(): it has come whole if that is all of them
    bool blocked = false; // until its connection takes more
  };
  using Units = std::map<net::Link, Unit>;

  void on_event(net::Transport& transport, net::Event& event) override;
  void on_message(net::Link link, const net::Event& event);
  void on_hello(net::Link link, std::span<const std::byte> message);
  void on_decided(net::Link link, Unit& unit, std::span<const std::byte> message);
  [[nodiscard]] static bool keep_results(FilterJob& job, const wire::DecidedView& view);
  void refuse(net::Link link, const std::string& why);
  void hang_up(net::Link link, std::string_view why);
  void lose(Units::iterator unit);
  void lose_job(const std::string& name, FilterJob& job);
  void finish(std::unique_ptr<FilterJob> job);
  void drop(const FilterJob& job);
  void set_slow_aside(Time now);
  [[nodiscard]] bool results_full() const { return pages_.bytes() >= results_max; }
  void give_out();
  [[nodiscard]] bool send(net::Link link, Unit& unit);
  [[nodiscard]] bool has_to_copy(std::span<const memory::View> message) const;
  [[nodiscard]] bool has_room_for_next(const Unit& unit) const;
  [[nodiscard]] net::SendOutcome send_next(net::Link link, const Unit& unit);
  [[nodiscard]] memory::View copy_of(std::span<const memory::View> extents);
  [[nodiscard]] static std::size_t messages_of(const FilterJob& job) {
    return 1 + job.batch.pieces.size();
  }
  [[nodiscard]] static bool sending(const Unit& unit) {
    return !unit.jobs.empty() && unit.sent < messages_of(*unit.jobs.back());
  }
  void watch();

  const System& system_;
  const std::uint64_t digest_;
  NodeEnvironment environment_;
  Options options_;
  net::PageFiller headers_;
  std::optional<net::PageFiller> copies_; // of what lies outside of the shared pool
  ResultPages pages_;
  net::Listener listener_;
  net::Timer watch_tick_;
  Units units_;
  UnidentifiedLinks unidentified_; // those of them that have no name
  std::deque<std::unique_ptr<FilterJob>> waiting_;
  std::size_t jobs_ = 0; // waiting, and with units
  std::size_t set_aside_ = 0; // of those
  bool work_pending_ = false; // something may be given out or sent
  bool held_back_ = false; // nothing is given out until results are written
  std::optional<Time> no_units_since_; // no filter unit is here, and batches wait
  bool no_units_logged_ = false;
  LogLimiter lines_;
};

} // namespace fanin::builder
