// What a process says when the code of a plug-in ends it.
#pragma once

namespace fanin::command {

// While it lives, a process that a signal ends while a plug-in is at work says so on standard
// error: file, line, key, and what the plug-in had to do. A call of exit() or _exit() is reported,
// too, and the exit status is 1; otherwise nobody would know that there is no result. Make one,
// before anything that makes plug-ins.
class PluginEndReport {
public:
  PluginEndReport();
  ~PluginEndReport();
  PluginEndReport(const PluginEndReport&) = delete;
  PluginEndReport& operator=(const PluginEndReport&) = delete;
};

} // namespace fanin::command
