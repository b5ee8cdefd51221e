// The end of a link, over a connection that takes as much as the test says.
#include "fanin/storage/slice_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fanin::storage {
namespace {

using namespace std::chrono_literals;
using Outcome = net::Transfer::Outcome;

constexpr SourceId linked_source = 0x500;

// The slice's end.
struct FarEnd {
  std::vector<std::byte> heard; // over the latest connection
  std::vector<std::byte> says;
  std::size_t room = 4096;
  int error = 0; // of writing
  bool was_told_the_end = false;
  bool has_closed = false;
  int connections = 0;
};

class LimitedStream final : public net::Stream {
public:
  explicit LimitedStream(FarEnd& far) : Stream(Descriptor{}), far_(far) {}
  void end_writing() override { far_.was_told_the_end = true; }
  void end_reading() override {}
  bool has_ended() const override { return false; }
  bool peer_has_left() const override { return false; }
  bool is_unanswered() const override { return false; }
  void reset_on_close() override {}

private:
  net::Transfer read_parts(std::span<const iovec> room) override {
    const std::size_t bytes = std::min(room.front().iov_len, far_.says.size());
    if (bytes == 0) return {.outcome = far_.has_closed ? Outcome::ended : Outcome::blocked};
    std::memcpy(room.front().iov_base, far_.says.data(), bytes);
    far_.says.erase(far_.says.begin(), far_.says.begin() + static_cast<std::ptrdiff_t>(bytes));
    return {.bytes = bytes};
  }
  net::Transfer write_parts(std::span<const iovec> bytes, bool /*more_follows*/) override {
    if (far_.error != 0) return {.outcome = Outcome::failed, .error = far_.error};
    const std::size_t taken = std::min(bytes.front().iov_len, far_.room);
    if (taken == 0) return {.outcome = Outcome::blocked};
    const auto* const first = static_cast<const std::byte*>(bytes.front().iov_base);
    far_.heard.insert(far_.heard.end(), first, first + taken);
    far_.room -= taken;
    return {.bytes = taken};
  }

  FarEnd& far_;
};

class IdleWatch final : public net::StreamWatch {
public:
  IdleWatch() : StreamWatch(Descriptor{}) {}
  void poll() override {}
};

class LimitedStreams final : public net::Streams {
public:
  explicit LimitedStreams(FarEnd& far) : far_(far) {}
  Result<std::vector<net::Address>> addresses_to_listen(const net::Url&) override {
    return std::vector<net::Address>{};
  }
  Result<std::unique_ptr<net::StreamListener>> listen(const net::Url&,
                                                      std::span<const net::Address>) override {
    return nullptr;
  }
  Result<std::unique_ptr<net::Stream>> connect(const net::Address&) override {
    ++far_.connections;
    far_.heard.clear();
    return std::make_unique<LimitedStream>(far_);
  }
  Result<std::unique_ptr<net::StreamWatch>> make_watch() override {
    return std::make_unique<IdleWatch>();
  }

private:
  FarEnd& far_;
};

class LeavingLink : public ::testing::Test {
protected:
  // The slice is connected, has answered, and has nothing to announce.
  LeavingLink() {
    connect();
    link_.leave();
  }
  void connect() {
    poll();
    const auto answer = source::with_own_checksum(source::ReceiveReply{.source = linked_source});
    far_.says.assign(answer.begin(), answer.end());
    far_.heard.clear();
  }
  void poll() {
    std::vector<SliceLink::Done> done;
    (void)link_.poll(done);
  }
  void expect_left() {
    const auto pause = source::with_own_checksum(
        source::ReceiveHeader{.kind = source::ReceiveKind::pause, .source = linked_source});
    EXPECT_TRUE(std::ranges::equal(far_.heard, pause));
    EXPECT_TRUE(far_.was_told_the_end);
    EXPECT_TRUE(link_.leaving()) << "until the slice has read it";
    far_.has_closed = true;
    poll();
    EXPECT_FALSE(link_.leaving());
  }

  VirtualClock clock_;
  net::Loop loop_{clock_};
  FarEnd far_;
  LimitedStreams streams_{far_};
  IdleWatch watch_;
  SliceLink link_{{.name = "slice",
                   .url = net::Url::parse("tcp://127.0.0.1:7").value(),
                   .source = linked_source,
                   .give_up = 10s},
                  loop_,
                  streams_,
                  watch_};
};

TEST_F(LeavingLink, a_slice_of_another_run_is_named_with_both_runs) {
  std::string log;
  SliceLink link{{.name = "slice 1",
                  .url = net::Url::parse("tcp://127.0.0.1:7").value(),
                  .source = linked_source,
                  .run = {.number = 5, .id = 50},
                  .give_up = 10s,
                  .log = [&](LogLevel, std::string_view text) { log += text; }},
                 loop_,
                 streams_,
                 watch_};
  far_.says.clear();
  far_.error = ECONNREFUSED; // it begins a little later than the group
  clock_.advance(10s);
  std::vector<SliceLink::Done> done;
  (void)link.poll(done);
  EXPECT_THAT(log, ::testing::HasSubstr("no connection to slice 1 (Connection refused)"));
  far_.error = 0;
  clock_.advance(10s);
  (void)link.poll(done);
  const auto preface = source::with_own_checksum(source::GroupPreface{
      .reliable = {.common = {.form = source::ReceiveForm::group, .source = linked_source},
                   .sender = 1},
      .run_id = 50,
      .run = 5});
  EXPECT_TRUE(std::ranges::equal(far_.heard, preface));
  const auto answer = source::with_own_checksum(source::ReceiveReply{
      .status = source::ReceiveStatus::other_run, .source = linked_source, .end = 6});
  far_.says.assign(answer.begin(), answer.end());
  (void)link.poll(done);
  EXPECT_THAT(log, ::testing::HasSubstr("no connection to slice 1 (it builds run 6, and this group "
                                        "is in run 5: give both the same `run.number`)"));
}

TEST_F(LeavingLink, tells_the_slice_when_there_is_room_again) {
  far_.room = 0;
  poll();
  EXPECT_FALSE(far_.was_told_the_end);
  EXPECT_TRUE(link_.leaving());
  far_.room = 10;
  poll();
  EXPECT_EQ(far_.heard.size(), 10U);
  EXPECT_FALSE(far_.was_told_the_end);
  far_.room = 4096;
  poll();
  EXPECT_EQ(far_.connections, 1);
  expect_left();
}

TEST_F(LeavingLink, tells_the_slice_over_another_connection_if_one_fails) {
  far_.room = 10;
  poll();
  far_.error = ECONNRESET;
  poll();
  EXPECT_TRUE(link_.leaving());
  far_.error = 0;
  far_.room = 4096;
  clock_.advance(1s);
  connect();
  poll();
  EXPECT_EQ(far_.connections, 2);
  expect_left();
}

} // namespace
} // namespace fanin::storage
