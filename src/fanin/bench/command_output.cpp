#include "fanin/bench/command_output.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

namespace fanin::bench {
namespace {

struct ClosePipe {
  void operator()(std::FILE* pipe) const { pclose(pipe); }
};

} // namespace

Result<std::string> output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, ClosePipe> pipe{popen(command.c_str(), "re")};
  if (!pipe) return fail_errno(ErrorKind::exhausted, command, errno);
  std::string output;
  std::array<char, 4096> buffer; // NOLINT: fread() fills it
  for (std::size_t got = 1; got > 0;) {
    got = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    output.append(buffer.data(), got);
  }
  return output;
}

} // namespace fanin::bench
