// The receiving half of a TCP connection without its socket: says where the next bytes of the
// stream are to be read to, and hands out the messages that are complete. Fed from a socket by
// TcpTransport and with arbitrary bytes in arbitrary pieces by its tests and the fuzz target.
//
// One copy, from the kernel to where the message stays:
//   - A message whose header is known has its region in a page reserved, and the rest of it is read
//     straight into that region. The header after it goes to a small buffer in the same read.
//   - For small messages the same read goes on into the free end of the pool's current page.
//     What is complete there is handed out in place; the region of a message that is not is
//     reserved around its beginning. Only a beginning at the end of a page is moved.
// Between messages it owns no page. Within a message it owns only the message's region. While it
// starves it owns nothing: what has come of the message waits on the heap, at most a quarter of a
// page.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "fanin/base/state.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/tcp/frame.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/unidentified_peers.hpp"

namespace fanin::net::tcp {

class StreamReceiver {
public:
  static constexpr std::size_t pieces_max = 3;

  enum class Step : std::uint8_t {
    opened, // the peer's preface has come
    message,
    need_bytes, // prepare(), read, received()
    starved, // the next message cannot be taken yet: come back when can_go_on()
    ended, // the peer said that nothing more follows; see peer_has_taken()
    failed // see reason(); the stream cannot go on
  };

  // `max_message`: what this side takes, at most half a page of the pool.
  StreamReceiver(PageFiller& filler, std::uint32_t max_message)
      : filler_(&filler), max_message_(max_message) {}

  // Takes the next step in what was received; a message is a view of the pool's pages.
  [[nodiscard]] Step next(memory::View& message);

  // After need_bytes: where to read, as pieces in order; returns how many. 0: starved.
  [[nodiscard]] std::size_t prepare(std::span<iovec, pieces_max> pieces);
  // After prepare(): how many bytes were read; 0 is allowed.
  void received(std::size_t bytes);

  // Whether next() and prepare() could go on after `starved`.
  [[nodiscard]] bool can_go_on() const { return may_take() && filler_->can_reserve(length_); }
  // Until mark_identified(), a message over unidentified_message_max is `starved` before anything
  // is reserved for it, nothing is read ahead, and messages lie in pages of `filler`.
  void mark_unidentified(PageFiller& filler) {
    identified_ = false;
    filler_ = &filler;
  }
  void mark_identified(PageFiller& filler) {
    identified_ = true;
    filler_ = &filler;
  }
  // Gives up the region of the current message if at most 1/16 of a page of it has come; these
  // bytes wait on the heap. With `check_stall`, also if no more than 1/16 of a page has come since
  // the last such check. False: no region was given up.
  bool give_up_region(bool check_stall = false);
  // It has read ahead into a page, and has not looked at all of that. Nobody else can fill the page
  // meanwhile.
  [[nodiscard]] bool holds_page() const { return static_cast<bool>(ahead_); }
  // Bytes of the current message.
  [[nodiscard]] std::uint32_t unfinished() const { return phase_ == Phase::payload ? have_ : 0; }
  [[nodiscard]] const Preface& peer() const { return peer_; }
  // After `ended`: so many of this side's messages.
  [[nodiscard]] std::uint64_t peer_has_taken() const { return peer_has_taken_; }
  [[nodiscard]] CloseReason reason() const { return reason_; }
  // Forgets everything that it has received.
  void reset();

  // From here on it only looks for the end: all other functions but discard() are over.
  void take_no_more();
  // The next bytes of the stream. Gives need_bytes, ended or failed.
  [[nodiscard]] Step discard(std::span<const std::byte> bytes);

private:
  enum class Phase : std::uint8_t { preface, prefix, payload, taken, over };
  friend constexpr bool may_follow(Phase from, Phase to) {
    switch (to) {
    case Phase::preface: return false;
    case Phase::prefix: return from == Phase::preface || from == Phase::payload;
    case Phase::payload:
    case Phase::taken: return from == Phase::prefix;
    case Phase::over: return true;
    }
    return false;
  }

  [[nodiscard]] Step step_preface();
  [[nodiscard]] std::optional<Step> step_prefix();
  [[nodiscard]] std::optional<Step> parse_prefix();
  [[nodiscard]] Step parse_taken();
  void take_ahead();
  [[nodiscard]] Step step_payload(memory::View& message);
  void place_beginning();
  void save(const std::byte* beginning, std::uint32_t size);
  void expect_prefix(std::uint32_t length);
  Step fail(CloseReason reason);
  void give_back_ahead();
  [[nodiscard]] std::uint32_t read_ahead() const;
  [[nodiscard]] bool claim_region();
  [[nodiscard]] bool may_take() const { return identified_ || length_ <= unidentified_message_max; }

  PageFiller* filler_;
  std::uint32_t max_message_;
  bool identified_ = true;
  CheckedState<Phase> phase_ = Phase::preface;
  CloseReason reason_ = CloseReason::local;
  Preface peer_;
  std::uint64_t peer_has_taken_ = 0;
  // Padding and header of the next message, or the preface, or the number behind the last header.
  std::array<std::byte, preface_size> prefix_{};
  std::uint32_t prefix_have_ = 0;
  std::uint32_t prefix_need_ = preface_size;
  // The current message: its region begins at region_at_.
  std::uint32_t length_ = 0;
  std::uint32_t have_ = 0;
  std::uint32_t have_at_check_ = 0; // have_ at the last check for a stall
  std::uint32_t region_at_ = 0;
  memory::Loan region_; // empty until the region is reserved
  std::unique_ptr<std::byte[]> saved_; // until then, the have_ bytes that have come; or none
  // Read ahead of the current message: [ahead_at_, ahead_end_) has not been looked at.
  memory::Loan ahead_;
  std::uint32_t ahead_at_ = 0;
  std::uint32_t ahead_end_ = 0;
};

} // namespace fanin::net::tcp
