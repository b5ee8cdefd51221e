#include "fanin/storage/forward_sink.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"

namespace fanin::storage {

Result<std::unique_ptr<ForwardSink>> ForwardSink::make(net::Loop& loop, net::Streams& streams,
                                                       ForwardSinkOptions options) {
  auto watch = FANIN_TRY(streams.make_watch());
  std::ranges::sort(options.sources, {}, &SourceInfo::id);
  return std::unique_ptr<ForwardSink>(
      new ForwardSink(loop, streams, std::move(options), std::move(watch)));
}

ForwardSink::ForwardSink(net::Loop& loop, net::Streams& streams, ForwardSinkOptions options,
                         std::unique_ptr<net::StreamWatch> watch)
    : loop_(loop), streams_(streams), options_(std::move(options)), watch_(std::move(watch)) {
  if (!options_.superseded) options_.superseded = [] { return false; };
}

void ForwardSink::run_began(std::int64_t /*unix_ns*/) {
  for (std::size_t i = options_.builder; i < options_.slices.size(); i += options_.builders) {
    links_.push_back(std::make_unique<SliceLink>(
        SliceLinkOptions{.name = fmt::format("slice {} at {}", i, options_.slices[i].text()),
                         .url = options_.slices[i],
                         .source = options_.source,
                         .sender = options_.sender,
                         .run = {.number = options_.run, .id = options_.run_id},
                         .first = options_.first,
                         .give_up = options_.give_up,
                         .log = options_.log},
        loop_, streams_, *watch_));
  }
  timer_.start(loop_, loop_.now());
}

SubmitOutcome ForwardSink::submit(BuiltBatch& batch) {
  const auto of = static_cast<std::uint32_t>(options_.slices.size());
  const auto number = static_cast<std::uint32_t>(batch.range.first / options_.block % of);
  FANIN_ASSERT(batch.range.first / options_.block == (batch.range.end - 1) / options_.block);
  FANIN_ASSERT(number % options_.builders == options_.builder);
  if (links_.empty()) return SubmitOutcome::busy; // abandoned
  SliceLink& link = *links_[number / options_.builders];
  if (link.waiting() >= options_.depth) return SubmitOutcome::busy;
  link.add(std::make_unique<SuperFragments>(
      std::exchange(batch, {}),
      SuperFragments::Options{.sources = options_.sources,
                              .run = options_.run,
                              .slice = {.number = number, .of = of, .block = options_.block},
                              .source = options_.source,
                              .integrity = options_.integrity}));
  timer_.start(loop_, loop_.now());
  return SubmitOutcome::accepted;
}

void ForwardSink::run_ended() {
  for (const auto& link : links_) link->leave();
  timer_.start(loop_, loop_.now());
}

bool ForwardSink::finished() const {
  return finishing_ && std::ranges::all_of(links_, [](const auto& link) {
           return link->waiting() == 0 && !link->leaving();
         });
}

std::string ForwardSink::waits_for() const {
  const SliceLink* longest = nullptr;
  for (const auto& link : links_) {
    if (link->waiting() == 0) continue;
    if (longest == nullptr || link->stuck_since() < longest->stuck_since()) longest = link.get();
  }
  return longest == nullptr ? std::string{} : longest->waits_for();
}

bool ForwardSink::poll() {
  if (finishing_ && !links_.empty() && options_.superseded()) links_.clear();
  watch_->poll();
  bool more = false;
  Time due = never;
  done_.clear();
  for (const auto& link : links_) {
    more = link->poll(done_) || more;
    due = std::min(due, link->due());
  }
  timer_.set(loop_, due);
  for (const auto& done : done_) {
    bytes_ += done.bytes;
    if (commit_) commit_({.ticket = done.ticket, .undelivered = done.undelivered});
  }
  return more || !done_.empty();
}

} // namespace fanin::storage
