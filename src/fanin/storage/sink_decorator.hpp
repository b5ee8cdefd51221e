// A sink above another one. It does what the other one does, unless a derived class does otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fanin/storage/event_sink.hpp"

namespace fanin::storage {

class SinkDecorator : public EventSink {
public:
  void run_began(std::int64_t unix_ns) override { inner_->run_began(unix_ns); }
  void run_ended() override { inner_->run_ended(); }
  void finish() override { inner_->finish(); }
  void abandon() override { inner_->abandon(); }
  [[nodiscard]] bool finished() const override { return inner_->finished(); }
  [[nodiscard]] std::vector<std::string> files() const override { return inner_->files(); }
  [[nodiscard]] std::size_t file_count() const override { return inner_->file_count(); }
  [[nodiscard]] std::uint64_t bytes_written() const override { return inner_->bytes_written(); }
  [[nodiscard]] std::string waits_for() const override { return inner_->waits_for(); }

  bool poll() override { return inner_->poll(); }
  bool arm() override { return inner_->arm(); }
  [[nodiscard]] int descriptor() const override { return inner_->descriptor(); }

protected:
  // Passes on what `inner` reports.
  explicit SinkDecorator(std::unique_ptr<EventSink> inner) : inner_(std::move(inner)) {
    inner_->on_commit([this](const Committed& committed) { commit_(committed); });
    inner_->on_set_aside([this](std::uint64_t ticket) { set_aside_(ticket); });
    inner_->on_failure([this](const Error& error, bool fatal) { failure_(error, fatal); });
  }
  [[nodiscard]] EventSink& inner() const { return *inner_; }

private:
  std::unique_ptr<EventSink> inner_;
};

} // namespace fanin::storage
