// One block of memory without a name, placed on a NUMA node and backed by huge pages if asked, for
// this process alone or to be mapped, read-only, by others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fanin/base/descriptor.hpp"
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
  bool shared = false; // other processes can be given it to read (a sealed memfd)
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
  // A number that no other arena of this process has or had.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  // Of a shared arena: what others map. Its size cannot change, and nobody else can write. -1:
  // none.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Descriptor descriptor_;
  std::uint64_t id_ = 0;
};

} // namespace fanin::memory
