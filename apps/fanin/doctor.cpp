// fanin doctor: what this host can do, what is wrong with it, and the remedy.
#include <algorithm>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/try.hpp"
#include "fanin/doctor/examine.hpp"
#include "fanin/net/ofi/providers.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

json::Value to_json(const doctor::Findings& findings) {
  json::Value value;
  value["findings"] = json::List{};
  for (const doctor::Finding& finding : findings) {
    value["findings"].append(json::Object{{"what", finding.what},
                                          {"level", doctor::name(finding.level)},
                                          {"found", finding.found},
                                          {"remedy", finding.remedy}});
  }
  return value;
}

Result<int> examine_host(const std::string& json) {
  const doctor::Findings findings = doctor::examine(doctor::Host(), net::ofi_providers());
  if (json != "-") {
    for (const doctor::Finding& finding : findings) {
      print(
          fmt::format("{:<8} {}: {}\n", doctor::name(finding.level), finding.what, finding.found));
      if (!finding.remedy.empty()) print(fmt::format("{:<8}   {}\n", "", finding.remedy));
    }
  }
  auto file = FANIN_TRY(OutputFile::open("--json", json));
  FANIN_TRY(file.write_json(to_json(findings)));
  const bool problems = std::ranges::any_of(findings, [](const doctor::Finding& finding) {
    return finding.level == doctor::Level::problem;
  });
  return problems ? status_failed : status_done;
}

} // namespace

void add_doctor(CLI::App& app, int& status) {
  auto json = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Examine this host: devices, limits, settings, and how to fix them");
  command->add_option("--json", *json, "Write the findings to this file; - is standard output");
  command->callback([json, &status] { status = status_of(examine_host(*json)); });
}

} // namespace fanin::command
