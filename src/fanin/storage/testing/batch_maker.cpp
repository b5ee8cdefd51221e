#include "fanin/storage/testing/batch_maker.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include <fmt/core.h>

#include "fanin/base/random.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::storage::testing {

std::vector<std::byte> payload_of(EventNumber event, SourceId source, std::uint32_t size) {
  Random random(event * 1'000'003 + source);
  std::vector<std::byte> bytes(size);
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const auto word = random.next();
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
  }
  return bytes;
}

FragmentPlan varied_plan(EventNumber event, SourceId source) {
  Random random(event * 31 + source);
  return {.absent = false,
          .size = random.chance(1, 8) ? 0 : static_cast<std::uint32_t>(random.below(400))};
}

std::vector<SourceInfo> make_sources(std::size_t count) {
  std::vector<SourceInfo> sources;
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<SourceId>(10 * (i + 1));
    sources.push_back({.id = id,
                       .name = fmt::format("source-{}", id),
                       .readout_unit = fmt::format("ru{}", i % 2),
                       .required = true});
  }
  return sources;
}

BatchMaker::BatchMaker(std::vector<SourceInfo> sources, std::uint32_t pages,
                       std::uint32_t page_size)
    : sources_(std::move(sources)) {
  auto pool = memory::PagePool::make({.page_size = page_size, .pages = pages, .arena = {}});
  if (!pool) throw std::runtime_error(pool.error().text);
  pool_ = std::move(*pool);
}

memory::Loan BatchMaker::take() {
  auto loan = pool_->take();
  if (!loan) throw std::runtime_error("the test's page pool is empty");
  return loan;
}

BuiltBatch BatchMaker::make(std::uint64_t ticket, EventRange range, const Plan& plan,
                            Attempt attempt) {
  BuiltBatch batch;
  batch.ticket = ticket;
  batch.range = range;
  batch.attempt = attempt;
  for (auto source = sources_.rbegin(); source != sources_.rend(); ++source) {
    add_source(batch, source->id, plan);
  }
  return batch;
}

// Pages of table first, payload behind it, as a readout unit would fill them.
void BatchMaker::add_source(BuiltBatch& batch, SourceId source, const Plan& plan) {
  auto event = batch.range.first;
  while (event < batch.range.end) {
    const auto first = event;
    std::vector<wire::FragmentEntry> table;
    std::vector<std::byte> payload;
    while (event < batch.range.end) {
      const auto planned = plan(event, source);
      const auto room =
          (table.size() + 1) * sizeof(wire::FragmentEntry) + payload.size() + planned.size;
      if (room > pool_->page_size()) break;
      const auto bytes = payload_of(event, source, planned.size);
      table.push_back(
          {.size_and_flags = planned.size | (planned.absent ? wire::fragment_absent : 0U),
           .crc32c = wire::crc32c(bytes)});
      payload.insert(payload.end(), bytes.begin(), bytes.end());
      ++event;
    }
    if (table.empty()) {
      add_large(batch, event, source, plan(event, source).size);
      ++event;
      continue;
    }
    const auto loan = take();
    const auto table_size = static_cast<std::uint32_t>(table.size() * sizeof(wire::FragmentEntry));
    std::memcpy(loan.data(), table.data(), table_size);
    if (!payload.empty()) std::memcpy(loan.data() + table_size, payload.data(), payload.size());
    batch.pieces.push_back(
        {.source = source,
         .range = {.first = first, .end = event},
         .table = loan.freeze(0, table_size),
         .payload = loan.freeze(table_size, static_cast<std::uint32_t>(payload.size())),
         .payload_offset = 0});
  }
}

void BatchMaker::add_large(BuiltBatch& batch, EventNumber event, SourceId source,
                           std::uint32_t size) {
  const auto bytes = payload_of(event, source, size);
  const wire::FragmentEntry entry{.size_and_flags = size, .crc32c = wire::crc32c(bytes)};
  const auto room = pool_->page_size() - static_cast<std::uint32_t>(sizeof entry);
  for (std::uint32_t offset = 0; offset < size; offset += room) {
    const auto part = std::min(room, size - offset);
    const auto loan = take();
    std::memcpy(loan.data(), &entry, sizeof entry);
    std::memcpy(loan.data() + sizeof entry, bytes.data() + offset, part);
    batch.pieces.push_back({.source = source,
                            .range = {.first = event, .end = event + 1},
                            .table = loan.freeze(0, sizeof entry),
                            .payload = loan.freeze(sizeof entry, part),
                            .payload_offset = offset});
  }
}

std::string python_with_h5py() {
  for (const std::string python : {"python3", "/usr/bin/python3"}) {
    if (std::system((python + " -c 'import h5py' 2>/dev/null").c_str()) == 0) return python;
  }
  return {};
}

TemporaryDirectory::TemporaryDirectory(const std::string& parent) {
  const char* const chosen = std::getenv("TMPDIR");
  const std::string base = !parent.empty() ? parent : chosen != nullptr ? chosen : "/tmp";
  path_ = base + "/fanin-test-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

} // namespace fanin::storage::testing
