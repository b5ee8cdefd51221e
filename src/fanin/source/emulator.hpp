/// \file
/// A source that generates its fragments. Sizes and contents depend only on the options, the source
/// id and the event number, so that any process can compute what a fragment must be. They are equal
/// for all compilers and platforms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/source/pacer.hpp"
#include "fanin/source/source.hpp"

namespace fanin::source {

inline constexpr std::uint32_t emulated_size_default = 1024; ///< bytes

struct FixedSize {
  std::uint32_t bytes = emulated_size_default;
};
struct UniformSize { // both ends included
  std::uint32_t min_bytes = 0;
  std::uint32_t max_bytes = 0;
};
struct LogNormalSize { // mean and standard deviation of the size itself, not of its logarithm
  double mean_bytes = 0; ///< > 0
  double sigma_bytes = 0; ///< >= 0
};
using SizeDistribution = std::variant<FixedSize, UniformSize, LogNormalSize>;

enum class EmulatedContent : std::uint8_t {
  pattern, ///< can be checked, see check_emulated_payload
  untouched ///< what the page held before; for simulated memory, with options.checksum off
};

struct EmulatorOptions {
  SourceId source = 0;
  SizeDistribution size = FixedSize{}; ///< sizes are cut to the queue's fragment_max
  double rate_hz = 0; ///< 0: as fast as the queue takes fragments
  std::uint64_t seed = 1;
  EventNumber first_event = 0;
  std::uint64_t event_count = 0; ///< after so many events it is finished; 0: no limit
  EmulatedContent content = EmulatedContent::pattern;
};

/// Draws the size of each event. Log-normal sizes come from a table of equally likely quantiles,
/// scaled so that their mean is exact.
class FANIN_INTERNAL_API SizeTable {
public:
  SizeTable(const SizeDistribution& distribution, SourceId source, std::uint64_t seed);

  [[nodiscard]] std::uint32_t operator()(EventNumber event) const {
    switch (kind_) {
    case Kind::fixed: return base_;
    case Kind::uniform:
      return base_ + static_cast<std::uint32_t>(((hash(event) >> 32) * span_) >> 32);
    case Kind::quantiles: return quantiles_[hash(event) >> (64 - quantile_bits)];
    }
    return base_;
  }

private:
  enum class Kind : std::uint8_t { fixed, uniform, quantiles };
  static constexpr int quantile_bits = 12;

  [[nodiscard]] std::uint64_t hash(EventNumber event) const {
    std::uint64_t x = (event + key_) * 0x9e3779b97f4a7c15U;
    x ^= x >> 32;
    return x * 0xd6e8feb86659fd93U;
  }
  void make_quantiles(const LogNormalSize& size);

  Kind kind_ = Kind::fixed;
  std::uint32_t base_ = 0;
  std::uint64_t span_ = 0; // of uniform sizes: max - min + 1
  std::uint64_t key_;
  std::vector<std::uint32_t> quantiles_;
};

class FANIN_INTERNAL_API Emulator final : public Source {
public:
  explicit Emulator(const EmulatorOptions& options);

  [[nodiscard]] Result<> start(EventNumber first_event, Time now) override;
  [[nodiscard]] ReadResult read(FragmentQueue& queue, Time now) override;
  [[nodiscard]] bool on_demand() const override { return !pacer_.paced(); }

  [[nodiscard]] std::uint32_t size_of(EventNumber event) const { return sizes_(event); }

private:
  EmulatorOptions options_;
  SizeTable sizes_;
  EventNumber next_ = 0;
  EventNumber end_ = 0; // of options.event_count
  Pacer pacer_;
};

/// The contents of a fragment: event number (u64), source (u32) and size (u32), little-endian, then
/// pseudo-random bytes that depend on event and source; below 16 bytes only these.
FANIN_INTERNAL_API void fill_emulated_payload(std::span<std::byte> payload, EventNumber event,
                                              SourceId source);
[[nodiscard]] bool check_emulated_payload(std::span<const std::byte> payload, EventNumber event,
                                          SourceId source);

} // namespace fanin::source
