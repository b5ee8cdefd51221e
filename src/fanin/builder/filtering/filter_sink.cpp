#include "fanin/builder/filtering/filter_sink.hpp"

#include <utility>

#include "fanin/base/assert.hpp"

namespace fanin::builder {

using storage::SubmitOutcome;

FilterSink::FilterSink(std::unique_ptr<storage::EventSink> inner, RunNumber run,
                       FilterServer& server)
    : SinkDecorator(std::move(inner)), run_(run), server_(server) {
  this->inner().on_commit([this](const storage::Committed& committed) {
    const auto found = storing_.find(committed.ticket);
    FANIN_ASSERT(found != storing_.end());
    const Selected selected = found->second;
    storing_.erase(found);
    commit_({committed.ticket, selected.rejected, selected.undecided});
  });
}

FilterSink::~FilterSink() { server_.forget(*this); }

SubmitOutcome FilterSink::submit(storage::BuiltBatch& batch) {
  FANIN_ASSERT(!finishing_);
  if (server_.full()) return SubmitOutcome::busy;
  ++undecided_;
  FilterJob::Owner& owner = *this;
  server_.add(std::make_unique<FilterJob>(std::exchange(batch, {}), run_, owner));
  return SubmitOutcome::accepted;
}

void FilterSink::decided(std::unique_ptr<FilterJob> job) {
  FANIN_ASSERT(undecided_ > 0);
  --undecided_;
  storing_[job->batch.ticket] =
      select(job->batch, run_, server_.system().streams, job->decisions.wanted(), job->results,
             server_.result_pages());
  to_store_.push_back(std::move(job->batch));
  store();
}

void FilterSink::store() {
  while (!to_store_.empty() && inner().submit(to_store_.front()) == SubmitOutcome::accepted)
    to_store_.pop_front();
  if (finishing_ && idle()) inner().finish();
}

bool FilterSink::poll() {
  if (!to_store_.empty()) store();
  return inner().poll();
}

void FilterSink::finish() {
  if (std::exchange(finishing_, true)) return;
  if (idle()) inner().finish();
}

std::string FilterSink::waits_for() const {
  std::string units = server_.waits_for();
  return units.empty() ? inner().waits_for() : units;
}

void FilterSink::abandon() {
  server_.forget(*this);
  undecided_ = 0;
  to_store_.clear();
  inner().abandon();
}

} // namespace fanin::builder
