// What detectors do in `bench evb --receive`: a process for each readout unit sends the fragments
// of all its sources (docs/receive-format.md), as fast as they are taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/processes.hpp"

namespace fanin::bench {

struct SenderOptions {
  std::vector<std::string> urls; // where the sources of the readout unit wait, in their order
  SourceId first = 0; // id of the first source; the others follow
  std::uint32_t size = 0; // bytes of a fragment
  bool checksum = true; // CRC32C with each fragment

  static void each_member(auto& self, const auto& visit) { // members.hpp
    visit("urls", self.urls);
    visit("first", self.first);
    visit("size", self.size);
    visit("checksum", self.checksum);
  }
};

// Until the readout unit has closed its connections. Errors: refused, malformed (an address).
[[nodiscard]] Result<> send_fragments(const SenderOptions& options, ProcessStats& stats);

} // namespace fanin::bench
