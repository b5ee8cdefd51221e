#include "fanin/bench/contender_ends.hpp"

#include <unistd.h>

#include <filesystem>
#include <sstream>

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

std::string command(const Spec& spec, const Window& window) {
  return fmt::format(
      "mpirun --allow-run-as-root --host localhost:2 --oversubscribe --bind-to none "
      "-n 2 --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl self,{} "
      "--mca btl_tcp_if_include lo '{}' {} {} {} {} {} {} {} 2>&1",
      spec.url.scheme == "tcp" ? "tcp" : "vader", program().string(), name(spec.pattern), spec.size,
      spec.period.count() > 0 ? under_way_with_rate : spec.pipeline, spec.period.count(),
      spec.read ? 1 : 0, window.warmup.count(), window.duration.count());
}

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
  const bool built = access(program().c_str(), X_OK) == 0;
  if (built && !output_of("command -v mpirun").value_or("").empty()) return {};
  return fail(ErrorKind::unsupported,
              "mpi: install libopenmpi-dev and openmpi-bin and build again");
}

Result<Sample> run_mpi(const Spec& spec, const Window& window) {
  const auto written = FANIN_TRY(output_of(command(spec, window)));
  std::istringstream output(written);
  std::string last;
  for (std::string line; std::getline(output, line);) {
    if (line.starts_with('{')) return parse(line);
    if (!line.empty()) last = line;
  }
  return fail(ErrorKind::internal, last.empty() ? "mpirun says nothing" : last);
}

} // namespace fanin::bench
