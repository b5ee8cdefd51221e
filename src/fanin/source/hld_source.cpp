#include "fanin/source/hld_source.hpp"

#include <fmt/format.h>

#include <utility>

#include "fanin/base/try.hpp"

namespace fanin::source {
namespace {
constexpr std::uint64_t file_bytes_per_read = 256U << 10; // of the file

int key_bits(HldKey key) { return key == HldKey::trigger ? 24 : 32; }
} // namespace

Result<std::unique_ptr<HldSource>> HldSource::make(const HldOptions& options) {
  if (options.address == hld_trailer_address) {
    return fail(ErrorKind::usage,
                fmt::format("address {:#06x} is the trailer that the recording event builder adds, "
                            "not a source",
                            options.address));
  }
  FileWindow file = FANIN_TRY(FileWindow::open(options.path));
  return std::make_unique<HldSource>(options, std::move(file));
}

HldSource::HldSource(const HldOptions& options, FileWindow file)
    : options_(options),
      reader_(std::move(file)),
      numbers_(options.replay, key_bits(options.key)),
      pacer_(options.replay.rate_hz) {}

Result<> HldSource::start(EventNumber first_event, Time now) {
  reader_.rewind();
  numbers_.start(first_event);
  pacer_.start(now);
  in_event_ = numbered_ = pending_ = pending_skip_ = false;
  return {};
}

// Moves on to the next block of our address, to the end of an event that has a number, to the end
// of the file, or as far as `scan_end`.
Result<HldSource::Step> HldSource::next_step(std::uint64_t scan_end) {
  while (reader_.position() < scan_end) {
    if (!in_event_) {
      const bool moved = FANIN_TRY(reader_.next_event());
      if (!moved) return Step::file_end;
      in_event_ = true;
      numbered_ = false;
    }
    const bool found = FANIN_TRY(reader_.next_block());
    if (!found) {
      in_event_ = false;
      if (numbered_) return Step::event_end;
      continue;
    }
    number_ = number_of_block();
    numbered_ = true;
    if (reader_.block().address == options_.address) return Step::block;
  }
  return Step::enough;
}

// Also of other addresses' blocks: all sources of the file must see the same numbers.
EventNumber HldSource::number_of_block() {
  if (options_.key == HldKey::sequence) return numbers_.number(reader_.event().sequence);
  return numbers_.number(reader_.subevent().trigger);
}

ReadResult HldSource::read(FragmentQueue& queue, Time now) {
  pacer_.wait_for_run(queue.numbered(), now);
  if (numbers_.exhausted()) return {.state = ReadState::finished};
  const std::uint64_t scan_end = reader_.position() + file_bytes_per_read;
  while (true) {
    if (!pending_ && !pending_skip_) {
      const auto step = next_step(scan_end);
      if (!step) return {.state = ReadState::failed, .error = step.error()};
      if (*step == Step::enough) return {.state = ReadState::more};
      if (*step == Step::file_end) {
        if (!numbers_.seen_any()) {
          const auto wrong =
              reader_.file().wrong(reader_.position(), "the file ends without any data");
          return {.state = ReadState::failed, .error = wrong.error()};
        }
        if (!numbers_.next_pass()) return {.state = ReadState::finished};
        reader_.rewind();
        return {.state = ReadState::more};
      }
      if (!numbers_.wanted(number_)) continue;
      pending_ = *step == Step::block;
      pending_skip_ = *step == Step::event_end;
    }
    const bool jumps = numbers_.is_jump();
    if (!jumps && !pacer_.due(number_, now)) {
      return {.state = ReadState::waiting, .wake = pacer_.wake(number_, now)};
    }
    if (pending_) {
      if (queue.write(number_, reader_.block().bytes) == WriteOutcome::full) return {};
      pending_ = false;
    } else {
      // Nothing more of this event: it is answered, with or without a fragment of ours.
      if (!jumps && !queue.skip_to(number_ + 1)) return {};
      pending_skip_ = false;
    }
  }
}

std::vector<SourceCounter> HldSource::counters() const { return {{"passes", numbers_.pass()}}; }

} // namespace fanin::source
