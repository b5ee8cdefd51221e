#include "fanin/wire/super_fragment.hpp"

namespace fanin::wire {

bool SuperHead::check(std::uint64_t size, std::size_t sources) {
  const std::uint64_t head_size = super_head_size(sources);
  if (size < head_size || head_.size() < head_size) return false;
  std::memcpy(&header_, head_.data(), sizeof header_);
  const SuperHeader expected;
  if (header_.magic != expected.magic || header_.version != expected.version ||
      header_.count != sources || header_.event >= event_number_end) {
    return false;
  }
  std::uint64_t payload = 0;
  for (std::size_t i = 0; i < sources; ++i) {
    const SuperEntry one = entry(i);
    if (i > 0 && one.source <= entry(i - 1).source) return false;
    if (one.entry.absent() && one.entry.size() != 0) return false;
    payload += one.entry.size();
  }
  return payload == size - head_size;
}

} // namespace fanin::wire
