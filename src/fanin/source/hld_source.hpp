/// \file
/// Replays one endpoint of an HLD file as a source. A fragment is the head word and the words that
/// follow, as in the file. Several sources may read the same file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fanin/source/hld_file.hpp"
#include "fanin/source/replay.hpp"
#include "fanin/source/source.hpp"

namespace fanin::source {

enum class HldKey : std::uint8_t {
  trigger, ///< the subevent's trigger number, 24 bits
  sequence ///< the recording event builder's event number, 32 bits
};

struct HldOptions {
  std::string path;
  std::uint16_t address = 0;
  HldKey key = HldKey::trigger;
  ReplayOptions replay;
};

class HldSource final : public Source {
public:
  /// Opens the file. Errors: not_found; refused; usage, for the trailer's address.
  [[nodiscard]] static Result<std::unique_ptr<HldSource>> make(const HldOptions& options);
  HldSource(const HldOptions& options, FileWindow file);

  [[nodiscard]] Result<> start(EventNumber first_event, Time now) override;
  [[nodiscard]] ReadResult read(FragmentQueue& queue, Time now) override;
  [[nodiscard]] bool on_demand() const override { return !pacer_.paced(); }
  [[nodiscard]] std::vector<SourceCounter> counters() const override;

private:
  enum class Step : std::uint8_t { block, event_end, file_end, enough };
  [[nodiscard]] Result<Step> next_step(std::uint64_t scan_end);
  [[nodiscard]] EventNumber number_of_block();

  HldOptions options_;
  HldReader reader_;
  ReplayNumbers numbers_;
  Pacer pacer_;
  bool in_event_ = false;
  bool numbered_ = false;    // a number was seen in this event
  EventNumber number_ = 0;   // of this event, or of the fragment that waits
  bool pending_ = false;     // block() waits for room in the queue
  bool pending_skip_ = false; // skip_to(number_ + 1) waits for it
};

} // namespace fanin::source
