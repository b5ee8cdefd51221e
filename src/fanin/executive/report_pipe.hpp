// A node process's end of the pipe on which it reports to its launcher, one JSON object a line.
#pragma once

#include <sys/types.h>

#include <string>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"

namespace fanin::executive {

// Never blocks while the process runs: a launcher that does not read costs reports of how things
// stand and, in the end, lines of the log, no more. SIGPIPE must be ignored. Thread: one.
class ReportPipe {
public:
  FANIN_INTERNAL_API explicit ReportPipe(int descriptor); // takes it over
  FANIN_INTERNAL_API ~ReportPipe(); // waits for the launcher to read the rest, as long as it lives
  ReportPipe(const ReportPipe&) = delete;
  ReportPipe& operator=(const ReportPipe&) = delete;

  FANIN_INTERNAL_API void write(const json::Value& report);

private:
  void flush();

  Descriptor descriptor_;
  pid_t launcher_;
  std::string pending_;
};

} // namespace fanin::executive
