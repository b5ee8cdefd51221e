// A process that forks: what its child does with the copies of its sockets.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/message/testing/two_ends.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::message {
namespace {

using namespace std::chrono_literals;
using testing::NetworkKind;
using testing::TwoEnds;

// Those that another process can reach.
std::vector<NetworkKind> networks_of_processes() {
  std::vector<NetworkKind> all = testing::networks_and_datagrams();
  std::erase_if(all, [](const NetworkKind& kind) {
    return kind.name == "inproc" || kind.name == "sim" || kind.name == "strict";
  });
  return all;
}

// Runs `work` in a child, whose expectations count as well.
pid_t in_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  return child;
}

void wait_for(pid_t child) {
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read_end = Descriptor(ends[0]);
    write_end = Descriptor(ends[1]);
  }
  Descriptor read_end;
  Descriptor write_end;
};

class Fork : public ::testing::TestWithParam<NetworkKind> {
protected:
  // Runs the loop itself, which then waits for what wakes it. False: in vain.
  static bool run_until(Context& context, const std::function<bool()>& done) {
    struct Watch final : net::Service {
      Watch(net::Loop& watched, const std::function<bool()>& when) : loop(watched), is_done(when) {
        loop.add(*this);
      }
      ~Watch() override { loop.remove(*this); }
      bool poll() override {
        if (is_done()) loop.stop();
        return false;
      }
      net::Loop& loop;
      const std::function<bool()>& is_done;
    } const watch(context.loop(), done);
    net::Timer end([&] { context.stop(); });
    end.start(context.loop(), context.loop().now() + 20s);
    context.run();
    return done();
  }
};

TEST_P(Fork, a_listener_hears_all_peers_after_a_child_has_destroyed_its_copy) {
  constexpr std::uint64_t peers = 100;
  ContextOptions options = TwoEnds::small_pages();
  options.receive_pool.pages = 2 * peers + 32;
  const auto network = GetParam().make();
  auto context = network->make(options);
  auto receiver = HighThroughputReceiver::listen(*context, network->address()).value();
  const net::Url url = receiver->url();
  EXPECT_TRUE(run_until(*context, [] { return true; }));
  net::Timer soon([&] { context->stop(); });
  soon.start(context->loop(), context->loop().now() + 1ms);
  context->run(); // and waits in it
  wait_for(in_child([&] {
    receiver.reset();
    context.reset();
  }));

  const pid_t other = in_child([&] {
    const auto own = Context::make(TwoEnds::small_pages()).value();
    for (std::uint64_t i = 0; i < peers; ++i) {
      const auto sender = HighThroughputSender::connect(*own, url).value();
      const std::byte one{1};
      ASSERT_TRUE(run_until(*own, [&] { return sender->connected(); }));
      ASSERT_EQ(sender->send({&one, 1}), net::SendOutcome::accepted);
      sender->close();
      ASSERT_TRUE(own->drain());
    }
  });
  std::uint64_t messages = 0;
  Message message;
  EXPECT_TRUE(run_until(*context, [&] {
    while (receiver->recv(message)) ++messages;
    return messages == peers;
  })) << messages;
  EXPECT_EQ(receiver->counters().connections, peers);
  message.release();
  int status = -1;
  while (::waitpid(other, &status, WNOHANG) == 0) context->turn(); // its last one closes
  EXPECT_EQ(status, 0);
}

TEST_P(Fork, what_was_accepted_arrives_although_a_child_has_closed_its_copies) {
  constexpr std::uint64_t count = 1000;
  TwoEnds ends(GetParam());
  auto receiver = HighThroughputReceiver::listen(ends.server(), ends.address()).value();
  auto sender = HighThroughputSender::connect(ends.client(), receiver->url()).value();
  ASSERT_TRUE(ends.until([&] { return sender->connected(); }));
  Message message;
  std::uint64_t received = 0;
  const auto receive = [&] {
    while (receiver->recv(message)) {
      EXPECT_EQ(testing::pattern(500, received),
                std::vector(message.bytes().begin(), message.bytes().end()));
      ++received;
    }
  };
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto bytes = testing::pattern(500, i);
    ASSERT_TRUE(ends.until([&] {
      receive();
      return sender->send(bytes) == net::SendOutcome::accepted;
    }));
  }
  wait_for(in_child([&] {
    sender->close();
    receiver->close();
    EXPECT_FALSE(ends.client().drain()); // it cannot know
    sender.reset();
    receiver.reset();
  }));
  sender->close();
  EXPECT_TRUE(ends.until([&] {
    receive();
    return received == count;
  })) << received;
  message.release();
  EXPECT_EQ(receiver->counters().connections, 1U);
}

TEST_P(Fork, a_message_that_is_kept_stays_although_a_child_has_released_its_copy) {
  TwoEnds ends(GetParam());
  auto receiver = HighThroughputReceiver::listen(ends.server(), ends.address()).value();
  auto sender = HighThroughputSender::connect(ends.client(), receiver->url()).value();
  ASSERT_TRUE(ends.until([&] { return sender->connected(); }));
  const auto first = testing::pattern(5000, 1);
  ASSERT_EQ(sender->send(first), net::SendOutcome::accepted);
  Message kept;
  ASSERT_TRUE(ends.until([&] { return receiver->recv(kept); }));
  wait_for(in_child([&] {
    kept.release();
    receiver.reset();
  }));
  Message message;
  for (std::uint64_t i = 0; i < 200; ++i) { // more than there are pages
    const auto bytes = testing::pattern(5000, 2 + i);
    ASSERT_TRUE(ends.until([&] { return sender->send(bytes) == net::SendOutcome::accepted; }));
    ASSERT_TRUE(ends.until([&] { return receiver->recv(message); }));
  }
  EXPECT_EQ(std::vector(kept.bytes().begin(), kept.bytes().end()), first);
}

TEST_P(Fork, a_child_that_destroys_its_copy_of_a_publisher_takes_no_subscriber_away) {
  TwoEnds ends(GetParam());
  auto publisher = Publisher::listen(ends.server(), ends.address()).value();
  std::uint64_t heard = 0;
  const auto subscriber =
      Subscriber::make(ends.client(), {.on_message = [&](Message&) { ++heard; }});
  (void)subscriber->subscribe(publisher->url(), 7, Mode::low_latency).value();
  ASSERT_TRUE(ends.until([&] { return publisher->has_subscriber(7); }));
  wait_for(in_child([&] {
    publisher->close();
    publisher.reset();
  }));
  const std::byte one{1};
  ASSERT_EQ(publisher->publish(7, {&one, 1}), net::SendOutcome::accepted);
  EXPECT_TRUE(ends.until([&] { return heard == 1; }));
  EXPECT_EQ(subscriber->counters().connections, 1U);
}

// A program that lives on would keep the port, and peers would not notice that this process is
// dead.
TEST_P(Fork, a_program_that_is_executed_gets_no_socket) {
  if (GetParam().name == "ofi_rxm")
    GTEST_SKIP() << "not applicable: it says nothing of its sockets";
  TwoEnds ends(GetParam());
  const auto receiver = HighThroughputReceiver::listen(ends.server(), ends.address()).value();
  const auto sender = HighThroughputSender::connect(ends.client(), receiver->url()).value();
  ASSERT_TRUE(ends.until([&] { return sender->connected(); }));
  Pipe input;
  Pipe output;
  posix_spawn_file_actions_t actions{};
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.read_end.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, output.write_end.get(), 1);
  std::string name = "cat";
  std::array<char*, 2> arguments{name.data(), nullptr};
  pid_t program = -1;
  ASSERT_EQ(posix_spawnp(&program, name.c_str(), &actions, nullptr, arguments.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  char byte = 'a'; // comes back from the program itself
  ASSERT_EQ(::write(input.write_end.get(), &byte, 1), 1);
  ASSERT_EQ(::read(output.read_end.get(), &byte, 1), 1);
  // What it has it has under the same number as this process.
  const auto folder = "/proc/" + std::to_string(program) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int descriptor = std::stoi(entry.path().filename().string());
    EXPECT_EQ(net::local_address(descriptor).port(), 0) << descriptor;
  }
  input.write_end.reset();
  wait_for(program);
}

INSTANTIATE_TEST_SUITE_P(Networks, Fork, ::testing::ValuesIn(networks_of_processes()),
                         [](const auto& network) { return network.param.name; });

} // namespace
} // namespace fanin::message
