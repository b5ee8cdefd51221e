// One block of anonymous memory, placed on a NUMA node and backed by huge pages if asked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fanin/base/result.hpp"

namespace fanin::memory {

enum class HugePages : std::uint8_t {
  off,         // ordinary pages
  transparent, // ask the kernel (madvise); harmless where it declines
  required     // from the reserved pool; an error where it is too small
};

struct ArenaOptions {
  int numa_node = -1;                            // -1: wherever the first touch falls
  HugePages huge_pages = HugePages::transparent;
  bool reserve_only = false;                     // address space without memory, for simulation
};

// Whether this host could give so much now. Errors: as of Arena::make().
[[nodiscard]] Result<> check_arena(std::size_t size, const ArenaOptions& options);

class Arena {
public:
  Arena() = default;
  // Populated at once, so that a limit shows as an error now. Errors: exhausted, unsupported.
  [[nodiscard]] static Result<Arena> make(std::size_t size, const ArenaOptions& options);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace fanin::memory
