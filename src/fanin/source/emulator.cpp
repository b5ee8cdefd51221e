#include "fanin/source/emulator.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "fanin/base/random.hpp"
#include "fanin/memory/copy.hpp"
#include "fanin/source/plain_math.hpp"

// Compiled with -ffp-contract=off, as plain_math.cpp.

namespace fanin::source {
namespace {

constexpr std::uint32_t emulated_bytes_per_read = 256U << 10;
constexpr std::uint32_t cost_per_fragment = 64; // in bytes; bounds a call on tiny fragments

// The pseudo-random bytes repeat after `period`, which stays in the first-level cache. They are
// kept twice, so that a period from any offset is contiguous.
constexpr std::size_t period = 4096;
constexpr std::size_t header_size = 16;

constexpr std::array<std::byte, 2 * period> make_pattern() {
  std::array<std::byte, 2 * period> bytes{};
  for (std::size_t i = 0; i < period; i += 8) {
    const std::uint64_t word = mix_bits((i + 1) * 0x9e3779b97f4a7c15U);
    for (std::size_t k = 0; k < 8; ++k) {
      bytes[i + k] = bytes[period + i + k] = static_cast<std::byte>((word >> (8 * k)) & 0xff);
    }
  }
  return bytes;
}
alignas(64) constexpr auto pattern = make_pattern();

// Where the pattern of a fragment begins: moves by a cache line with each event.
std::size_t pattern_offset(EventNumber event, SourceId source) {
  return static_cast<std::size_t>((event + std::uint64_t{source} * 7) * 64) % period;
}

struct PayloadHeader {
  EventNumber event;
  SourceId source;
  std::uint32_t size;
};
static_assert(sizeof(PayloadHeader) == header_size);

// `from` is the position of `part` in its fragment.
void fill_pattern(std::span<std::byte> part, std::size_t from, EventNumber event, SourceId source) {
  std::size_t at = (pattern_offset(event, source) + from) % period;
  while (part.size() > period) {
    memory::copy(part.data(), std::span{pattern}.subspan(at, period));
    part = part.subspan(period);
  }
  memory::copy(part.data(), std::span{pattern}.subspan(at, part.size()));
}

// The fragment that is open: the first of a page, or longer than one. A longer one begins a page,
// so its header is in the first part.
void write_open(FragmentQueue& queue, std::uint32_t size, EventNumber event, SourceId source,
                bool fill) {
  if (const auto room = queue.room(); room.size() == size) {
    if (fill) fill_emulated_payload(room, event, source);
    queue.advance(size);
    return;
  }
  for (std::uint32_t done = 0; done < size;) {
    const auto part = queue.room();
    if (fill) fill_pattern(part, done, event, source);
    if (fill && done == 0) {
      const PayloadHeader header{event, source, size};
      std::memcpy(part.data(), &header, header_size);
    }
    queue.advance(static_cast<std::uint32_t>(part.size()));
    done += static_cast<std::uint32_t>(part.size());
  }
}

} // namespace

void fill_emulated_payload(std::span<std::byte> payload, EventNumber event, SourceId source) {
  fill_pattern(payload, 0, event, source);
  if (payload.size() >= header_size) {
    const PayloadHeader header{event, source, static_cast<std::uint32_t>(payload.size())};
    std::memcpy(payload.data(), &header, header_size);
  }
}

bool check_emulated_payload(std::span<const std::byte> payload, EventNumber event,
                            SourceId source) {
  std::size_t done = 0;
  if (payload.size() >= header_size) {
    const PayloadHeader header{event, source, static_cast<std::uint32_t>(payload.size())};
    if (std::memcmp(payload.data(), &header, header_size) != 0) return false;
    done = header_size;
  }
  while (done < payload.size()) {
    const std::size_t at = (pattern_offset(event, source) + done) % period;
    const std::size_t size = std::min(payload.size() - done, period);
    if (std::memcmp(payload.data() + done, pattern.data() + at, size) != 0) return false;
    done += size;
  }
  return true;
}

SizeTable::SizeTable(const SizeDistribution& distribution, SourceId source, std::uint64_t seed)
    : key_(mix_bits(seed ^ mix_bits(source + 1))) {
  if (const auto* fixed = std::get_if<FixedSize>(&distribution)) {
    base_ = fixed->bytes;
  } else if (const auto* uniform = std::get_if<UniformSize>(&distribution)) {
    FANIN_ASSERT(uniform->min_bytes <= uniform->max_bytes);
    kind_ = Kind::uniform;
    base_ = uniform->min_bytes;
    span_ = std::uint64_t{uniform->max_bytes} - uniform->min_bytes + 1;
  } else {
    kind_ = Kind::quantiles;
    make_quantiles(std::get<LogNormalSize>(distribution));
  }
}

void SizeTable::make_quantiles(const LogNormalSize& size) {
  FANIN_ASSERT(size.mean_bytes > 0 && size.sigma_bytes >= 0);
  const double relative = size.sigma_bytes / size.mean_bytes;
  const double width = std::sqrt(detail::plain_log(1 + relative * relative));
  constexpr std::size_t count = std::size_t{1} << quantile_bits;
  std::vector<double> sizes(count);
  double sum = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const double p = (static_cast<double>(k) + 0.5) / static_cast<double>(count);
    sizes[k] = detail::plain_exp(width * detail::normal_quantile(p));
    sum += sizes[k];
  }
  const double scale = size.mean_bytes * static_cast<double>(count) / sum;
  quantiles_.reserve(count);
  for (const double s : sizes) {
    const double bytes = std::min(s * scale + 0.5, double{wire::fragment_size_mask});
    quantiles_.push_back(static_cast<std::uint32_t>(bytes));
  }
}

Emulator::Emulator(const EmulatorOptions& options)
    : options_(options),
      sizes_(options.size, options.source, options.seed),
      next_(options.first_event),
      end_(options.event_count == 0 ? ~EventNumber{0} : options.first_event + options.event_count),
      pacer_(options.rate_hz) {}

Result<> Emulator::start(EventNumber first_event, Time now) {
  next_ = std::max(options_.first_event, first_event);
  pacer_.start(now);
  return {};
}

ReadResult Emulator::read(FragmentQueue& queue, Time now) {
  pacer_.wait_for_run(queue.numbered(), now);
  const EventNumber due = std::min(end_, pacer_.due_until(next_, now));
  const std::uint32_t size_max = queue.options().fragment_max;
  const bool fill = options_.content == EmulatedContent::pattern;
  std::uint32_t budget = emulated_bytes_per_read;
  while (next_ < due) {
    const std::uint32_t size = std::min(sizes_(next_), size_max);
    const auto payload = [&](std::span<std::byte> room) {
      if (fill) fill_emulated_payload(room, next_, options_.source);
    };
    if (!queue.write_next(next_, size, payload)) {
      const WriteOutcome outcome = queue.begin(next_, size);
      if (outcome == WriteOutcome::full) return {};
      if (outcome == WriteOutcome::ok) {
        write_open(queue, size, next_, options_.source, fill);
        queue.end();
      }
    }
    ++next_;
    if (budget < size + cost_per_fragment) return {.state = ReadState::more};
    budget -= size + cost_per_fragment;
  }
  if (next_ >= end_) return {.state = ReadState::finished};
  return {.state = ReadState::waiting, .wake = pacer_.wake(next_, now)};
}

} // namespace fanin::source
