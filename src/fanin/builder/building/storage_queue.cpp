#include "fanin/builder/building/storage_queue.hpp"

#include <algorithm>
#include <iterator>

namespace fanin::builder {

StorageQueue::~StorageQueue() {
  end();
  for (auto& sink : old_sinks_) loop_.remove(*sink);
}

void StorageQueue::begin(std::unique_ptr<storage::EventSink> sink,
                         storage::EventSink::OnCommit on_commit,
                         storage::EventSink::OnSetAside on_set_aside) {
  end();
  sink_ = std::move(sink);
  sink_->on_commit(std::move(on_commit));
  sink_->on_set_aside(std::move(on_set_aside));
  sink_->on_failure([this](const Error& error, bool fatal) {
    log_(fatal ? LogLevel::error : LogLevel::warning, error.text);
    if (fatal) failure_ = error;
  });
  loop_.add(*sink_);
}

void StorageQueue::end() {
  waiting_.clear();
  if (!sink_) return;
  sink_->on_commit([](const storage::Committed&) {});
  sink_->on_set_aside([](std::uint64_t) {});
  sink_->on_failure([log = log_](const Error& error, bool fatal) {
    log(fatal ? LogLevel::error : LogLevel::warning, error.text);
  });
  sink_->finish();
  old_sinks_.push_back(std::move(sink_));
}

void StorageQueue::submit() {
  while (!waiting_.empty()) {
    if (sink_->submit(waiting_.front()->batch) == storage::SubmitOutcome::busy) return;
    waiting_.pop_front();
  }
}

void StorageQueue::forget_finished() {
  std::erase_if(old_sinks_, [this](const auto& sink) {
    if (!sink->finished()) return false;
    loop_.remove(*sink);
    return true;
  });
}

std::vector<std::string> StorageQueue::files() const {
  std::vector<std::string> files;
  for (const auto& sink : old_sinks_) std::ranges::copy(sink->files(), std::back_inserter(files));
  if (sink_) std::ranges::copy(sink_->files(), std::back_inserter(files));
  return files;
}

std::string StorageQueue::waits_for() const {
  std::string text;
  for (const auto& sink : old_sinks_) {
    if (text = sink->waits_for(); !text.empty()) return text;
  }
  return sink_ ? sink_->waits_for() : text;
}

} // namespace fanin::builder
