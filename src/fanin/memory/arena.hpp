/// \file
/// One block of anonymous memory, on a NUMA node and on huge pages if asked. It belongs to this
/// process alone, or other processes can map it read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"

namespace fanin::memory {

enum class HugePages : std::uint8_t {
  off, ///< ordinary pages
  transparent, ///< ask the kernel (madvise); it may decline
  required ///< from the kernel's reserved huge pages; an error if there are too few
};

struct ArenaOptions {
  int numa_node = -1; ///< -1: the node of the processor that touches it first
  HugePages huge_pages = HugePages::transparent;
  bool reserve_only = false; ///< address space without memory, for simulation
  bool shared = false; ///< other processes can map it to read (a sealed memfd)
};

/// Checks whether this host could give so much memory now. Errors: as of Arena::make().
[[nodiscard]] FANIN_API Result<> check_arena(std::size_t size, const ArenaOptions& options);

class FANIN_API Arena {
public:
  /// The memory is populated at once, so that a limit is an error here and not later. Errors:
  /// exhausted, unsupported.
  [[nodiscard]] static Result<std::unique_ptr<Arena>> make(std::size_t size,
                                                           const ArenaOptions& options);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// A number that no other arena of this process has, or had before.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  /// The file descriptor of a shared arena, which others map. Its size cannot change, and nobody
  /// else can write. -1: the arena is not shared.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

private:
  Arena() = default;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Descriptor descriptor_;
  std::uint64_t id_ = 0;
};

} // namespace fanin::memory
