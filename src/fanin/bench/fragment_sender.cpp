#include "fanin/bench/fragment_sender.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "fanin/base/try.hpp"
#include "fanin/bench/bare_socket.hpp"
#include "fanin/bench/payload.hpp"
#include "fanin/source/receive_format.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::bench {
namespace {

constexpr std::size_t portion = 256U << 10; // bytes that are prepared at a time

// The connection of one source. All its fragments have the same payload.
class SourceStream {
public:
  SourceStream(Descriptor socket, SourceId source, const SenderOptions& options,
               const PayloadSource& payload)
      : socket_(std::move(socket)), record_(sizeof(source::ReceiveHeader) + options.size) {
    header_.source = source;
    header_.size = options.size;
    if (options.checksum) {
      header_.flags = source::receive_has_crc;
      header_.crc32c = wire::crc32c(payload.bytes());
    }
    bytes_.resize(std::max<std::size_t>(1, portion / record_) * record_);
    for (std::size_t at = 0; at < bytes_.size(); at += record_)
      payload.fill(bytes_.data() + at + sizeof header_);
    source::ReceivePreface preface;
    preface.source = source;
    begin_.resize(sizeof preface);
    std::memcpy(begin_.data(), &preface, sizeof preface);
    left_ = begin_;
  }

  [[nodiscard]] int descriptor() const { return socket_.get(); }

  // What is taken at once. False: nothing was. None: the readout unit has closed.
  std::optional<bool> send_some() {
    if (left_.empty()) number();
    const ssize_t sent =
        send(socket_.get(), left_.data(), left_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (sent <= 0) return std::nullopt;
    left_ = left_.subspan(static_cast<std::size_t>(sent));
    return true;
  }

private:
  void number() {
    for (std::size_t at = 0; at < bytes_.size(); at += record_) {
      std::memcpy(bytes_.data() + at, &header_, sizeof header_);
      ++header_.event;
    }
    left_ = bytes_;
  }

  Descriptor socket_;
  std::size_t record_; // bytes of a fragment with its header
  source::ReceiveHeader header_; // of the next one
  std::vector<std::byte> begin_;
  std::vector<std::byte> bytes_;
  std::span<const std::byte> left_;
};

} // namespace

// A source is not read while others lack data for the same events, so none may be waited for alone.
Result<> send_fragments(const SenderOptions& options, ProcessStats& stats) {
  const PayloadSource payload(options.size);
  std::vector<SourceStream> streams;
  std::vector<pollfd> room;
  for (const std::string& url : options.urls) {
    auto socket = FANIN_TRY(connect_to(url, {}));
    streams.emplace_back(std::move(socket), options.first + static_cast<SourceId>(streams.size()),
                         options, payload);
    room.push_back({streams.back().descriptor(), POLLOUT, 0});
  }
  stats.state = ProcessStats::State::running;
  while (true) {
    bool any = false;
    for (SourceStream& stream : streams) {
      const auto taken = stream.send_some();
      if (!taken) return {};
      any = any || *taken;
    }
    if (!any) (void)poll(room.data(), room.size(), -1);
  }
}

} // namespace fanin::bench
