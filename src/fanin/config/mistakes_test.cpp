// What a hasty user does to a configuration: to every key of every example.
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/config/configuration.hpp"

namespace fanin::config {
namespace {

using ::testing::MatchesRegex;

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Without those of simulated networks, whose keys a run ignores.
std::vector<std::filesystem::path> examples() {
  std::vector<std::filesystem::path> found;
  const std::filesystem::path folder = std::string(FANIN_SOURCE_DIR) + "/examples";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const bool is_run = entry.path().parent_path().filename() != "sim";
    if (is_run && entry.path().extension() == ".toml") found.push_back(entry.path());
  }
  return found;
}

// "key = value" at the beginning of a line.
struct Pair {
  std::string key;
  std::string value;
};

std::optional<Pair> pair_in(const std::string& line) {
  static const std::regex pattern("([a-z_]+) *= *([^#]*[^# ]).*");
  std::smatch found;
  if (!std::regex_match(line, found, pattern) || found[2] == "[") return std::nullopt; // goes on
  return Pair{found[1], found[2]};
}

// What is said of the configuration with another line there; empty: nothing.
std::string error_with(std::vector<std::string> lines, std::size_t at, const std::string& line) {
  lines[at] = line;
  const auto result = parse(fmt::format("{}\n", fmt::join(lines, "\n")), "run.toml");
  return result ? "" : result.error().text;
}

TEST(Mistakes, of_every_kind_are_said_in_one_line_with_file_line_and_key) {
  for (const auto& path : examples()) {
    const auto lines = lines_of(path);
    for (std::size_t at = 0; at < lines.size(); ++at) {
      const auto pair = pair_in(lines[at]);
      if (!pair) continue;
      for (const char* value : {"5", "-1", "\"nonsense\"", "\"\"", "[1]", "true", "{ a = 1 }",
                                "nonsense", "\"not closed", "1979-05-27"}) {
        const std::string error = error_with(lines, at, fmt::format("{} = {}", pair->key, value));
        if (error.empty()) continue; // it is possible
        EXPECT_THAT(error, MatchesRegex("run\\.toml:[0-9]+: ([a-z_.0-9]+|not valid TOML): [^\n]+"))
            << path << ":" << at + 1 << ": " << pair->key << " = " << value;
      }
      const std::string error = error_with(lines, at, "");
      if (!error.empty()) {
        EXPECT_THAT(error, MatchesRegex("run\\.toml:[0-9]+: [a-z_.0-9]+: [^\n]+"))
            << path << ":" << at + 1 << ": without " << pair->key;
      }
    }
  }
}

// Where other keys are those of a plug-in's type, or of a type of source, that type complains.
TEST(Mistakes, a_misspelled_key_is_named_where_it_stands) {
  for (const auto& path : examples()) {
    const auto lines = lines_of(path);
    std::string section;
    for (std::size_t at = 0; at < lines.size(); ++at) {
      if (lines[at].starts_with("[")) section = lines[at].substr(lines[at].find_first_not_of('['));
      const auto pair = pair_in(lines[at]);
      const bool open = section.starts_with("source") || section.starts_with("filter") ||
                        section.starts_with("readout.source") || section.starts_with("storage");
      if (!pair || open || pair->key.size() < 3) continue;
      const std::string wrong = pair->key.substr(0, 1) + pair->key.substr(2);
      EXPECT_THAT(
          error_with(lines, at, fmt::format("{} = {}", wrong, pair->value)),
          MatchesRegex(fmt::format("run\\.toml:{}: ([a-z_.0-9]+\\.)?{}: unknown key; did you "
                                   "mean {}\\?",
                                   at + 1, wrong, pair->key)))
          << path << ":" << at + 1;
    }
  }
}

} // namespace
} // namespace fanin::config
