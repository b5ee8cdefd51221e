// A sink for the tests. It writes a line for each event: number, streams, fragments, bytes and
// whether their checksums are good. From event `at` on it does something bad, in the builder unit
// `node` (empty: in all).
#include <algorithm>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "fanin/executive/plugin.hpp"
#include "fanin/storage/batch_events.hpp"
#include "fanin/wire/checksum.hpp"

namespace {

using namespace fanin;
using namespace fanin::storage;

enum class Action : std::uint8_t { none, throws, throws_later, fails, full };

struct Options {
  Action action = Action::none;
  std::uint64_t at = 0;
  std::string node;
  std::string until_path; // `full` lasts until it is there
};

class TestSink final : public EventSink {
public:
  TestSink(Options options, const SinkRun& run)
      : options_(std::move(options)),
        loop_(*run.loop),
        path_(fmt::format("{}/{}_{}.txt", run.folder, run.node, run.incarnation)),
        file_(path_),
        events_(run.sources) {
    if (!options_.node.empty() && options_.node != run.node) options_.action = Action::none;
    run.log(LogLevel::info, fmt::format("writes run {} to {}", run.run, path_));
  }

  [[nodiscard]] SubmitOutcome submit(BuiltBatch& batch) override {
    if (misbehaves(batch)) {
      if (options_.action == Action::throws) throw std::runtime_error("as it was told");
      if (options_.action == Action::full && !std::filesystem::exists(options_.until_path)) {
        full_ = true;
        return SubmitOutcome::busy;
      }
      bad_ = options_.action == Action::throws_later || options_.action == Action::fails;
    }
    batches_.push_back(std::exchange(batch, {}));
    return SubmitOutcome::accepted;
  }
  bool poll() override {
    if (full_) {
      if (!std::exchange(said_, true))
        failure_({ErrorKind::exhausted, "there is no room, as it was told"}, false);
      poll_timer_.start(loop_, loop_.now() + std::chrono::milliseconds{5});
    }
    full_ = false;
    const bool worked = !batches_.empty();
    for (; !batches_.empty(); batches_.pop_front()) {
      if (bad_ && options_.action == Action::throws_later)
        throw std::runtime_error("later, as it was told");
      if (bad_) return failure_({ErrorKind::internal, "it broke, as it was told"}, true), true;
      write(batches_.front());
      commit_({.ticket = batches_.front().ticket});
    }
    return worked;
  }
  bool arm() override { return batches_.empty() && !full_; }
  void finish() override { finishing_ = true; }
  [[nodiscard]] bool finished() const override { return finishing_ && batches_.empty(); }
  [[nodiscard]] std::vector<std::string> files() const override {
    return bytes_ == 0 ? std::vector<std::string>{} : std::vector{path_};
  }
  [[nodiscard]] std::size_t file_count() const override { return bytes_ == 0 ? 0 : 1; }
  [[nodiscard]] std::uint64_t bytes_written() const override { return bytes_; }

private:
  [[nodiscard]] bool misbehaves(const BuiltBatch& batch) const {
    return options_.action != Action::none && batch.range.end > options_.at;
  }
  void write(const BuiltBatch& batch) {
    events_.read(batch);
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const BuiltEvent event = events_.event(i);
      std::uint64_t size = 0;
      bool good = event.flags == 0 || event.flags == event_rejected;
      for (const EventFragment& fragment : event.fragments) {
        size += fragment.payload.size();
        good = good && wire::crc32c(fragment.payload) == fragment.crc32c;
      }
      file_ << fmt::format("{} {} {} {} {}\n", event.number, event.streams, event.fragments.size(),
                           size, good ? "good" : "bad");
    }
    file_.flush();
    bytes_ = static_cast<std::uint64_t>(file_.tellp());
  }

  Options options_;
  net::Loop& loop_;
  std::string path_;
  std::ofstream file_;
  BatchEvents events_;
  net::Timer poll_timer_;
  std::deque<BuiltBatch> batches_;
  std::uint64_t bytes_ = 0;
  bool bad_ = false;
  bool full_ = false; // since the last poll()
  bool said_ = false;
  bool finishing_ = false;
};

Result<SinkMaker> make_test_sink(const source::SourceSettings& settings) {
  source::SettingsReader reader(settings);
  Options options;
  options.action = static_cast<Action>(
      reader.choice("action", {"none", "throws", "throws later", "fails", "full"}));
  options.at = static_cast<std::uint64_t>(reader.integer("at", 0, 0));
  options.node = reader.text("node");
  options.until_path = reader.text("until_path");
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  return [options](const SinkRun& run) -> Result<std::unique_ptr<EventSink>> {
    return std::make_unique<TestSink>(options, run);
  };
}

} // namespace

FANIN_PLUGIN_ABI

extern "C" void fanin_register(fanin::executive::PluginRegistry& registry) {
  registry.add_sink("test_sink", make_test_sink);
}
