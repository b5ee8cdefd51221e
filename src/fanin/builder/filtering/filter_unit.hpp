// A filter unit: asks builder units for batches, shows their events to the user's filter, and says
// what it has decided.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/control/node_environment.hpp"
#include "fanin/builder/filtering/batch_reader.hpp"
#include "fanin/builder/filtering/filter.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/net/link.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/wire/filter.hpp"

namespace fanin::builder {

// Thread: the loop's.
class FilterUnit final : public net::Service, private net::Handler {
public:
  struct Options {
    std::string name;
    std::vector<net::Url> builders; // where builder units listen for filter units
    Filter* filter = nullptr;
    memory::PagePool* receive_pool = nullptr; // for events that do not come over shared memory
    std::uint32_t ahead = 2; // batches that it asks each builder unit for
    Duration silence{}; // after which builder units give it up, while it has something to decide
    // It begins to decide, for about `turn_max` and one event; or it has nothing to do any more.
    std::function<void(bool works)> on_work;
    // It has ended: the filter threw, or a builder unit refuses it (ErrorKind::refused). Must not
    // destroy the unit.
    std::function<void(const Error&)> on_failed;
  };
  // All of it outlives the unit.
  FilterUnit(const System& system, Options options, NodeEnvironment environment);
  ~FilterUnit() override;

  void start();
  // Leaves; what it has not decided goes to others.
  void stop();

  struct Counters {
    std::uint64_t events = 0; // decided
    std::uint64_t accepted = 0; // into a stream or more, before prescales
    std::uint64_t bytes = 0; // payload seen
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

  bool poll() override;

private:
  // How long it decides before it sends its decisions and returns to the loop.
  static constexpr Duration turn_max = std::chrono::milliseconds{1};
  static constexpr Duration unsent_max = std::chrono::milliseconds{10};
  static constexpr Duration alive_period = std::chrono::milliseconds{250};

  struct Batch {
    net::Link link;
    wire::FilterBatch header;
    std::vector<ReceivedBlock> blocks; // until they are read
    bool read = false;
    [[nodiscard]] bool whole() const { return read || blocks.size() == header.blocks; }
  };
  struct Builder {
    net::Url url;
    net::Link link;
    bool open = false;
  };
  struct Unsent { // decisions of the batch at hand
    std::uint32_t from = 0;
    std::vector<wire::FilterDecision> decisions;
    std::vector<std::byte> results;
    Time since{};
  };

  void on_event(net::Transport& transport, net::Event& event) override;
  void on_message(net::Link link, const net::Event& event);
  void on_batch(net::Link link, const memory::View& message);
  void on_refusal(net::Link link, std::span<const std::byte> message);
  void on_block(Batch& batch, const net::Event& event);
  void hang_up(net::Link link, std::string_view why);
  void forget(net::Link link);
  void connect();
  void send_hello(Builder& builder);
  [[nodiscard]] net::SendOutcome send(net::Link link,
                                      std::span<const std::span<const std::byte>> pieces);

  void decide_some();
  void begin_batch();
  [[nodiscard]] bool decide_next();
  void keep(const Decision& decision, bool shown);
  [[nodiscard]] bool send_decisions();
  void send_alive();
  void fail_with(ErrorKind kind, std::string why);

  const System& system_;
  Options options_;
  NodeEnvironment environment_;
  net::PageFiller pages_;
  net::Timer retry_tick_;
  std::vector<Builder> builders_;
  std::deque<Batch> batches_; // as they came; once `reading_`, the front one is at hand
  BatchReader reader_;
  bool reading_ = false;
  std::uint32_t next_ = 0; // event of it
  Decision decision_;
  Unsent unsent_;
  bool blocked_ = false; // what is unsent cannot be sent now
  bool work_reported_ = false; // as on_work was told
  Time alive_at_{}; // when all builder units were told
  bool stopped_ = false;
  Counters counters_;
  LogLimiter lines_;
};

} // namespace fanin::builder
