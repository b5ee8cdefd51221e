// For tests: built batches whose bytes can be computed again from event and source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fanin/memory/page_pool.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/layout.hpp"

namespace fanin::storage::testing {

// Nothing (the source has no fragment), or the size of the fragment in bytes.
struct FragmentPlan {
  bool absent = false;
  std::uint32_t size = 0;
};
using Plan = std::function<FragmentPlan(EventNumber event, SourceId source)>;

// The payload of a fragment: any size, any content, the same each time.
[[nodiscard]] std::vector<std::byte> payload_of(EventNumber event, SourceId source,
                                                std::uint32_t size);
// 0 to 400 bytes, zero now and then.
[[nodiscard]] FragmentPlan varied_plan(EventNumber event, SourceId source);

// Sources 10, 20, 30...: "source-10" on "ru0", "source-20" on "ru1"; all required.
[[nodiscard]] std::vector<SourceInfo> make_sources(std::size_t count);

// Thread: one.
class BatchMaker {
public:
  explicit BatchMaker(std::vector<SourceInfo> sources, std::uint32_t pages = 256,
                      std::uint32_t page_size = 16384);
  // A batch of all sources, in pages of the maker's pool; sources in falling order, to be unkind.
  // Fragments larger than a page span pieces. Fails the caller's test if the pool is empty.
  [[nodiscard]] BuiltBatch make(std::uint64_t ticket, EventRange range,
                                const Plan& plan = varied_plan, Attempt attempt = 0);
  [[nodiscard]] const std::vector<SourceInfo>& sources() const { return sources_; }
  [[nodiscard]] memory::PagePool& pool() { return *pool_; }
  [[nodiscard]] bool all_home() const { return pool_->available() == pool_->pages(); }

private:
  void add_source(BuiltBatch& batch, SourceId source, const Plan& plan);
  void add_large(BuiltBatch& batch, EventNumber event, SourceId source, std::uint32_t size);
  [[nodiscard]] memory::Loan take();

  std::vector<SourceInfo> sources_;
  std::unique_ptr<memory::PagePool> pool_;
};

// A Python that can import h5py; empty: none.
[[nodiscard]] std::string python_with_h5py();

// A directory of its own under $TMPDIR or /tmp, removed with all that is in it.
class TemporaryDirectory {
public:
  explicit TemporaryDirectory(const std::string& parent = {});
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

private:
  std::string path_;
};

} // namespace fanin::storage::testing
