// Hostile nodes in virtual time: a hostile peer connects to an event manager, a builder unit or, in
// place of the event manager, to all nodes, says a right hello or none, and sends whatever the
// input has. As a builder unit of a shaped system it says it to the readout unit that connects.
// Nobody may crash, and without the hostile peer's part in it the run goes on.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fanin/builder/testing/make_system.hpp"
#include "virtual/virtual_system.hpp"

namespace {

using namespace fanin;
using namespace fanin::builder;

class HostilePeer final : public net::Handler {
public:
  void on_event(net::Transport& transport, net::Event& event) override {
    if (event.kind == net::EventKind::connected || event.kind == net::EventKind::accepted) {
      link = {&transport, event.connection};
    } else if (event.kind == net::EventKind::closed) {
      link = {};
    }
  }
  net::Link link;
};

enum class Play : std::uint8_t {
  raw_manager,
  readout,
  builder,
  raw_builder,
  data,
  manager,
  grants
};

void send(net::Link link, memory::PagePool& pool, std::span<const std::byte> bytes) {
  auto page = pool.take();
  if (!page || !link) return;
  const auto size = std::min<std::size_t>(bytes.size(), page.size() / 2);
  if (size != 0) std::memcpy(page.data(), bytes.data(), size);
  const auto view = page.freeze(0, static_cast<std::uint32_t>(size));
  (void)link.send({&view, 1});
}

void say_hello(Play play, net::Link link, memory::PagePool& pool, const System& system) {
  wire::Hello hello;
  hello.system_digest = system.digest();
  hello.capacity = hello.metadata = 1U << 20;
  std::string text;
  switch (play) {
  case Play::readout:
    hello.role = wire::Role::readout_unit;
    hello.node = 1;
    text = "ru1\n";
    break;
  case Play::builder:
    hello.role = wire::Role::builder_unit;
    hello.node = 1;
    text = "bu1\nsim://bu1";
    break;
  case Play::grants:
    hello.role = wire::Role::builder_unit;
    hello.node = 1;
    text = "bu1\nsim://hostile";
    break;
  case Play::data:
    hello.role = wire::Role::data;
    hello.node = 1;
    hello.run = 1;
    hello.incarnation = hello.peer_incarnation = 1;
    break;
  default: return;
  }
  hello.text_size = static_cast<std::uint32_t>(text.size());
  ControlBatcher batcher{link, pool};
  batcher.append(hello, std::string_view{text});
  if (play == Play::readout) batcher.append(wire::Ready{1});
  batcher.flush();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const auto play = static_cast<Play>(data[0] % 7);
  std::span rest{reinterpret_cast<const std::byte*>(data + 1), size - 1};

  const auto pool = memory::PagePool::make(
                        {.page_size = 16384,
                         .pages = 64,
                         .arena = {.huge_pages = memory::HugePages::off, .reserve_only = true}})
                        .value();
  HostilePeer hostile;
  fanin::testing::VirtualSystemOptions options;
  options.system = builder::testing::make_system(2, 2);
  options.system.trigger_rate_hz = 500;
  if (play == Play::grants) {
    options.system.shaping = {.policy = shaping::Policy::barrel_shifter, .carrier = 4096};
    options.system.shaping.window = options.system.shaping.window_least(4); // two rails
  }
  fanin::testing::VirtualSystem system{options};
  auto& node = system.world().add_node(play == Play::manager ? "fuzz" : "hostile");
  const bool to_builder = play == Play::raw_builder || play == Play::data;

  system.start_event_manager();
  system.start_readout(0);
  system.start_builder(0);
  if (play != Play::readout && play != Play::data) system.start_readout(1);
  const auto target = net::Url::parse(to_builder ? "sim://bu0" : "sim://evm").value();
  const net::ConnectionOptions connection{.receive_pool = pool.get(), .handler = &hostile};
  if (play == Play::manager) {
    system.kill_event_manager();
    system.manager_node().restart();
    (void)system.manager_node().transport().listen(target, connection);
  } else {
    (void)node.transport().connect(target, connection);
    if (play == Play::grants) {
      (void)node.transport().listen(net::Url::parse("sim://hostile").value(), connection);
    }
  }
  system.run_for(std::chrono::milliseconds{20});
  if (hostile.link) say_hello(play, hostile.link, *pool, options.system);
  system.run_for(std::chrono::milliseconds{5});
  while (!rest.empty() && hostile.link) { // a 16-bit length before each message
    if (rest.size() < 2) break;
    std::uint16_t length = 0;
    std::memcpy(&length, rest.data(), 2);
    rest = rest.subspan(2);
    const auto message = rest.first(std::min<std::size_t>(length, rest.size()));
    send(hostile.link, *pool, message);
    rest = rest.subspan(message.size());
    system.run_for(std::chrono::milliseconds{1});
  }
  system.run_for(std::chrono::milliseconds{50});
  system.destroy_nodes();
  hostile.link.close(true);
  system.run_for(std::chrono::milliseconds{5});
  return 0;
}
