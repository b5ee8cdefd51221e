#include "fanin/source/sls_source.hpp"

#include <algorithm>
#include <utility>

#include "fanin/base/try.hpp"

namespace fanin::source {
namespace {
constexpr std::uint64_t image_bytes_per_read = 256U << 10;
}

Result<std::unique_ptr<SlsSource>> SlsSource::make(const SlsOptions& options) {
  SlsReader reader = FANIN_TRY(SlsReader::open(options.files, options.image_size));
  return std::make_unique<SlsSource>(options, std::move(reader));
}

SlsSource::SlsSource(const SlsOptions& options, SlsReader reader)
    : reader_(std::move(reader)), numbers_(options.replay, 64), pacer_(options.replay.rate_hz) {}

Result<> SlsSource::start(EventNumber first_event, Time now) {
  numbers_.start(first_event);
  pacer_.start(now);
  pending_ = false;
  failure_ = {};
  return reader_.rewind();
}

Result<SlsSource::Step> SlsSource::next_step() {
  const bool moved = FANIN_TRY(reader_.next());
  if (moved) {
    number_ = numbers_.number(reader_.header().frame);
    return Step::record;
  }
  if (!numbers_.seen_any()) {
    return reader_.file().wrong(0, "the file has no record");
  }
  if (!numbers_.next_pass()) return Step::end;
  FANIN_TRY(reader_.rewind());
  return Step::pass_end;
}

Result<WriteOutcome> SlsSource::write_record(FragmentQueue& queue) {
  const auto size = static_cast<std::uint32_t>(reader_.record_size());
  const WriteOutcome outcome = queue.begin(number_, size);
  if (outcome != WriteOutcome::ok) return outcome;
  for (std::uint64_t done = 0; done < size;) {
    const auto part = queue.room();
    if (auto good = reader_.read(done, part); !good) {
      queue.cancel();
      return std::unexpected(good.error());
    }
    queue.advance(static_cast<std::uint32_t>(part.size()));
    done += part.size();
  }
  queue.end();
  return WriteOutcome::ok;
}

ReadResult SlsSource::read(FragmentQueue& queue, Time now) {
  pacer_.wait_for_run(queue.numbered(), now);
  const auto failed = [this](Error error) -> ReadResult {
    failure_ = std::unexpected(error);
    return {.state = ReadState::failed, .error = std::move(error)};
  };
  if (!failure_) return {.state = ReadState::failed, .error = failure_.error()};
  if (numbers_.exhausted()) return {.state = ReadState::finished};
  for (std::uint64_t bytes = 0; bytes < image_bytes_per_read;) {
    if (!pending_) {
      const auto step = next_step();
      if (!step) return failed(step.error());
      if (*step == Step::end) return {.state = ReadState::finished};
      if (*step == Step::pass_end) break;
      bytes += sls_header_size;
      if (!numbers_.wanted(number_)) continue;
      packets_full_ = std::max(packets_full_, reader_.header().packets_caught);
      if (reader_.header().packets_caught < packets_full_) ++packets_lost_;
      pending_ = true;
    }
    if (!numbers_.is_jump() && !pacer_.due(number_, now)) {
      return {.state = ReadState::waiting, .wake = pacer_.wake(number_, now)};
    }
    const auto outcome = write_record(queue);
    if (!outcome) return failed(outcome.error());
    if (*outcome == WriteOutcome::full) return {};
    pending_ = false;
    bytes += reader_.record_size();
  }
  return {.state = ReadState::more};
}

std::vector<SourceCounter> SlsSource::counters() const {
  return {{"passes", numbers_.pass()}, {"records_with_lost_packets", packets_lost_}};
}

} // namespace fanin::source
