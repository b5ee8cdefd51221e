// JSON lines to a process that may not read them at once.
#pragma once

#include <cstddef>
#include <string>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

// Never blocks. That nobody reads any more is seen elsewhere: then lines are dropped. SIGPIPE must
// be ignored. Thread: its loop.
class LineOutput {
public:
  // The descriptor must not block.
  FANIN_INTERNAL_API LineOutput(net::Loop& loop, Descriptor descriptor);

  FANIN_INTERNAL_API void send(const json::Value& line);
  // Bytes that are not written yet.
  [[nodiscard]] std::size_t pending() const { return pending_.size(); }

private:
  void flush();

  net::Loop& loop_;
  Descriptor descriptor_;
  net::Timer write_timer_;
  std::string pending_;
};

} // namespace fanin::executive
