// What all byte streams do, over TCP and in virtual time; then what only those in virtual time can
// show.
#include "fanin/net/stream/stream.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <string>

#include "fanin/base/random.hpp"
#include "fanin/net/stream/tcp_streams.hpp"
#include "fanin/net/virtual_world.hpp"

namespace fanin::net {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;
using Outcome = Transfer::Outcome;

Bytes drawn_bytes(std::size_t size, std::uint64_t seed) {
  Random random{seed};
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

// Two nodes with streams, and time that passes.
class StreamBackend {
public:
  virtual ~StreamBackend() = default;
  [[nodiscard]] virtual Streams& server() = 0;
  [[nodiscard]] virtual Streams& client() = 0;
  [[nodiscard]] virtual Url address() const = 0; // of the server, with port 0
  virtual void turn() = 0;
};

class OverTcp final : public StreamBackend {
public:
  Streams& server() override { return streams_; }
  Streams& client() override { return streams_; }
  Url address() const override { return Url::parse("tcp://127.0.0.1:0").value(); }
  void turn() override { sched_yield(); }

private:
  TcpStreams streams_;
};

class InVirtualTime final : public StreamBackend {
public:
  Streams& server() override { return server_.streams(); }
  Streams& client() override { return client_.streams(); }
  Url address() const override { return Url::parse("tcp://server:0").value(); }
  void turn() override { world_.run_until(world_.now() + 100us); }

private:
  VirtualWorld world_{1, {}};
  VirtualNode& server_ = world_.add_node("server");
  VirtualNode& client_ = world_.add_node("client");
};

using MakeBackend = std::unique_ptr<StreamBackend> (*)();

class StreamConformance : public ::testing::TestWithParam<MakeBackend> {
protected:
  void SetUp() override {
    backend_ = GetParam()();
    const auto addresses = backend_->server().addresses_to_listen(backend_->address());
    listener_ = backend_->server().listen(backend_->address(), addresses.value()).value();
    watch_ = backend_->server().make_watch().value();
    watch_->set_wake([this] { woken_ = true; });
  }
  [[nodiscard]] Address listening() const {
    const Url url = Url::parse(listener_->url()).value();
    Address address = addresses_of_number(url.host).value().front();
    address.set_port(url.port);
    return address;
  }
  [[nodiscard]] std::unique_ptr<Stream> connect() {
    return backend_->client().connect(listening()).value();
  }
  [[nodiscard]] std::unique_ptr<Stream> accept() {
    until([&] { return listener_->has_next(); });
    return listener_->accept().stream;
  }
  void make_pair() {
    here_ = connect();
    there_ = accept();
    ASSERT_NE(there_, nullptr);
  }
  template <class Done>
  void until(Done done) {
    const MonotonicClock real;
    for (const Time end = real.now() + 60s; !done(); backend_->turn()) ASSERT_LT(real.now(), end);
  }
  // True once since the last time.
  [[nodiscard]] bool woken(StreamWatch& watch) {
    if (watch.descriptor() < 0) return std::exchange(woken_, false);
    pollfd readable{.fd = watch.descriptor(), .events = POLLIN, .revents = 0};
    return ::poll(&readable, 1, 0) == 1;
  }
  // Nothing is to come.
  void settle() {
    for (int i = 0; i < 20; ++i) backend_->turn();
    watch_->poll();
    woken_ = false;
  }
  void write_all(Stream& to, std::span<const std::byte> bytes) {
    until([&] {
      bytes = bytes.subspan(to.write(bytes).bytes);
      return bytes.empty();
    });
  }
  Bytes read_all(Stream& from, std::size_t size) {
    Bytes bytes(size);
    std::size_t got = 0;
    until([&] {
      got += from.read(std::span(bytes).subspan(got)).bytes;
      return got == size;
    });
    return bytes;
  }
  // How reading ends, when nothing more comes.
  Transfer read_end(Stream& from) {
    Transfer last;
    until([&] {
      std::array<std::byte, 100> some{};
      last = from.read(some);
      return last.outcome == Outcome::ended || last.outcome == Outcome::failed;
    });
    return last;
  }
  // Until there is no room.
  std::size_t fill(Stream& to) {
    const Bytes some(10'000);
    std::size_t written = 0;
    for (Transfer last; last.outcome == Outcome::done; written += last.bytes) {
      last = to.write(some);
      backend_->turn();
    }
    return written;
  }

  std::unique_ptr<StreamBackend> backend_;
  std::unique_ptr<StreamListener> listener_;
  std::unique_ptr<StreamWatch> watch_;
  bool woken_ = false;
  std::unique_ptr<Stream> here_;
  std::unique_ptr<Stream> there_;
};

TEST_P(StreamConformance, bytes_come_in_order_whatever_the_pieces) {
  make_pair();
  constexpr std::size_t size = 1'000'000;
  const Bytes sent = drawn_bytes(size, 1);
  Bytes received(size);
  Random random{2};
  std::size_t out = 0;
  std::size_t in = 0;
  until([&] {
    std::array<iovec, 3> parts{};
    std::size_t end = out;
    for (iovec& part : parts) {
      const std::size_t some = std::min<std::size_t>(random.below(5000), size - end);
      part = {const_cast<std::byte*>(sent.data()) + end, some};
      end += some;
    }
    out += here_->write(parts, random.chance(1, 2)).bytes;
    std::array<iovec, 2> room{};
    end = in;
    for (iovec& part : room) {
      const std::size_t some = std::min<std::size_t>(random.below(9000), size - end);
      part = {received.data() + end, some};
      end += some;
    }
    if (end > in) in += there_->read(room).bytes;
    return in == size;
  });
  EXPECT_EQ(received, sent);
  write_all(*there_, std::span(sent).first(10));
  EXPECT_TRUE(std::ranges::equal(read_all(*here_, 10), std::span(sent).first(10)));
}

TEST_P(StreamConformance, a_peer_that_does_not_read_blocks_the_writer_and_loses_nothing) {
  make_pair();
  ASSERT_TRUE(backend_->client().make_watch());
  const auto watch = backend_->client().make_watch().value();
  ASSERT_TRUE(watch->add(*here_));
  std::size_t written = fill(*here_);
  for (int i = 0; i < 100; ++i) backend_->turn();
  watch->poll();
  if (here_->writable()) written += fill(*here_);
  EXPECT_FALSE(here_->writable());
  EXPECT_LT(written, 64U << 20);
  until([&] {
    (void)read_all(*there_, std::min<std::size_t>(written, 5000));
    written -= std::min<std::size_t>(written, 5000);
    watch->poll();
    return here_->writable();
  });
  write_all(*here_, drawn_bytes(100, 3));
  (void)read_all(*there_, written);
  EXPECT_EQ(read_all(*there_, 100), drawn_bytes(100, 3));
}

TEST_P(StreamConformance, the_end_is_read_behind_all_bytes_while_the_other_direction_goes_on) {
  make_pair();
  const Bytes bytes = drawn_bytes(50'000, 4);
  EXPECT_GT(here_->write(bytes).bytes, 0U);
  here_->end_writing();
  EXPECT_EQ(here_->write(bytes).outcome, Outcome::failed);
  EXPECT_EQ(read_end(*there_).outcome, Outcome::ended);
  write_all(*there_, bytes);
  EXPECT_EQ(read_all(*here_, bytes.size()), bytes);
  there_.reset();
  EXPECT_EQ(read_end(*here_).outcome, Outcome::ended);
}

TEST_P(StreamConformance, closing_is_an_end_in_order_and_what_was_written_arrives) {
  make_pair();
  const Bytes bytes = drawn_bytes(30'000, 5);
  write_all(*here_, bytes);
  here_.reset();
  EXPECT_EQ(read_all(*there_, bytes.size()), bytes);
  EXPECT_EQ(read_end(*there_).outcome, Outcome::ended);
}

TEST_P(StreamConformance, the_end_is_seen_without_taking_bytes_away) {
  make_pair();
  EXPECT_FALSE(there_->has_ended());
  EXPECT_FALSE(there_->peer_has_left());
  write_all(*here_, drawn_bytes(10, 6));
  here_.reset();
  settle();
  EXPECT_FALSE(there_->has_ended()) << "there is something to read";
  EXPECT_TRUE(there_->peer_has_left());
  EXPECT_EQ(read_all(*there_, 10), drawn_bytes(10, 6));
  until([&] { return there_->has_ended(); });
  EXPECT_TRUE(there_->has_ended());
  EXPECT_EQ(read_end(*there_).outcome, Outcome::ended);
}

TEST_P(StreamConformance, closing_with_bytes_that_were_not_read_breaks_the_connection) {
  make_pair();
  write_all(*here_, drawn_bytes(10, 7));
  settle();
  there_.reset();
  const Transfer last = read_end(*here_);
  EXPECT_EQ(last.outcome, Outcome::failed);
  EXPECT_EQ(last.error, ECONNRESET);
  EXPECT_EQ(here_->write(drawn_bytes(10, 7)).outcome, Outcome::failed);
}

TEST_P(StreamConformance, bytes_for_a_peer_that_has_closed_break_the_connection) {
  make_pair();
  there_.reset();
  const Bytes bytes(10);
  until([&] { return here_->write(bytes).outcome == Outcome::failed; });
}

TEST_P(StreamConformance, a_reset_breaks_the_connection_of_the_peer) {
  make_pair();
  here_->reset_on_close();
  here_.reset();
  EXPECT_EQ(read_end(*there_).error, ECONNRESET);
}

TEST_P(StreamConformance, a_reset_that_a_write_has_met_is_no_end_in_order) {
  make_pair();
  here_->reset_on_close();
  here_.reset();
  const Bytes bytes(10);
  until([&] { return there_->write(bytes).outcome == Outcome::failed; });
  EXPECT_EQ(read_end(*there_).outcome, Outcome::failed);
}

TEST_P(StreamConformance, after_the_end_of_reading_what_has_come_is_read_and_then_the_end) {
  make_pair();
  write_all(*here_, drawn_bytes(10, 8));
  settle();
  there_->end_reading();
  EXPECT_TRUE(there_->readable());
  EXPECT_EQ(read_all(*there_, 10), drawn_bytes(10, 8));
  EXPECT_EQ(read_end(*there_).outcome, Outcome::ended);
}

TEST_P(StreamConformance, nobody_listens_there) {
  const Address address = listening();
  listener_.reset();
  here_ = backend_->client().connect(address).value();
  const Bytes bytes(10);
  Transfer last;
  until([&] {
    last = here_->write(bytes);
    return last.outcome != Outcome::blocked;
  });
  EXPECT_EQ(last.outcome, Outcome::failed);
  EXPECT_EQ(last.error, ECONNREFUSED);
}

TEST_P(StreamConformance, a_read_needs_room_and_a_transfer_few_parts) {
  make_pair();
  EXPECT_DEATH((void)there_->read(std::span<std::byte>{}), "has_room");
  Bytes bytes(IOV_MAX + 1);
  std::vector<iovec> parts;
  for (std::byte& byte : bytes) parts.push_back({&byte, 1});
  EXPECT_DEATH((void)there_->read(parts), "IOV_MAX");
  EXPECT_DEATH((void)here_->write(parts), "IOV_MAX");
}

TEST_P(StreamConformance, a_port_has_one_listener) {
  Url url = backend_->address();
  url.port = listening().port();
  EXPECT_NE(url.port, 0);
  const auto addresses = backend_->server().addresses_to_listen(url);
  EXPECT_EQ(backend_->server().listen(url, addresses.value()).error().kind, ErrorKind::refused);
  listener_.reset();
  EXPECT_TRUE(backend_->server().listen(url, addresses.value()));
}

TEST_P(StreamConformance, connections_wait_with_their_bytes_until_they_are_accepted) {
  EXPECT_FALSE(listener_->has_next());
  EXPECT_EQ(listener_->accept().stream, nullptr);
  EXPECT_FALSE(listener_->readable());
  here_ = connect();
  write_all(*here_, drawn_bytes(10, 9));
  const std::unique_ptr<Stream> second = connect();
  until([&] { return listener_->has_next(); });
  StreamListener::Accepted accepted = listener_->accept();
  ASSERT_NE(accepted.stream, nullptr);
  EXPECT_NE(accepted.peer.port(), 0);
  EXPECT_EQ(read_all(*accepted.stream, 10), drawn_bytes(10, 9));
  EXPECT_NE(accept(), nullptr);
  EXPECT_EQ(listener_->accept().error, 0);
}

TEST_P(StreamConformance, a_listener_that_is_closed_breaks_what_waits) {
  here_ = connect();
  until([&] { return listener_->has_next(); });
  listener_.reset();
  EXPECT_EQ(read_end(*here_).outcome, Outcome::failed);
}

TEST_P(StreamConformance, a_watch_wakes_when_something_happens_and_once) {
  ASSERT_TRUE(watch_->add(*listener_));
  (void)listener_->accept();
  settle();
  EXPECT_FALSE(woken(*watch_));
  here_ = connect();
  until([&] { return woken(*watch_); });
  watch_->poll();
  EXPECT_TRUE(listener_->readable());
  there_ = accept();
  ASSERT_TRUE(watch_->add(*there_));
  std::array<std::byte, 10> some{};
  EXPECT_EQ(there_->read(some).outcome, Outcome::blocked);
  EXPECT_FALSE(there_->readable());
  settle();
  EXPECT_FALSE(there_->readable());
  write_all(*here_, drawn_bytes(20, 10));
  until([&] { return woken(*watch_); });
  watch_->poll();
  EXPECT_TRUE(there_->readable());
  settle();
  EXPECT_FALSE(woken(*watch_)) << "nothing new has come";
  (void)read_all(*there_, 20);
  EXPECT_EQ(there_->read(some).outcome, Outcome::blocked);
  here_.reset();
  until([&] { return woken(*watch_); });
  watch_->poll();
  EXPECT_TRUE(there_->readable());
}

TEST_P(StreamConformance, a_watch_in_another_one_wakes_both) {
  const auto outer = backend_->server().make_watch().value();
  ASSERT_TRUE(outer->add(*watch_));
  make_pair();
  ASSERT_TRUE(watch_->add(*there_));
  std::array<std::byte, 10> some{};
  (void)there_->read(some);
  settle();
  outer->poll();
  EXPECT_FALSE(watch_->readable());
  write_all(*here_, drawn_bytes(1, 11));
  until([&] {
    outer->poll();
    return watch_->readable();
  });
  EXPECT_FALSE(there_->readable() && watch_->descriptor() >= 0) << "it was not asked yet";
  watch_->poll();
  EXPECT_FALSE(watch_->readable());
  EXPECT_TRUE(there_->readable());
}

TEST_P(StreamConformance, what_is_watched_no_more_does_not_wake) {
  make_pair();
  ASSERT_TRUE(watch_->add(*there_));
  settle();
  watch_->remove(*there_);
  watch_->remove(*there_);
  write_all(*here_, drawn_bytes(1, 12));
  (void)read_all(*there_, 1);
  EXPECT_FALSE(woken(*watch_));
}

TEST_P(StreamConformance, watches_and_what_they_watch_end_in_any_order) {
  make_pair();
  const auto outer = backend_->server().make_watch().value();
  ASSERT_TRUE(outer->add(*watch_));
  for (Watchable* one : {static_cast<Watchable*>(&*listener_), static_cast<Watchable*>(&*there_)}) {
    ASSERT_TRUE(watch_->add(*one));
  }
  write_all(*here_, drawn_bytes(1, 13));
  until([&] { return woken(*watch_); });
  there_.reset();
  watch_->poll();
  watch_.reset();
  outer->poll();
  listener_.reset();
}

INSTANTIATE_TEST_SUITE_P(
    Streams, StreamConformance,
    ::testing::Values(
        []() -> std::unique_ptr<StreamBackend> { return std::make_unique<OverTcp>(); },
        []() -> std::unique_ptr<StreamBackend> { return std::make_unique<InVirtualTime>(); }),
    [](const auto& which) { return which.index == 0 ? "tcp" : "virtual"; });

// --- over TCP ------------------------------------------------------------------------------------

// The kernel takes one port after the other for such attempts, so it comes to this one.
TEST(TcpStreams, nobody_is_connected_to_itself) {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  int last = 0;
  ASSERT_TRUE(range >> first >> last);
  TcpStreams streams;
  Address address = addresses_of_number("127.0.0.1").value().front();
  address.set_port(static_cast<std::uint16_t>(first));
  { // one where nobody listens
    const Url url = Url::parse("tcp://127.0.0.1").value();
    for (;; address.set_port(static_cast<std::uint16_t>(address.port() + 2))) {
      ASSERT_LT(address.port(), last);
      if (streams.listen(url, {&address, 1})) break;
    }
  }
  const Bytes bytes(10);
  for (int attempt = first; attempt < last; ++attempt) {
    const auto stream = streams.connect(address);
    if (!stream) continue;
    while ((*stream)->write(bytes).outcome == Outcome::blocked) sched_yield();
    ASSERT_EQ((*stream)->write(bytes).outcome, Outcome::failed);
  }
}

// --- in virtual time -----------------------------------------------------------------------------

class VirtualStreams : public ::testing::Test {
protected:
  explicit VirtualStreams(std::uint64_t seed = 1) : world_(seed, {.stream_buffer = 10'000}) {
    const Url url = Url::parse("tcp://two:7").value();
    listener_ = two_.streams().listen(url, two_.streams().addresses_to_listen(url).value()).value();
    Address address = one_.name_service().ask("two", question_).value().value().front();
    address.set_port(7);
    here_ = one_.streams().connect(address).value();
  }
  void pass(Duration time) { world_.run_until(world_.now() + time); }
  void accept() {
    pass(1ms);
    there_ = listener_->accept().stream;
    ASSERT_NE(there_, nullptr);
  }
  std::size_t write(std::size_t size) { return here_->write(Bytes(size)).bytes; }
  Transfer read() {
    Bytes room(100'000);
    return there_->read(room);
  }
  std::size_t read_all() {
    std::size_t bytes = 0;
    while (const std::size_t some = read().bytes) bytes += some;
    return bytes;
  }

  Resolver::Question question_{[](const Resolver::Found&) {}};
  VirtualWorld world_;
  VirtualNode& one_ = world_.add_node("one");
  VirtualNode& two_ = world_.add_node("two");
  std::unique_ptr<StreamListener> listener_;
  std::unique_ptr<Stream> here_;
  std::unique_ptr<Stream> there_;
};

TEST_F(VirtualStreams, an_address_that_no_node_has_cannot_be_reached) {
  Address address = addresses_of_number("192.0.2.1").value().front();
  address.set_port(7);
  EXPECT_EQ(two_.streams().connect(address).error().kind, ErrorKind::disconnected);
}

TEST_F(VirtualStreams, bytes_take_a_time) {
  accept();
  two_.slow_down(1s);
  const std::size_t sent = write(100);
  pass(999ms);
  EXPECT_EQ(read().outcome, Outcome::blocked);
  pass(2ms);
  EXPECT_EQ(read_all(), sent);
}

TEST_F(VirtualStreams, a_frozen_node_is_connected_by_its_kernel_and_takes_what_fits) {
  two_.freeze();
  pass(1ms);
  std::size_t sent = 0;
  for (int i = 0; i < 100; ++i, pass(1ms)) sent += write(1000);
  EXPECT_EQ(sent, 10'000U);
  pass(60s);
  EXPECT_FALSE(here_->is_unanswered()) << "its kernel answers";
  two_.thaw();
  accept();
  EXPECT_EQ(read_all(), sent);
}

TEST_F(VirtualStreams, a_cut_loses_what_is_under_way_and_both_sides_notice) {
  accept();
  EXPECT_GT(write(100), 0U);
  pass(1ms);
  EXPECT_GT(write(100), 0U);
  one_.disconnect(two_);
  pass(1ms);
  EXPECT_LE(read().bytes, 100U);
  EXPECT_EQ(read_all(), 0U);
  EXPECT_EQ(read().error, ECONNRESET);
  Bytes room(10);
  EXPECT_EQ(here_->read(room).error, ECONNRESET);
}

TEST_F(VirtualStreams, a_dead_path_holds_bytes_back_and_nobody_answers_after_a_while) {
  accept();
  one_.break_path(two_);
  const std::size_t sent = write(100);
  pass(24s);
  EXPECT_FALSE(here_->is_unanswered());
  pass(2s);
  EXPECT_TRUE(here_->is_unanswered());
  EXPECT_EQ(read().outcome, Outcome::blocked);
  one_.repair_path(two_);
  pass(1ms);
  EXPECT_EQ(read_all(), sent);
  EXPECT_FALSE(here_->is_unanswered());
}

TEST_F(VirtualStreams, without_a_way_back_bytes_arrive_and_are_unanswered) {
  accept();
  two_.break_path(one_);
  const std::size_t sent = write(100);
  pass(26s);
  EXPECT_EQ(read_all(), sent);
  EXPECT_TRUE(here_->is_unanswered());
  two_.repair_path(one_);
  pass(1ms);
  EXPECT_FALSE(here_->is_unanswered());
}

TEST_F(VirtualStreams, a_slow_link_brings_so_many_bytes_in_a_second) {
  accept();
  two_.limit_rate(1000);
  std::size_t sent = 0;
  while (sent < 5000) sent += write(5000 - sent);
  pass(2s);
  EXPECT_LE(read_all(), 2000U + 1000U);
  pass(4s);
}

TEST_F(VirtualStreams, a_dead_process_ends_its_connections_and_refuses_others) {
  accept();
  const std::size_t sent = write(100);
  pass(1ms);
  here_.reset();
  one_.kill();
  pass(1ms);
  EXPECT_EQ(read_all(), sent);
  EXPECT_EQ(read().outcome, Outcome::ended);
}

TEST(VirtualStreamsTrace, the_same_seed_gives_the_same_bytes_at_the_same_times) {
  const auto trace = [](std::uint64_t seed) {
    class Run : public VirtualStreams {
    public:
      explicit Run(std::uint64_t number) : VirtualStreams(number) {
        accept();
        for (int i = 0; i < 100; ++i, pass(20us)) {
          write(3000);
          (void)read();
        }
      }
      void TestBody() override {}
      [[nodiscard]] std::uint64_t hash() const { return world_.trace_hash(); }
    };
    return Run(seed).hash();
  };
  EXPECT_EQ(trace(1), trace(1));
  EXPECT_NE(trace(1), trace(2));
}

} // namespace
} // namespace fanin::net
