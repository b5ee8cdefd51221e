#include "fanin/operation/reserve_run.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/executive/process.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/storage/run_numbers.hpp"

namespace fanin::operation {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

} // namespace

std::uint32_t user_number() { return geteuid(); }

std::string user_name() { return user_name(user_number()); }

std::string user_name(std::uint32_t user) {
  const passwd* const entry = getpwuid(user);
  return entry == nullptr ? fmt::format("{}", user) : entry->pw_name;
}

Result<std::string> registry_of(std::span<const config::Configuration> configurations) {
  std::string path;
  for (const config::Configuration& one : configurations) {
    const std::string& its = one.run.registry;
    if (its.empty() || its == path) continue;
    if (!path.empty())
      return fail(ErrorKind::usage,
                  fmt::format("{}:1: run.registry: is {}, and that of another configuration {}: "
                              "one run has one registry",
                              one.file, its, path));
    path = its;
  }
  return path;
}

Result<ReservedRun> reserve_run(Registry& registry,
                                std::span<const config::Configuration> configurations,
                                std::vector<UsedConfiguration> used, const std::string& who,
                                json::Value control) {
  const NewRun run{.id = executive::new_run_id(),
                   .kind = configurations.front().run.kind,
                   .comment = configurations.front().run.comment,
                   .who = who,
                   .host = host_name(),
                   .configurations = std::move(used),
                   .control = std::move(control),
                   .unix_ns = executive::unix_ns()};
  std::vector<std::string> folders;
  std::optional<RunNumber> wanted;
  for (const config::Configuration& one : configurations) {
    if (!one.forwards() && !one.run.output.empty()) folders.push_back(one.run.output);
    if (one.run.number) wanted = one.run.number;
  }
  const storage::RunNumbers numbers(std::move(folders));
  const auto take = [&](RunNumber least) -> Result<RunNumber> {
    if (wanted && *wanted < least)
      return fail(ErrorKind::usage,
                  fmt::format("run.number: {} was given before: {} has runs up to {}; leave "
                              "run.number out, or give a higher one",
                              *wanted, registry.path(), least - 1));
    const RunNumber free = FANIN_TRY(numbers.next(wanted));
    return numbers.reserve(std::max(free, least));
  };
  return ReservedRun{FANIN_TRY(registry.reserve(run, take)), run.id};
}

} // namespace fanin::operation
