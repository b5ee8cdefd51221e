// Keeps of a built batch what its filter accepted: the fragments that its streams carry, and what
// the filter has to say of its events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/layout.hpp"

namespace fanin::builder {

// What a filter has to say of one event: bytes in FilterResults::bytes.
struct FilterResult {
  EventNumber event = 0;
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
  std::uint32_t crc32c = 0;
};

struct FilterResults {
  std::vector<FilterResult> of_events; // ascending
  std::vector<std::byte> bytes;
};

// Pages of the heap for results, each freed with its last view. Thread: its views'.
class ResultPages final : public memory::PageHome {
public:
  // `write` fills it.
  template <class Write>
  [[nodiscard]] memory::View make(std::uint32_t size, const Write& write) {
    auto* const page = new HeapPage;
    page->bytes.resize(size);
    bytes_ += size;
    page->data = page->bytes.data();
    page->home = this;
    memory::View view{memory::PageRef{page}, 0, size};
    write(std::span{page->bytes});
    return view;
  }

  // Of those that are not written yet.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

private:
  struct HeapPage : memory::Page {
    std::vector<std::byte> bytes;
  };
  void put(memory::Page* page) override {
    auto* const made = static_cast<HeapPage*>(page);
    bytes_ -= made->bytes.size();
    delete made;
  }
  std::uint64_t bytes_ = 0;
};

struct Selected {
  std::uint32_t rejected = 0; // events
  std::uint32_t undecided = 0;
};

// `wanted`: of each number in the batch's range the streams that want it (BatchDecisions). Fills
// batch.streams, and leaves of its pieces what is to be written. `pages` outlive the batch.
[[nodiscard]] Selected select(storage::BuiltBatch& batch, RunNumber run,
                              const std::vector<storage::StreamInfo>& streams,
                              std::span<const std::uint32_t> wanted, const FilterResults& results,
                              ResultPages& pages);

} // namespace fanin::builder
