// What a process says when the code of a plug-in ends it.
#pragma once

namespace fanin::command {

// From now on a process that a signal or exit() ends while a plug-in is at work says so on standard
// error: file, line, key, and what the plug-in had to do. Of a process that makes plug-ins; call it
// once.
void name_plugins_that_end_this_process();

} // namespace fanin::command
