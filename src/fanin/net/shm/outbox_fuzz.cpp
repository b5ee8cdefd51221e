// An outbox full of arbitrary bytes, and arbitrary packets beside it: a peer that may write
// anything at any time must not make this process read outside of what it has mapped.
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "fanin/net/shm/shm.hpp"
#include "fanin/net/shm/testing/raw_peer.hpp"

namespace fanin::net {
namespace {

// Reads everything it is given, and keeps some of it.
class Reader final : public Handler {
public:
  void on_event(Transport& transport, Event& event) override {
    if (event.kind == EventKind::accepted) {
      const memory::Loan page = send_pool->take();
      if (page) (void)transport.send(event.connection, std::vector{page.freeze(0, 4096)});
    }
    for (const memory::View* view : {&event.message, &event.rest}) {
      for (const std::byte byte : view->bytes()) sum = sum * 31 + static_cast<unsigned>(byte);
    }
    if (event.kind == EventKind::message && kept.size() < 8) kept.push_back(event.message);
  }
  memory::PagePool* send_pool = nullptr;
  std::vector<memory::View> kept;
  unsigned sum = 0;
};

class World {
public:
  World() {
    receive_ = std::move(*memory::PagePool::make({.page_size = 8192, .pages = 16}));
    send_ = std::move(
        *memory::PagePool::make({.page_size = 8192, .pages = 4, .arena = {.shared = true}}));
    reader_.send_pool = send_.get();
    loop_.add(transport_);
    url_ = transport_.listening_url(*transport_.listen(
        {.scheme = "shm", .host = "fuzz"}, {.receive_pool = receive_.get(), .handler = &reader_}));
  }

  void run(const std::uint8_t* data, std::size_t size) {
    {
      shm::RawPeer peer(url_);
      if (size > 0 && data[0] != 0xff) { // or else the first packet is arbitrary
        peer.say_hello();
        peer.announce(memory_, 4096);
      }
      turns();
      // Rounds of bytes for the packet socket or the outbox.
      while (size >= 2) {
        const std::size_t take = std::min<std::size_t>(data[1] * 16U, size - 2);
        if (data[0] == 0xff) {
          peer.say(std::as_bytes(std::span(data + 2, take)),
                   {peer.file().get(), peer.wake().get()});
        } else {
          const std::size_t at = data[0] * 16U;
          std::memcpy(reinterpret_cast<char*>(&peer.outbox()) + at, data + 2,
                      std::min(take, sizeof(shm::Outbox) - at));
        }
        data += 2 + take;
        size -= 2 + take;
        turns();
      }
    }
    reader_.kept.clear();
    turns();
    turns();
    FANIN_ASSERT(receive_->available() == receive_->pages());
    FANIN_ASSERT(send_->available() == send_->pages());
  }

private:
  void turns() {
    for (int i = 0; i < 70; ++i) (void)loop_.turn(); // the kernel is asked every 64th time
  }
  MonotonicClock clock_;
  Loop loop_{clock_};
  std::unique_ptr<memory::PagePool> receive_;
  std::unique_ptr<memory::PagePool> send_;
  Reader reader_;
  ShmTransport transport_{loop_, {.copy_pool = 128U << 10}};
  Url url_;
  Descriptor memory_ = shm::make_sealed(4096);
};

} // namespace
} // namespace fanin::net

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fanin::net::World world;
  world.run(data, size);
  return 0;
}
