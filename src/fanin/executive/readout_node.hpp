// A readout unit with its sources as a node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fanin/builder/readout/readout_unit.hpp"
#include "fanin/executive/node.hpp"
#include "fanin/executive/watched_source.hpp"

namespace fanin::executive {

class ReadoutNode final : public Node {
public:
  explicit ReadoutNode(NodeContext context);

  // Makes the sources. To be called once, before any node of the process is started: those that
  // share an address must know of each other before senders come. Errors: those of sources.
  [[nodiscard]] Result<> make();

  [[nodiscard]] Result<> start() override;
  void stop() override;
  void stop_now(const std::string& why) override { leave(why); }
  [[nodiscard]] bool ended() const override { return ended_; }
  void describe(json::Value& report) override;
  void add_usage(json::Value& report) const override;
  void withdraw() override;
  [[nodiscard]] std::string end_message() const override;
  void turn() override;

  [[nodiscard]] builder::ReadoutUnit* unit() { return unit_ ? &*unit_ : nullptr; } // null: it left

private:
  // Also adds it to sources_.
  [[nodiscard]] Result<builder::ReadoutInput> make_input(const config::Source& source,
                                                         memory::PagePool& pool);
  void leave(const std::string& why);
  void release();

  std::size_t readout_;
  std::vector<builder::ReadoutInput> inputs_; // until start()
  std::optional<builder::ReadoutUnit> unit_;
  std::vector<std::pair<std::string, const WatchedSource*>>
      sources_; // of inputs_ or unit_, with names
  std::uint64_t bytes_sent_ = 0; // known at the end
  RunNumber run_ = 0; // joined last; 0: none yet
  bool stopping_ = false;
  bool left_early_ = false; // nothing of the run was lost with it
  bool ended_ = false;
};

} // namespace fanin::executive
