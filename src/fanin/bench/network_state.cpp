#include "fanin/bench/network_state.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "fanin/base/json.hpp"
#include "fanin/base/try.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/executive/host_list.hpp"

namespace fanin::bench {
namespace {

constexpr std::string_view list_queues = "tc -s -j qdisc show";
constexpr const char* with_path = "PATH=\"$PATH:/usr/sbin:/sbin\" "; // where tc is

std::vector<std::string> fields_of(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> fields;
  for (std::string field; text >> field;) fields.push_back(std::move(field));
  return fields;
}

} // namespace

// A line with names, and one with their values.
std::uint64_t retransmitted_in(std::istream& text) {
  std::vector<std::string> names;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("Tcp:")) continue;
    const std::vector<std::string> fields = fields_of(line);
    if (names.empty()) {
      names = fields;
      continue;
    }
    for (std::size_t i = 0; i < names.size() && i < fields.size(); ++i) {
      if (names[i] == "RetransSegs") return std::strtoull(fields[i].c_str(), nullptr, 10);
    }
  }
  return 0;
}

std::uint64_t retransmitted_here() {
  std::ifstream file("/proc/net/snmp");
  return retransmitted_in(file);
}

// "  rail0: RECEIVED_BYTES ...".
std::uint64_t link_bytes_in(std::istream& text) {
  std::uint64_t sum = 0;
  for (std::string line; std::getline(text, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::vector<std::string> name = fields_of(line.substr(0, colon));
    const std::vector<std::string> values = fields_of(line.substr(colon + 1));
    if (name.empty() || name.front() == "lo" || values.empty()) continue;
    sum += std::strtoull(values.front().c_str(), nullptr, 10); // received
  }
  return sum;
}

std::uint64_t link_bytes_here() {
  std::ifstream file("/proc/self/net/dev");
  return link_bytes_in(file);
}

Result<std::uint64_t> drops_in(std::string_view text) {
  const auto queues = FANIN_TRY(json::Value::parse(text));
  std::uint64_t sum = 0;
  for (const auto& queue : queues.list()) {
    if (queue.at("kind").text() == "tbf") sum += queue.at("drops").natural();
  }
  return sum;
}

Result<std::uint64_t> switch_drops(const std::vector<std::string>& words) {
  std::string command = with_path;
  for (const std::string& word : words) command += executive::shell_word(word) + " ";
  command += list_queues;
  const auto text = FANIN_TRY(output_of(command));
  return drops_in(text);
}

} // namespace fanin::bench
