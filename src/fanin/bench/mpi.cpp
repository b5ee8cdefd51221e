#include "fanin/bench/mpi.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "fanin/base/json.hpp"
#include "fanin/base/try.hpp"

namespace fanin::bench {
namespace {

constexpr std::size_t under_way_with_rate = 64;

std::filesystem::path program() {
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
  return own.parent_path() / "fanin-mpi-peer";
}

bool in_path(std::string_view name) {
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const auto end = rest.find(':');
    const std::string file = fmt::format("{}/{}", rest.substr(0, end), name);
    if (access(file.c_str(), X_OK) == 0) return true;
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
  }
  return false;
}

std::string command(const Spec& spec, const Window& window) {
  return fmt::format(
      "mpirun --allow-run-as-root --host localhost:2 --oversubscribe --bind-to none "
      "-n 2 --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl self,{} "
      "--mca btl_tcp_if_include lo '{}' {} {} {} {} {} {} {} 2>&1",
      spec.url.scheme == "tcp" ? "tcp" : "vader", program().string(), name(spec.pattern), spec.size,
      spec.period.count() > 0 ? under_way_with_rate : spec.pipeline, spec.period.count(),
      spec.read ? 1 : 0, window.warmup.count(), window.duration.count());
}

struct Close {
  void operator()(std::FILE* file) const { static_cast<void>(pclose(file)); }
};

Result<Sample> parse(const std::string& line) {
  const auto value = FANIN_TRY(json::Value::parse(line));
  Sample sample;
  sample.seconds = value.at("seconds").real();
  sample.messages = value.at("messages").natural();
  sample.bytes = value.at("bytes").natural();
  for (const auto& bin : value.at("latency_ns").list()) {
    if (bin.list().size() != 2) continue;
    sample.latency.add(Duration{static_cast<Duration::rep>(bin.list()[0].natural())},
                       bin.list()[1].natural());
  }
  return sample;
}

} // namespace

Result<> find_mpi(const Spec& spec) {
  if (spec.pattern != Pattern::stream && spec.pattern != Pattern::roundtrip)
    return fail(ErrorKind::unsupported, "mpi: not measured in this pattern");
  if (access(program().c_str(), X_OK) == 0 && in_path("mpirun")) return {};
  return fail(ErrorKind::unsupported,
              "mpi: install libopenmpi-dev and openmpi-bin and build again");
}

Result<Sample> run_mpi(const Spec& spec, const Window& window) {
  const std::unique_ptr<std::FILE, Close> pipe{popen(command(spec, window).c_str(), "re")};
  if (!pipe) return fail_errno(ErrorKind::exhausted, "mpirun", errno);
  std::string last;
  std::array<char, 4096> piece{};
  std::string line;
  while (std::fgets(piece.data(), piece.size(), pipe.get()) != nullptr) {
    line += piece.data();
    if (!line.ends_with('\n')) continue;
    line.pop_back();
    if (line.starts_with('{')) return parse(line);
    if (!line.empty()) last = line;
    line.clear();
  }
  return fail(ErrorKind::internal, last.empty() ? "mpirun says nothing" : last);
}

} // namespace fanin::bench
