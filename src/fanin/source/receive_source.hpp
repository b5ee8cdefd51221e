/// \file
/// Takes fragments from a TCP connection: any program that uses the format of
/// docs/receive-format.md can be a source. It listens at its own address, and reads one connection
/// after the other, each up to its end; those that come meanwhile wait in the listen queue.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/log.hpp"
#include "fanin/base/log_limiter.hpp"
#include "fanin/net/tcp_socket.hpp"
#include "fanin/net/url.hpp"
#include "fanin/source/receive_decoder.hpp"
#include "fanin/source/source.hpp"

namespace fanin::source {

struct ReceiveOptions {
  SourceId source = 0;
  net::Url listen; ///< tcp://host:port; port 0: any free one
  std::string listen_from; ///< "run.toml:12: readout.0.source.1.listen", for messages; may be empty
  bool check = true; ///< compare the sender's checksums
  LogFunction log; ///< gets lines about senders that connect or leave, a few in a second; may be
                   ///< empty
  std::function<Result<std::vector<net::Address>>(const net::Url&)> look_up; ///< else the host's
                                                                             ///< name service
};

class ReceiveSource final : public Source {
public:
  /// Errors: usage (not a tcp address), internal. Does not listen yet.
  [[nodiscard]] static Result<std::unique_ptr<ReceiveSource>> make(ReceiveOptions options);

  /// Looks the name up at which it listens, and blocks meanwhile. Errors: not_found; disconnected,
  /// if asking again may help.
  [[nodiscard]] Result<> prepare() override;
  /// The first call begins to listen, until a sender says that the data have ended. Later calls
  /// keep the sender. Errors: refused (port in use), and those of prepare(), which it calls if
  /// nobody has.
  [[nodiscard]] Result<> start(EventNumber first_event, Time now) override;
  [[nodiscard]] ReadResult read(FragmentQueue& queue, Time now) override;
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }
  [[nodiscard]] std::string listening_url() const override;
  /// connections, refused (they waited when the data ended), bad_checksum, and one for each
  /// ReceiveFault.
  [[nodiscard]] std::vector<SourceCounter> counters() const override;

private:
  ReceiveSource(ReceiveOptions options, Descriptor epoll);
  [[nodiscard]] Result<> listen();
  [[nodiscard]] Descriptor accept(net::Address& peer) const;
  [[nodiscard]] bool accept_next(Time now);
  [[nodiscard]] Time make_way(FragmentQueue& queue, Time now);
  void look_for_events();
  void receive(FragmentQueue& queue, Time now);
  void close_connection(FragmentQueue& queue, Time now, std::string_view why,
                        ReceiveFault found = ReceiveFault::none);
  void end_data(FragmentQueue& queue, Time now);
  void say_bad_checksums(const FragmentQueue& queue, Time now);

  ReceiveOptions options_;
  std::vector<net::Address> addresses_; // at which it listens; the first that is free
  Descriptor epoll_; // with the listener and the connection, both edge-triggered
  Descriptor listener_;
  Descriptor connection_;
  std::string peer_;
  ReceiveDecoder decoder_;
  std::vector<std::byte> staging_; // what was received and does not belong to the open fragment
  std::size_t staged_from_ = 0;
  std::size_t staged_to_ = 0;
  bool readable_ = false; // the socket may have more
  bool restarted_ = false; // since the last read()
  bool others_wait_ = false; // in the listen queue, as far as is known
  bool waiting_said_ = false; // that others wait for the end of this connection
  bool ended_ = false; // the sender said so
  std::uint64_t connections_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t bad_checksums_said_ = 0;
  Time quiet_since_{}; // the connection: when its last bytes came
  Time quiet_until_{}; // about bad checksums
  LogLimiter comings_; // connected, disconnected
  LogLimiter warnings_;
  std::array<std::uint64_t, receive_faults> faults_{};
};

} // namespace fanin::source
