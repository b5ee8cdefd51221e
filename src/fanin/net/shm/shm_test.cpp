// shm:// beyond the conformance suite: what is not copied, who holds pages, hostile peers, limits,
// and processes that die at any instant.
#include "fanin/net/shm/shm.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <deque>
#include <fstream>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/base/testing/failing_calls.hpp"
#include "fanin/net/shm/testing/raw_peer.hpp"

namespace fanin::net {
namespace {

using shm::Piece;
using shm::RecordKind;

constexpr std::uint32_t page_size = 8192;

std::unique_ptr<memory::PagePool> make_pool(std::uint32_t pages, bool shared) {
  auto pool =
      memory::PagePool::make({.page_size = page_size,
                              .pages = pages,
                              .arena = {.huge_pages = memory::HugePages::off, .shared = shared}});
  EXPECT_TRUE(pool) << pool.error().text;
  return std::move(*pool);
}

struct Side final : Handler {
  void on_event(Transport& transport, Event& event) override {
    switch (event.kind) {
    case EventKind::accepted:
    case EventKind::connected: connections.push_back(event.connection); break;
    case EventKind::closed: closed.push_back(event.reason); break;
    case EventKind::writable: ++writable; break;
    case EventKind::message:
      ++messages;
      if (identifies) transport.mark_identified(event.connection);
      if (aborts) transport.close(event.connection, true);
      kept.push_back(event.message);
      if (event.rest.size > 0) kept.push_back(event.rest);
    }
  }
  [[nodiscard]] ConnectionOptions options() {
    return {.receive_pool = receive.get(), .handler = this};
  }
  std::unique_ptr<memory::PagePool> receive = make_pool(16, false);
  std::unique_ptr<memory::PagePool> shared = make_pool(8, true);
  std::unique_ptr<memory::PagePool> ordinary = make_pool(8, false);
  std::vector<ConnectionId> connections;
  std::vector<CloseReason> closed;
  std::deque<memory::View> kept;
  std::uint64_t messages = 0;
  int writable = 0;
  bool identifies = false; // who has sent a message
  bool aborts = false; // at a message
};

memory::View filled(memory::PagePool& pool, std::uint32_t size, int value) {
  const memory::Loan page = pool.take();
  FANIN_ASSERT(page);
  std::memset(page.data(), value, size);
  return page.freeze(0, size);
}

class Shm : public testing::Test {
public:
  Shm() {
    loop_.add(server_);
    loop_.add(*client_);
    const auto listening = server_.listen({.scheme = "shm", .host = "test"}, at_server_.options());
    url_ = server_.listening_url(listening.value());
  }
  ~Shm() override {
    at_server_.kept.clear();
    at_client_.kept.clear();
    run_until_idle();
    for (const Side* side : {&at_server_, &at_client_}) {
      for (const auto* pool : {&side->receive, &side->shared, &side->ordinary})
        EXPECT_EQ((*pool)->available(), (*pool)->pages());
    }
  }

protected:
  void run_until_idle() {
    for (int idle = 0; idle < 200;) idle = loop_.turn() ? 0 : idle + 1;
  }
  void connect() {
    (void)client_->connect(url_, at_client_.options()).value();
    run_until_idle();
    ASSERT_EQ(at_client_.connections.size(), 1U);
    ASSERT_EQ(at_server_.connections.size(), 1U);
  }
  SendOutcome send(std::vector<memory::View> extents) {
    return client_->send(at_client_.connections.front(), extents);
  }
  // Whether a loop could wait for it now.
  static bool falls_asleep(ShmTransport& transport) {
    std::array<Event, 1> none;
    for (int i = 0; i < 100; ++i) {
      (void)transport.poll(std::span(none).first(0));
      if (transport.arm()) return true;
    }
    return false;
  }
  static bool is_woken(const ShmTransport& transport) {
    pollfd watched{transport.descriptor(), POLLIN, 0};
    return ::poll(&watched, 1, 0) == 1;
  }
  // As a loop of its own would.
  static void take_all(ShmTransport& transport) {
    std::array<Event, 64> events;
    while (transport.poll(events) > 0) {
    }
    transport.flush();
  }
  // A hostile peer's connection has ended by a violation, and others go on.
  void expect_violation(std::string_view what) {
    run_until_idle();
    ASSERT_EQ(at_server_.closed.size(), 1U) << what;
    EXPECT_EQ(at_server_.closed.front(), CloseReason::protocol_violation);
    ASSERT_FALSE(logged_.empty());
    EXPECT_NE(logged_.back().find(what), std::string::npos) << logged_.back();
    at_server_.closed.clear();
    at_server_.connections.clear();
    connect();
    EXPECT_EQ(send({filled(*at_client_.shared, 1000, 7)}), SendOutcome::accepted);
    run_until_idle();
    EXPECT_EQ(at_server_.messages, 1U);
  }

  MonotonicClock clock_;
  Loop loop_{clock_};
  Side at_server_;
  Side at_client_;
  std::vector<std::string> logged_;
  ShmTransport server_{
      loop_, {.copy_pool = 128U << 10, .report = [this](CloseReason, std::string_view text) {
                logged_.emplace_back(text);
              }}};
  std::unique_ptr<ShmTransport> client_ =
      std::make_unique<ShmTransport>(loop_, ShmOptions{.copy_pool = 128U << 10});
  Url url_;
};

TEST_F(Shm, what_lies_in_a_shared_pool_is_read_where_it_is) {
  connect();
  EXPECT_EQ(send({filled(*at_client_.shared, 4000, 1)}), SendOutcome::accepted);
  run_until_idle();
  ASSERT_EQ(at_server_.kept.size(), 1U);
  EXPECT_EQ(at_server_.kept[0].size, 4000U);
  EXPECT_EQ(at_server_.kept[0].data()[3999], std::byte{1});
  EXPECT_EQ(at_server_.receive->available(), at_server_.receive->pages());
  EXPECT_EQ(client_->counters().lent, 1U);
  EXPECT_EQ(client_->counters().copied, 0U);
}

TEST_F(Shm, a_header_and_its_payload_stay_in_two_pieces_without_a_copy) {
  connect();
  EXPECT_EQ(send({filled(*at_client_.shared, 64, 1), filled(*at_client_.shared, 4000, 2)}),
            SendOutcome::accepted);
  run_until_idle();
  ASSERT_EQ(at_server_.kept.size(), 2U);
  EXPECT_EQ(at_server_.kept[0].size, 64U);
  EXPECT_EQ(at_server_.kept[1].size, 4000U);
  EXPECT_EQ(at_server_.kept[1].data()[0], std::byte{2});
  at_server_.kept.pop_front(); // one piece of a message pins the other
  run_until_idle();
  EXPECT_EQ(at_client_.shared->available(), at_client_.shared->pages() - 2);
}

TEST_F(Shm, what_lies_elsewhere_or_in_more_pieces_is_copied_once) {
  connect();
  EXPECT_EQ(send({filled(*at_client_.ordinary, 4000, 1)}), SendOutcome::accepted);
  EXPECT_EQ(at_client_.ordinary->available(), at_client_.ordinary->pages()); // free at once
  EXPECT_EQ(send({filled(*at_client_.shared, 500, 1), filled(*at_client_.shared, 500, 2),
                  filled(*at_client_.shared, 500, 3)}),
            SendOutcome::accepted);
  run_until_idle();
  ASSERT_EQ(at_server_.kept.size(), 2U);
  EXPECT_EQ(at_server_.kept[1].size, 1500U);
  EXPECT_EQ(at_server_.kept[1].data()[1499], std::byte{3});
  EXPECT_EQ(client_->counters().copied, 2U);
}

TEST_F(Shm, small_messages_pin_no_page_of_the_sender) {
  connect();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(send({filled(*at_client_.shared, 200, i)}), SendOutcome::accepted);
    run_until_idle();
  }
  EXPECT_EQ(at_server_.messages, 20U);
  EXPECT_EQ(at_client_.shared->available(), at_client_.shared->pages());
}

TEST_F(Shm, pages_come_home_only_when_the_receiver_lets_go_even_after_the_connection_is_closed) {
  for (const bool abort : {false, true}) {
    for (const bool by_sender : {false, true}) {
      at_server_.connections.clear();
      at_client_.connections.clear();
      connect();
      EXPECT_EQ(send({filled(*at_client_.shared, 4000, 9)}), SendOutcome::accepted);
      run_until_idle();
      if (by_sender) {
        client_->close(at_client_.connections.front(), abort);
      } else {
        server_.close(at_server_.connections.front(), abort);
      }
      run_until_idle();
      EXPECT_EQ(at_client_.shared->available(), at_client_.shared->pages() - 1);
      EXPECT_EQ(at_server_.kept.back().data()[3999], std::byte{9});
      at_server_.kept.clear();
      run_until_idle();
      EXPECT_EQ(at_client_.shared->available(), at_client_.shared->pages());
    }
  }
}

TEST_F(Shm, what_a_dead_peer_has_lent_stays_readable) {
  connect();
  EXPECT_EQ(send({filled(*at_client_.shared, 4000, 5)}), SendOutcome::accepted);
  run_until_idle();
  loop_.remove(*client_);
  client_.reset();
  at_client_.shared.reset(); // the memory ends with its last user
  run_until_idle();
  EXPECT_EQ(at_server_.closed, std::vector{CloseReason::peer_died});
  ASSERT_EQ(at_server_.kept.size(), 1U);
  EXPECT_EQ(at_server_.kept[0].data()[3999], std::byte{5});
  at_server_.kept.clear();
  at_client_.shared = make_pool(1, true);
}

TEST_F(Shm, who_was_refused_while_asleep_is_woken_by_room) {
  connect();
  for (int i = 0; i < 9; ++i) { // of 7 units each: the outbox is full, and nobody was refused
    EXPECT_EQ(send({filled(*at_client_.shared, 200, i)}), SendOutcome::accepted);
  }
  ASSERT_TRUE(falls_asleep(*client_));
  EXPECT_EQ(send({filled(*at_client_.shared, 200, 9)}), SendOutcome::backpressure);
  ASSERT_TRUE(falls_asleep(*client_));
  take_all(server_);
  EXPECT_TRUE(is_woken(*client_));
  run_until_idle();
  EXPECT_EQ(at_client_.writable, 1);
}

TEST_F(Shm, more_comes_back_than_an_outbox_holds_and_none_is_left) {
  connect();
  {
    const memory::View page = filled(*at_client_.shared, 4000, 1);
    for (std::uint32_t i = 0; i < 600; ++i) {
      EXPECT_EQ(send({page.subview(i % 400 * 8, 400)}), SendOutcome::accepted);
      run_until_idle();
    }
  }
  ASSERT_EQ(at_server_.kept.size(), 600U);
  ASSERT_TRUE(falls_asleep(server_));
  at_server_.kept.clear();
  run_until_idle();
  EXPECT_EQ(at_client_.shared->available(), at_client_.shared->pages());
}

TEST_F(Shm, a_receiver_may_keep_some_of_what_it_may_hold_for_ever) {
  ConnectionOptions options = at_client_.options();
  options.held_bytes = 8 * 3000;
  (void)client_->connect(url_, options).value();
  run_until_idle();
  for (int sent = 0; sent < 100; ++sent) {
    int before = at_client_.writable;
    while (send({filled(*at_client_.ordinary, 3000, sent)}) == SendOutcome::backpressure) {
      run_until_idle();
      while (at_server_.kept.size() > 5) at_server_.kept.pop_front();
      run_until_idle();
      ASSERT_GT(at_client_.writable, before) << sent;
      before = at_client_.writable;
    }
  }
}

TEST_F(Shm, an_end_that_was_held_back_sleeps_once_it_is_closed) {
  ConnectionOptions options = at_client_.options();
  options.held_bytes = 3 * 3000;
  (void)client_->connect(url_, options).value();
  run_until_idle();
  while (send({filled(*at_client_.shared, 3000, 1)}) == SendOutcome::accepted) run_until_idle();
  client_->close(at_client_.connections.front(), false);
  run_until_idle();
  EXPECT_TRUE(falls_asleep(*client_));
}

TEST_F(Shm, a_peer_that_lies_while_it_holds_a_page_costs_one_line_and_no_time) {
  shm::RawPeer peer(url_);
  peer.say_hello();
  run_until_idle();
  const std::vector view{filled(*at_server_.shared, 3000, 1)};
  EXPECT_EQ(server_.send(at_server_.connections.front(), view), SendOutcome::accepted);
  peer.outbox().returns[first_count % shm::returns_max] = {3, 1};
  peer.outbox().returned = first_count + 1;
  run_until_idle();
  EXPECT_EQ(at_server_.closed, std::vector{CloseReason::protocol_violation});
  EXPECT_EQ(logged_.size(), 1U);
  EXPECT_TRUE(falls_asleep(server_));
}

TEST_F(Shm, at_the_limit_of_descriptors_an_established_connection_waits) {
  connect();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{std::min<rlim_t>(before.rlim_cur, 256), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<Descriptor> all;
  while (true) {
    Descriptor more(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!more) break;
    all.push_back(std::move(more));
  }
  EXPECT_EQ(send({filled(*at_client_.shared, 4000, 1)}), SendOutcome::accepted); // and its pool
  run_until_idle();
  EXPECT_EQ(at_server_.messages, 0U);
  EXPECT_TRUE(at_server_.closed.empty() && at_client_.closed.empty());
  EXPECT_TRUE(falls_asleep(server_));
  all.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  while (at_server_.messages == 0 && at_server_.closed.empty()) (void)loop_.turn();
  EXPECT_TRUE(at_server_.closed.empty());
}

// With a peer that has put a message into memory for which this process has no address space.
class ShmWithoutAddressSpace : public Shm {
protected:
  void SetUp() override {
    Shm::SetUp();
    constexpr std::uint64_t size = 4ULL << 30; // of which nothing is touched
    peer_.emplace(url_);
    peer_->say_hello();
    run_until_idle();
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit low{pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + size / 2,
                     before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &low), 0);
    peer_->announce(shm::make_sealed(size), size);
    const Piece piece{0, 1000, size - 4096};
    peer_->put({.kind = RecordKind::lent, .length = piece.length}, {&piece, 1});
    run_until_idle();
    EXPECT_TRUE(falls_asleep(server_));
  }
  void TearDown() override {
    (void)setrlimit(RLIMIT_AS, &before_);
    Shm::TearDown();
  }

  std::optional<shm::RawPeer> peer_;
  rlimit before_{};
};

TEST_F(ShmWithoutAddressSpace, a_connection_waits_for_it) {
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before_), 0);
  EXPECT_EQ(at_server_.messages, 0U);
  EXPECT_TRUE(at_server_.closed.empty());
  ASSERT_EQ(logged_.size(), 1U);
  EXPECT_NE(logged_.front().find("ulimit -v"), std::string::npos) << logged_.front();
  while (at_server_.messages == 0 && at_server_.closed.empty()) (void)loop_.turn();
  EXPECT_TRUE(at_server_.closed.empty());
}

TEST_F(ShmWithoutAddressSpace, a_connection_whose_peer_dies_ends) {
  peer_.reset();
  while (at_server_.closed.empty()) (void)loop_.turn();
  EXPECT_EQ(at_server_.closed.front(), CloseReason::peer_died);
}

TEST_F(Shm, memory_that_no_process_can_map_is_a_violation) {
  shm::RawPeer peer(url_);
  peer.say_hello();
  run_until_idle();
  constexpr std::uint64_t size = 1ULL << 47;
  peer.announce(shm::make_sealed(size), size);
  while (at_server_.closed.empty()) (void)loop_.turn();
  EXPECT_EQ(at_server_.closed.front(), CloseReason::protocol_violation);
}

TEST_F(Shm, an_error_of_recvmsg_is_no_death_of_the_peer) {
  connect();
  {
    const FailingCalls receives(FailingCalls::Kind::receive, ENOMEM);
    EXPECT_EQ(send({filled(*at_client_.shared, 4000, 1)}), SendOutcome::accepted); // and its pool
    while (receives.count() < 3) (void)loop_.turn();
    EXPECT_EQ(at_server_.messages, 0U);
    EXPECT_TRUE(at_server_.closed.empty() && at_client_.closed.empty());
    EXPECT_TRUE(falls_asleep(server_));
  }
  while (at_server_.messages == 0 && at_server_.closed.empty()) (void)loop_.turn();
  EXPECT_TRUE(at_server_.closed.empty());
}

// As where the peer dies between the two: the kernel then says so once, instead of the packet.
TEST_F(Shm, a_packet_that_was_looked_at_and_could_not_be_taken_counts_once) {
  shm::RawPeer peer(url_);
  peer.say_hello();
  {
    const FailingCalls takes(FailingCalls::Kind::take, ENOMEM);
    while (takes.count() < 2) (void)loop_.turn();
    EXPECT_TRUE(at_server_.connections.empty() && at_server_.closed.empty());
  }
  while (at_server_.connections.empty() && at_server_.closed.empty()) (void)loop_.turn();
  EXPECT_TRUE(at_server_.closed.empty());
  EXPECT_EQ(logged_.size(), 1U);
}

TEST_F(Shm, a_connection_that_the_kernel_cannot_watch_is_refused_with_a_line_at_both_ends) {
  const FailingCalls watches(FailingCalls::Kind::watch, ENOSPC);
  (void)client_->connect(url_, at_client_.options()).value();
  run_until_idle();
  EXPECT_EQ(at_client_.closed, std::vector{CloseReason::connect_failed});
  const shm::RawPeer peer(url_);
  run_until_idle();
  EXPECT_TRUE(shm::has_hung_up(peer.socket().get()));
  EXPECT_TRUE(at_server_.connections.empty() && at_server_.closed.empty());
  ASSERT_FALSE(logged_.empty());
  EXPECT_NE(logged_.back().find("No space left on device"), std::string::npos) << logged_.back();
}

TEST_F(Shm, packets_that_are_none_close_the_connection_and_harm_nobody) {
  const std::vector<std::function<void(shm::RawPeer&)>> openings{
      [](shm::RawPeer& peer) { peer.say(std::as_bytes(std::span("GET / HTTP/1.1")), {}); },
      [](shm::RawPeer& peer) { peer.say(shm::encode(shm::Hello{}), {}); },
      [](shm::RawPeer& peer) { peer.say(shm::encode(shm::Hello{}), {peer.file().get()}); },
      [](shm::RawPeer& peer) { // no eventfd
        peer.say(shm::encode(shm::Hello{}), {peer.file().get(), peer.socket().get()});
      },
      [](shm::RawPeer& peer) { // could be cut short later
        const Descriptor file = shm::make_sealed(sizeof(shm::Outbox), 0);
        peer.say(shm::encode(shm::Hello{}), {file.get(), peer.wake().get()});
      },
      [](shm::RawPeer& peer) { // is too short
        const Descriptor file = shm::make_sealed(100);
        peer.say(shm::encode(shm::Hello{}), {file.get(), peer.wake().get()});
      },
      [](shm::RawPeer& peer) { peer.say_hello({.outbox_size = 8192}); },
      [](shm::RawPeer& peer) { peer.announce(peer.file(), 4096); },
      [](shm::RawPeer& peer) { (void)::send(peer.socket().get(), "x", 1, 0); },
      [](shm::RawPeer& peer) {
        (void)::send(peer.socket().get(), std::string(100, 'x').data(), 100, 0);
      },
  };
  std::uint64_t count = 0;
  for (const auto& opening : openings) {
    shm::RawPeer peer(url_);
    opening(peer);
    run_until_idle();
    EXPECT_EQ(server_.accounts().closed(CloseReason::protocol_violation), ++count);
    EXPECT_TRUE(at_server_.connections.empty()); // nobody was told of it
  }
  connect();
}

TEST_F(Shm, another_version_is_told_in_words) {
  const shm::RawPeer peer(url_);
  peer.say_hello({.version = 77});
  run_until_idle();
  ASSERT_FALSE(logged_.empty());
  EXPECT_NE(logged_.back().find("speaks version 77"), std::string::npos) << logged_.back();
  EXPECT_EQ(server_.accounts().closed(CloseReason::version_mismatch), 1U);
}

// A listener that anybody may reach, with a clock that only the test moves.
class ShmToAnybody : public testing::Test {
public:
  ShmToAnybody() {
    loop_.add(server_);
    ConnectionOptions options = at_server_.options();
    options.peers_must_identify = true;
    const auto listening = server_.listen({.scheme = "shm", .host = "test"}, options);
    url_ = server_.listening_url(listening.value());
  }

protected:
  static constexpr std::uint32_t peers_max = 8;

  void run_until_idle() {
    for (int idle = 0; idle < 200;) idle = loop_.turn() ? 0 : idle + 1;
  }
  // Peers that introduce themselves only if `introduced`, and never identify themselves.
  void arrive(std::uint32_t count, bool introduced) {
    for (; count > 0; --count) {
      peers_.push_back(std::make_unique<shm::RawPeer>(url_));
      if (introduced) peers_.back()->say_hello();
    }
    run_until_idle();
  }
  [[nodiscard]] std::uint64_t evicted() const {
    return server_.accounts().closed(CloseReason::evicted);
  }

  VirtualClock clock_;
  Loop loop_{clock_};
  Side at_server_;
  std::vector<std::string> logged_;
  ShmTransport server_{
      loop_,
      {.unidentified = {.peers_max = peers_max},
       .report = [this](CloseReason, std::string_view text) { logged_.emplace_back(text); }}};
  Url url_;
  std::vector<std::unique_ptr<shm::RawPeer>> peers_;
};

TEST_F(ShmToAnybody, where_unidentified_peers_crowd_the_oldest_is_evicted_after_a_while) {
  for (const bool introduced : {false, true}) {
    peers_.clear();
    run_until_idle();
    at_server_.connections.clear();
    const std::uint64_t before = evicted();
    arrive(peers_max, introduced);
    const std::size_t known = at_server_.connections.size();
    EXPECT_EQ(known, introduced ? peers_max : 0);
    clock_.advance(std::chrono::milliseconds(500));
    arrive(1, true);
    EXPECT_EQ(at_server_.connections.size(), known); // it waits
    EXPECT_EQ(evicted(), before);
    clock_.advance(std::chrono::milliseconds(500));
    run_until_idle();
    EXPECT_EQ(at_server_.connections.size(), known + 1);
    EXPECT_EQ(evicted(), before + 1);
  }
}

// As where a busy host has given it no processor.
TEST_F(ShmToAnybody,
       a_listener_that_was_away_reads_what_peers_have_sent_before_it_sends_them_away) {
  at_server_.identifies = true;
  arrive(peers_max, false);
  peers_.push_back(std::make_unique<shm::RawPeer>(url_));
  for (const auto& peer : peers_) {
    peer->say_hello();
    peer->put({.kind = RecordKind::inlined, .length = 8});
  }
  clock_.advance(ShmOptions{}.handshake_timeout);
  run_until_idle();
  EXPECT_EQ(at_server_.connections.size(), peers_max + 1);
  EXPECT_EQ(at_server_.messages, peers_max + 1);
  EXPECT_EQ(evicted(), 0U) << logged_.front();
  EXPECT_EQ(server_.accounts().closed(CloseReason::protocol_violation), 0U) << logged_.front();
  at_server_.kept.clear();
}

TEST_F(ShmToAnybody, a_peer_that_has_identified_itself_is_not_evicted) {
  arrive(peers_max, true);
  ASSERT_EQ(at_server_.connections.size(), peers_max);
  server_.mark_identified(at_server_.connections.front());
  clock_.advance(std::chrono::seconds(2));
  arrive(2, true); // one has the place of the first, one that of the second
  EXPECT_EQ(at_server_.connections.size(), peers_max + 2);
  EXPECT_EQ(at_server_.closed, std::vector{CloseReason::evicted});
  EXPECT_EQ(server_.send(at_server_.connections[1], {}), SendOutcome::closed);
  EXPECT_NE(server_.send(at_server_.connections[0], {}), SendOutcome::closed);
}

TEST_F(ShmToAnybody, peers_that_were_closed_leave_their_places) {
  arrive(peers_max, true);
  ASSERT_EQ(at_server_.connections.size(), peers_max);
  for (const ConnectionId id : at_server_.connections) server_.close(id, false);
  arrive(peers_max, true);
  EXPECT_EQ(at_server_.connections.size(), 2 * peers_max);
  EXPECT_EQ(evicted(), 0U);
}

TEST_F(ShmToAnybody, an_identified_peer_that_takes_nothing_is_given_up_with_a_line) {
  arrive(2, true);
  ASSERT_EQ(at_server_.connections.size(), 2U);
  server_.mark_identified(at_server_.connections.front());
  for (const ConnectionId id : at_server_.connections) {
    while (server_.send(id, {}) == SendOutcome::accepted) {
    }
    server_.close(id, false);
  }
  EXPECT_EQ(server_.closing(), 2U);
  clock_.advance(ShmOptions{}.linger_timeout);
  run_until_idle();
  EXPECT_EQ(server_.closing(), 0U);
  EXPECT_EQ(server_.given_up(), 1U);
  ASSERT_EQ(logged_.size(), 1U);
  EXPECT_NE(logged_.front().find("has not taken all that was sent"), std::string::npos);
}

TEST_F(ShmToAnybody, a_peer_that_stops_taking_is_given_up_one_deadline_after_close) {
  arrive(1, true);
  const ConnectionId id = at_server_.connections.front();
  server_.mark_identified(id);
  ASSERT_EQ(server_.send(id, {}), SendOutcome::accepted);
  peers_.front()->outbox().taken = first_count + 1;
  ASSERT_EQ(server_.send(id, {}), SendOutcome::accepted);
  server_.close(id, false);
  EXPECT_EQ(server_.closing(), 1U);
  clock_.advance(ShmOptions{}.linger_timeout);
  run_until_idle();
  EXPECT_EQ(server_.closing(), 0U);
  EXPECT_EQ(server_.given_up(), 1U);
}

TEST_F(ShmToAnybody, close_waits_for_a_peer_that_takes_something_in_each_deadline) {
  arrive(1, true);
  const ConnectionId id = at_server_.connections.front();
  server_.mark_identified(id);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(server_.send(id, {}), SendOutcome::accepted);
  server_.close(id, false);
  for (std::uint32_t taken = 1; taken <= 3; ++taken) {
    EXPECT_EQ(server_.closing(), 1U);
    peers_.front()->outbox().taken = first_count + taken;
    clock_.advance(ShmOptions{}.linger_timeout);
    run_until_idle();
  }
  EXPECT_EQ(server_.closing(), 0U) << "nobody waits for the end to be taken";
  EXPECT_EQ(server_.given_up(), 0U);
}

TEST_F(ShmToAnybody, what_a_peer_says_at_its_end_counts_and_not_what_it_takes_later) {
  for (const std::uint32_t taken : {0U, 1U, 2U, 3U, 77U}) {
    arrive(1, true);
    const ConnectionId id = at_server_.connections.back();
    server_.mark_identified(id);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(server_.send(id, {}), SendOutcome::accepted);
    shm::RawPeer& peer = *peers_.back();
    peer.outbox().closed = shm::closed_bit | (first_count + taken);
    peer.outbox().taken = first_count + 3;
    const std::uint64_t before = server_.given_up();
    server_.close(id, false);
    run_until_idle();
    EXPECT_EQ(server_.closing(), 0U);
    EXPECT_EQ(server_.given_up(), before + (taken == 3 ? 0U : 1U)) << taken;
  }
}

TEST_F(Shm, what_an_abort_withdraws_was_not_taken) {
  connect();
  at_server_.aborts = true;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(send({}), SendOutcome::accepted);
  run_until_idle();
  EXPECT_EQ(at_server_.messages, 1U);
  EXPECT_EQ(at_client_.closed, std::vector{CloseReason::peer_died});
  EXPECT_EQ(client_->given_up(), 1U);
}

TEST_F(Shm, a_message_outside_of_the_announced_memory_closes_the_connection) {
  const Descriptor memory = shm::make_sealed(8192);
  for (const Piece piece : {Piece{0, 4097, 4096}, Piece{0, 1000, 8192}, Piece{0, 1000, ~0ULL - 7},
                            Piece{1, 1000, 0}, Piece{0, 1000, 4}}) {
    shm::RawPeer peer(url_);
    peer.say_hello();
    peer.announce(memory, 8192);
    run_until_idle();
    peer.put({.kind = RecordKind::lent, .length = piece.length}, {&piece, 1});
    SCOPED_TRACE(piece.offset);
    run_until_idle();
    ASSERT_EQ(at_server_.closed.size(), 1U);
    EXPECT_NE(at_server_.closed.front(), CloseReason::peer_died);
    EXPECT_EQ(at_server_.messages, 0U);
    at_server_.closed.clear();
  }
}

TEST_F(Shm, memory_that_is_not_there_cannot_be_announced) {
  shm::RawPeer peer(url_);
  peer.say_hello();
  run_until_idle();
  peer.announce(shm::make_sealed(4096), 1U << 30);
  expect_violation("smaller than was announced");
}

TEST_F(Shm, memory_that_could_be_taken_away_cannot_be_announced) {
  shm::RawPeer peer(url_);
  peer.say_hello();
  run_until_idle();
  peer.announce(shm::make_sealed(4096, 0), 4096);
  expect_violation("not sealed against shrinking");
}

TEST_F(Shm, counts_that_cannot_be_close_the_connection) {
  shm::RawPeer peer(url_);
  peer.say_hello();
  run_until_idle();
  peer.outbox().written = first_count + shm::units_max + 1;
  expect_violation("more than its outbox can hold");
}

TEST_F(Shm, a_record_of_no_kind_closes_the_connection) {
  shm::RawPeer peer(url_);
  peer.say_hello();
  run_until_idle();
  peer.put({.kind = static_cast<RecordKind>(99)});
  expect_violation("not a message");
}

TEST_F(Shm, a_record_that_runs_past_what_was_written_closes_the_connection) {
  shm::RawPeer peer(url_);
  peer.say_hello();
  run_until_idle();
  peer.put({.kind = RecordKind::inlined, .length = 200});
  expect_violation("not complete in its outbox");
}

TEST_F(Shm, giving_back_what_was_not_lent_closes_the_connection) {
  shm::RawPeer peer(url_);
  peer.say_hello();
  run_until_idle();
  peer.outbox().returns[first_count % shm::returns_max] = {3, 1};
  peer.outbox().returned = first_count + 1;
  expect_violation("does not hold");
}

TEST_F(Shm, a_message_over_the_limit_closes_the_connection) {
  const Descriptor memory = shm::make_sealed(1U << 20);
  shm::RawPeer peer(url_);
  peer.say_hello();
  peer.announce(memory, 1U << 20);
  run_until_idle();
  const Piece piece{0, page_size, 0};
  peer.put({.kind = RecordKind::lent, .length = page_size}, {&piece, 1});
  run_until_idle();
  EXPECT_EQ(at_server_.closed, std::vector{CloseReason::message_too_large});
}

TEST_F(Shm, an_address_to_connect_to_has_a_port) {
  const auto made = client_->connect({.scheme = "shm", .host = "test"}, at_client_.options());
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().text.find("shm://name:7000"), std::string::npos) << made.error().text;
}

TEST_F(Shm, processes_of_other_users_are_refused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const pid_t other = fork();
  if (other == 0) {
    if (setuid(65534) != 0) _exit(1);
    const shm::RawPeer peer(url_);
    peer.say_hello();
    char byte = 0;
    // Nothing is said to it but the end.
    while (::recv(peer.socket().get(), &byte, 1, 0) < 0 && errno == EAGAIN) sched_yield();
    _exit(0);
  }
  int status = -1;
  while (waitpid(other, &status, WNOHANG) == 0) (void)loop_.turn();
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(at_server_.connections.empty());
  ASSERT_FALSE(logged_.empty());
  EXPECT_NE(logged_.back().find("another user"), std::string::npos);
}

TEST_F(Shm, a_user_whom_root_refuses_is_told_why) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const pid_t other = fork();
  if (other == 0) {
    if (setuid(65534) != 0) _exit(1);
    struct Why final : Handler {
      void on_event(Transport&, Event& event) override {
        const auto bytes = event.message.bytes();
        text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
      std::string text;
    } why;
    const MonotonicClock clock;
    Loop loop(clock);
    ShmTransport transport(loop);
    loop.add(transport);
    const auto pool = memory::PagePool::make({.page_size = 4096, .pages = 4}).value();
    if (!transport.connect(url_, {.receive_pool = pool.get(), .handler = &why})) _exit(2);
    while (why.text.empty()) (void)loop.turn();
    _exit(why.text.find("another user") == std::string::npos ? 3 : 0);
  }
  int status = -1;
  while (waitpid(other, &status, WNOHANG) == 0) (void)loop_.turn();
  EXPECT_EQ(status, 0);
}

// --- processes that die ---

constexpr std::uint32_t burst_size = 3000;

// More processes than cores take turns.
void turn(Loop& loop) {
  if (!loop.turn()) sched_yield();
}

// Sends as fast as it can until it is killed; what a message holds follows from its number.
[[noreturn]] void send_until_killed(const Url& url) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MonotonicClock clock;
  Loop loop(clock);
  ShmTransport transport(loop, {.copy_pool = 128U << 10});
  Side side;
  loop.add(transport);
  const ConnectionId id = transport.connect(url, side.options()).value();
  for (std::uint32_t number = 0;;) {
    turn(loop);
    const memory::Loan page = side.shared->take();
    if (!page || side.connections.empty()) continue;
    for (std::uint32_t i = 0; i < burst_size / 4; ++i)
      std::memcpy(page.data() + std::size_t{i} * 4, &number, 4);
    const memory::View view = page.freeze(0, number % 3 == 0 ? 100 : burst_size);
    if (transport.send(id, {&view, 1}) == SendOutcome::accepted) ++number;
  }
}

// Takes messages and keeps some of them, until it is killed.
[[noreturn]] void receive_until_killed(const Url& url) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MonotonicClock clock;
  Loop loop(clock);
  ShmTransport transport(loop, {.copy_pool = 128U << 10});
  Side side;
  loop.add(transport);
  (void)transport.connect(url, side.options()).value();
  while (true) {
    turn(loop);
    while (side.kept.size() > 3) side.kept.pop_front();
  }
}

TEST_F(Shm, a_sender_may_be_killed_at_any_instant) {
  Random random(static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  for (int round = 0; round < 25; ++round) {
    at_server_.closed.clear();
    std::uint32_t next = 0;
    const pid_t child = fork();
    if (child == 0) send_until_killed(url_);
    const std::uint64_t enough = random.below(2000);
    bool killed = false;
    while (at_server_.closed.empty()) {
      turn(loop_);
      for (const memory::View& view : at_server_.kept) {
        for (std::uint32_t i = 0; i < view.size / 4; ++i) {
          std::uint32_t value = 0;
          std::memcpy(&value, view.data() + std::size_t{i} * 4, 4);
          ASSERT_EQ(value, next);
        }
        ++next;
      }
      at_server_.kept.clear();
      if (!killed && next >= enough) {
        ::kill(child, SIGKILL);
        killed = true;
      }
    }
    EXPECT_EQ(at_server_.closed, std::vector{CloseReason::peer_died});
    waitpid(child, nullptr, 0);
  }
}

TEST_F(Shm, a_receiver_may_be_killed_at_any_instant_and_its_pages_come_home) {
  Random random(static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  for (int round = 0; round < 25; ++round) {
    at_server_.closed.clear();
    at_server_.connections.clear();
    const pid_t child = fork();
    if (child == 0) receive_until_killed(url_);
    std::uint64_t sent = 0;
    const std::uint64_t enough = random.below(2000);
    while (at_server_.closed.empty()) {
      turn(loop_);
      if (at_server_.connections.empty()) continue;
      if (sent == enough) ::kill(child, SIGKILL);
      const memory::Loan page = at_server_.shared->take();
      if (!page) continue;
      const memory::View view = page.freeze(0, burst_size);
      if (server_.send(at_server_.connections.front(), {&view, 1}) == SendOutcome::accepted) ++sent;
    }
    EXPECT_EQ(at_server_.closed, std::vector{CloseReason::peer_died});
    EXPECT_EQ(at_server_.shared->available(), at_server_.shared->pages());
    waitpid(child, nullptr, 0);
  }
}

TEST_F(Shm, a_frozen_receiver_keeps_what_it_reads_until_it_is_killed) {
  const pid_t child = fork();
  if (child == 0) receive_until_killed(url_);
  std::uint64_t sent = 0;
  while (sent < 100) {
    turn(loop_);
    const memory::Loan page = at_server_.shared->take();
    if (!page || at_server_.connections.empty()) continue;
    const memory::View view = page.freeze(0, burst_size);
    if (server_.send(at_server_.connections.front(), {&view, 1}) == SendOutcome::accepted) ++sent;
  }
  ::kill(child, SIGSTOP);
  waitpid(child, nullptr, WUNTRACED);
  run_until_idle();
  server_.close(at_server_.connections.front(), true); // given up
  run_until_idle();
  EXPECT_LT(at_server_.shared->available(), at_server_.shared->pages());
  ::kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  run_until_idle();
  EXPECT_EQ(at_server_.shared->available(), at_server_.shared->pages());
}

TEST_F(Shm, an_idle_connection_is_asleep_and_a_message_wakes_it) {
  connect();
  for (int round = 0; round < 3; ++round) {
    Timer later(
        [&] { EXPECT_EQ(send({filled(*at_client_.shared, 100, 1)}), SendOutcome::accepted); });
    later.start(loop_, clock_.now() + std::chrono::milliseconds(2));
    struct Stop final : Service {
      explicit Stop(std::function<bool()> when) : done(std::move(when)) {}
      bool poll() override { return done(); }
      std::function<bool()> done;
    } stop([&, before = at_server_.messages] {
      if (at_server_.messages > before) loop_.stop();
      return false;
    });
    loop_.add(stop);
    loop_.run();
    loop_.remove(stop);
  }
  EXPECT_EQ(at_server_.messages, 3U);
  EXPECT_GE(client_->counters().wakes, 1U);
}

} // namespace
} // namespace fanin::net
