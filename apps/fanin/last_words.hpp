// What a process says when the code of a plug-in ends it.
#pragma once

namespace fanin::command {

// While it lives, a process that a signal ends while a plug-in is at work says so on standard
// error: file, line, key, and what the plug-in had to do. Who calls exit() or _exit() then, at
// whatever work, is told of too, and decides nothing about the exit status: nobody would know else
// that there is no result. Of a process that makes plug-ins; once, and before all that they are
// made by.
class LastWords {
public:
  LastWords();
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

} // namespace fanin::command
