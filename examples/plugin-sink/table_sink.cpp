// A sink plug-in: writes a line for each event, with the mean sample of each source. Replace
// mean_sample() by what you want to know of a fragment.
//
//   sink = "table"
//   separator = ","

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <fanin/executive/plugin.hpp>
#include <fanin/storage/batch_events.hpp>

namespace {

using namespace fanin;
using namespace fanin::storage;

// The bytes of a fragment are as the front end has sent them; this one sends 16-bit samples.
double mean_sample(std::span<const std::byte> payload) {
  double sum = 0;
  std::size_t samples = 0;
  for (std::size_t at = 0; at + sizeof(std::uint16_t) <= payload.size(); at += 2, ++samples) {
    std::uint16_t sample = 0;
    std::memcpy(&sample, payload.data() + at, sizeof sample);
    sum += sample;
  }
  return samples == 0 ? 0 : sum / static_cast<double>(samples);
}

class TableSink final : public EventSink {
public:
  TableSink(std::string path, std::string separator, const SinkRun& run)
      : path_(std::move(path)),
        separator_(std::move(separator)),
        file_(path_),
        events_(run.sources) {}
  [[nodiscard]] bool good() const { return file_.good(); }

  // Takes the batch. What is written here are a few bytes of each event, which the kernel keeps. A
  // sink that has more to do gives the batch to a thread of its own: nothing here may block.
  SubmitOutcome submit(BuiltBatch& batch) override {
    taken_.push_back(std::exchange(batch, {}));
    return SubmitOutcome::accepted;
  }
  // Called in each turn of the loop.
  bool poll() override {
    if (taken_.empty()) return false;
    for (; !taken_.empty(); taken_.pop_front()) {
      write(taken_.front());
      if (!file_) {
        failure_({ErrorKind::exhausted, fmt::format("{} cannot be written", path_)}, true);
        return true;
      }
      commit_({.ticket = taken_.front().ticket}); // from now on these events are ours
    }
    return true;
  }
  bool arm() override { return taken_.empty(); } // may the loop sleep?
  void finish() override { finishing_ = true; }
  [[nodiscard]] bool finished() const override { return finishing_ && taken_.empty(); }
  [[nodiscard]] std::vector<std::string> files() const override { return {path_}; }
  [[nodiscard]] std::size_t file_count() const override { return 1; }
  [[nodiscard]] std::uint64_t bytes_written() const override { return bytes_; }

private:
  void write(const BuiltBatch& batch) {
    events_.read(batch);
    std::string lines;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const BuiltEvent event = events_.event(i);
      lines += fmt::format("{}", event.number);
      for (const EventFragment& fragment : event.fragments)
        lines += fmt::format("{}{:.1f}", separator_, mean_sample(fragment.payload));
      lines += '\n';
    }
    file_ << lines << std::flush;
    bytes_ += lines.size();
  }

  std::string path_;
  std::string separator_;
  std::ofstream file_;
  BatchEvents events_;
  std::deque<BuiltBatch> taken_; // and not written
  std::uint64_t bytes_ = 0;
  bool finishing_ = false;
};

// Reads the keys of the configuration. What it returns makes a sink for each builder unit.
Result<SinkMaker> make_table_sink(const source::SourceSettings& settings) {
  source::SettingsReader reader(settings);
  const std::string separator = reader.text("separator", ",");
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  return [separator](const SinkRun& run) -> Result<std::unique_ptr<EventSink>> {
    const std::string path =
        fmt::format("{}/run{}_{}_{}.csv", run.folder, run.run, run.node, run.incarnation);
    auto sink = std::make_unique<TableSink>(path, separator, run);
    if (!sink->good()) return fail(ErrorKind::refused, fmt::format("cannot make {}", path));
    return sink;
  };
}

} // namespace

FANIN_PLUGIN_ABI

extern "C" void fanin_register(fanin::executive::PluginRegistry& registry) {
  registry.add_sink("table", make_table_sink);
}
