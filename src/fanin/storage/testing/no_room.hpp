// A full disk, without one: the kernel refuses to let this process's files grow.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace fanin::storage::testing {

class NoRoom {
public:
  NoRoom() {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    allow(0);
  }
  ~NoRoom() { setrlimit(RLIMIT_FSIZE, &before_); }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;
  // Files may have so many bytes.
  void allow(rlim_t bytes) const {
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }

private:
  rlimit before_{};
};

} // namespace fanin::storage::testing
