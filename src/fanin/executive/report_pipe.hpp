// A node process's end of the pipe on which it reports to its launcher, one JSON object a line.
#pragma once

#include <string>

#include "fanin/base/json.hpp"

namespace fanin::executive {

// Never blocks while the process runs: a launcher that does not read costs progress reports, no
// more. Thread: one.
class ReportPipe {
public:
  explicit ReportPipe(int descriptor); // takes it over
  ~ReportPipe(); // waits some seconds for the launcher to read the rest
  ReportPipe(const ReportPipe&) = delete;
  ReportPipe& operator=(const ReportPipe&) = delete;

  void write(const json::Value& report);

private:
  void flush();

  int descriptor_;
  std::string pending_;
};

} // namespace fanin::executive
