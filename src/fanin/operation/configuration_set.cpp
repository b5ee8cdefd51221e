#include "fanin/operation/configuration_set.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/config/stages.hpp"
#include "fanin/executive/stages_view.hpp"
#include "fanin/settings/tree.hpp"

namespace fanin::operation {
namespace {

// Groups and the slices that they forward to, as far as the file itself says so.
bool is_stage(const config::Configuration& configuration) {
  return configuration.forwards() ||
         std::ranges::any_of(configuration.sources,
                             [](const config::Source& source) { return !source.merged.empty(); });
}

json::Value list_of(const std::vector<std::string>& texts) {
  return json::List(texts.begin(), texts.end());
}

std::vector<std::string> texts_of(const json::Value& list) {
  std::vector<std::string> texts;
  for (const json::Value& one : list.list()) texts.push_back(one.text());
  return texts;
}

// The names with which a launcher reports of several configurations.
Result<> add_names(ReadSet& read) {
  if (read.configurations.size() == 1) {
    read.names = {""};
    return {};
  }
  FANIN_TRY(config::fit_stages(read.configurations));
  const executive::StagesView view(read.configurations);
  for (std::size_t i = 0; i < read.configurations.size(); ++i) read.names.push_back(view.name(i));
  return {};
}

// As `fanin run` makes them of its options. Of two stages, sources are left out later, and a group
// ends the run.
std::vector<std::string> overrides_of(const RunChanges& changes, bool several, bool ends_run) {
  std::vector<std::string> overrides = changes.set;
  if (!several) {
    for (const std::string& source : changes.without)
      overrides.push_back("run.without+=" + settings::quoted(source));
  }
  if (!changes.duration.empty() && ends_run)
    overrides.push_back("run.duration=" + changes.duration);
  if (!changes.events.empty() && ends_run) overrides.push_back("run.events=" + changes.events);
  return overrides;
}

Result<> leave_out(ReadSet& read, const RunChanges& changes) {
  const auto without = FANIN_TRY(config::overrides_without(read.configurations, changes.without));
  for (std::size_t i = 0; i < without.size(); ++i) {
    if (without[i].empty()) continue;
    UsedConfiguration& used = read.used[i];
    std::ranges::copy(without[i], std::back_inserter(used.overrides));
    read.configurations[i] = FANIN_TRY(config::parse(used.text, used.name, used.overrides));
  }
  return {};
}

} // namespace

std::vector<std::string> RunChanges::options() const {
  std::vector<std::string> words;
  const auto add = [&](const char* option, const std::string& value) {
    if (value.empty()) return;
    words.emplace_back(option);
    words.push_back(value);
  };
  add("--duration", duration);
  add("--events", events);
  for (const std::string& one : set) add("--set", one);
  for (const std::string& one : without) add("--without", one);
  return words;
}

json::Value RunChanges::to_json() const {
  return json::Object{{"duration", duration},
                      {"events", events},
                      {"set", list_of(set)},
                      {"without", list_of(without)}};
}

RunChanges RunChanges::from(const json::Value& value) {
  const json::Value& events = value.at("events");
  return {.duration = value.at("duration").text(),
          .events = events.is_natural() ? fmt::format("{}", events.natural()) : events.text(),
          .set = texts_of(value.at("set")),
          .without = texts_of(value.at("without"))};
}

Result<std::vector<ConfigurationSet>> make_sets(std::span<const std::string> files) {
  std::vector<ConfigurationSet> sets;
  std::size_t stages = files.size(); // the place of their set
  for (const std::string& file : files) {
    const auto read = FANIN_TRY(config::load(file, {}));
    const std::filesystem::path path = std::filesystem::absolute(file).lexically_normal();
    const std::string stem = path.stem().string();
    if (is_stage(read) && stages < sets.size()) {
      sets[stages].name += "+" + stem;
      sets[stages].files.push_back(path.string());
      continue;
    }
    if (is_stage(read)) stages = sets.size();
    sets.push_back({.name = stem, .files = {path.string()}});
  }
  std::set<std::string> names;
  for (const ConfigurationSet& set : sets) {
    if (!names.insert(set.name).second)
      return fail(ErrorKind::usage,
                  fmt::format("{}: there are two configurations of the name {}: rename a file",
                              set.files.front(), set.name));
  }
  return sets;
}

Result<ReadSet> read_set(const ConfigurationSet& set, const RunChanges& changes) {
  if (!changes.duration.empty() && !changes.events.empty())
    return fail(ErrorKind::usage, "duration and events: give one of them");
  ReadSet read;
  const bool several = set.files.size() > 1;
  for (const std::string& file : set.files) {
    auto text = FANIN_TRY(settings::read_text(file));
    auto overrides = overrides_of(changes, several, !several);
    auto one = FANIN_TRY(config::parse(text, file, overrides));
    if (several && one.forwards()) {
      overrides = overrides_of(changes, several, true);
      one = FANIN_TRY(config::parse(text, file, overrides));
    }
    if (one.run.number)
      return fail(ErrorKind::usage,
                  one.wrong("run.number", "is not for `fanin serve`, which gives each run a number "
                                          "of its own: leave it out")
                      .text);
    read.used.push_back({file, std::move(text), std::move(overrides)});
    read.configurations.push_back(std::move(one));
  }
  if (several) FANIN_TRY(leave_out(read, changes));
  FANIN_TRY(add_names(read));
  return read;
}

Result<ReadSet> read_again(std::vector<UsedConfiguration> used) {
  ReadSet read;
  for (const UsedConfiguration& file : used)
    read.configurations.push_back(FANIN_TRY(config::parse(file.text, file.name, file.overrides)));
  read.used = std::move(used);
  FANIN_TRY(add_names(read));
  return read;
}

} // namespace fanin::operation
