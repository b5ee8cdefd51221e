/// \file
/// Connects to a host as often as it is asked to: to its addresses in turn, first the one that
/// answered last. When all have failed, they are looked up again. Until there is an answer, those
/// that are known are tried: the name service may be away too, or slow.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fanin/net/loop.hpp"
#include "fanin/net/resolver.hpp"
#include "fanin/net/stream/stream.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net {

/// Thread: the loop's.
class FANIN_INTERNAL_API StreamConnector {
public:
  /// `on_answer`: the name service has answered, later than it was asked. Both the loop, whose
  /// resolver is asked, and `streams` outlive it.
  StreamConnector(Loop& loop, Streams& streams, Url url, std::function<void()> on_answer);

  /// Begins to connect. Null: no address is known, and on_answer comes. Errors: not_found;
  /// disconnected, if asking again may help.
  [[nodiscard]] Result<std::unique_ptr<Stream>> connect();
  /// The last attempt has failed: the next one is for the next address.
  void failed();
  /// The last attempt was right.
  void answered();

private:
  void ask();

  Loop& loop_;
  Streams& streams_;
  Url url_;
  Resolver::Question question_; // for addresses_
  std::optional<Resolver::Found> found_; // the answer, which the next attempt takes
  std::vector<Address> addresses_;
  std::size_t address_ = 0; // in use, or the next one
  std::size_t failed_ = 0; // addresses in turn, since one answered or they were found
};

} // namespace fanin::net
