#include "fanin/net/shm/lent_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

namespace fanin::net::shm {

namespace {

constexpr std::uint64_t size_most = std::uint64_t{1} << 46; // half of a process's address space

std::unexpected<Error> not_mapped(std::uint64_t size, int error) {
  if (error != ENOMEM && error != EAGAIN && error != ENFILE)
    return fail_errno(ErrorKind::malformed, "memory that cannot be mapped", error);
  return fail_errno(ErrorKind::exhausted,
                    fmt::format("{} of its memory cannot be mapped here, and its messages wait: "
                                "raise `ulimit -v`, or the kernel's vm.max_map_count",
                                format_size(size)),
                    error);
}

} // namespace

Result<Mapping> Mapping::make(const Descriptor& file, std::uint64_t size) {
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return fail(ErrorKind::malformed, "memory that is not sealed against shrinking");
  struct stat status{};
  if (fstat(file.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) < size)
    return fail(ErrorKind::malformed, "memory that is smaller than was announced");
  if (size > size_most)
    return fail(ErrorKind::malformed,
                fmt::format("{} of memory, which no process can map", format_size(size)));
  void* const address = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return not_mapped(size, errno);
  Mapping mapping;
  mapping.data_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(address), Unmap{size});
  return mapping;
}

void Unmap::operator()(std::byte* data) const { munmap(data, size); }

Result<> LentMemory::add(const Descriptor& file, std::uint64_t size) {
  if (memories_.size() == memories_max)
    return fail(ErrorKind::malformed, "announced too many shared memories");
  auto mapping = FANIN_TRY(Mapping::make(file, size));
  memories_.push_back(std::move(mapping));
  return {};
}

bool LentMemory::contains(const Piece& piece) const {
  if (piece.memory >= memories_.size()) return false;
  const std::uint64_t size = memories_[piece.memory].size();
  return piece.offset <= size && piece.length <= size - piece.offset;
}

void LentMemory::lend(std::span<const Piece> pieces, Return as,
                      std::span<memory::View, pieces_max> views) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(messages_.size()));
    for (memory::Page& page : messages_.emplace_back().pages) {
      page.home = this;
      page.index = free_.back();
    }
  }
  Message& message = messages_[free_.back()];
  free_.pop_back();
  message.as = as;
  message.held = static_cast<std::uint32_t>(pieces.size());
  ++lent_;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    FANIN_ASSERT(contains(pieces[i]));
    // Views of a peer's page only ever read it.
    message.pages[i].data =
        const_cast<std::byte*>(memories_[pieces[i].memory].data() + pieces[i].offset);
    views[i] = {memory::PageRef(&message.pages[i]), 0, pieces[i].length};
  }
}

void LentMemory::put(memory::Page* page) {
  Message& message = messages_[page->index];
  FANIN_ASSERT(message.held > 0);
  if (--message.held > 0) return;
  free_.push_back(page->index);
  --lent_;
  if (given_back_) {
    given_back_(message.as);
  } else if (lent_ == 0) {
    delete this;
  }
}

void LentMemory::leave() {
  given_back_ = nullptr;
  if (lent_ == 0) delete this;
}

} // namespace fanin::net::shm
