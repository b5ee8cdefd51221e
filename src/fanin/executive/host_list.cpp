#include "fanin/executive/host_list.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <expected>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"
#include "fanin/net/address.hpp"
#include "fanin/settings/tree.hpp"

namespace fanin::executive {
namespace {

constexpr std::size_t text_max = 1U << 20; // bytes of a list
constexpr std::size_t hosts_max = 4096;
constexpr std::size_t rails_max = 8;
constexpr std::size_t address_max = 253; // of a name in the DNS

// ssh never asks for a password, and notices a host that has died.
const std::vector<std::string> ssh_words{
    "ssh",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
};

// The words of one line, as a shell splits them. Errors: what is wrong.
class LineWords {
public:
  explicit LineWords(std::string_view line) : line_(line) {}

  std::expected<std::vector<std::string>, std::string> split() {
    std::vector<std::string> words;
    while (skip_space()) {
      std::string word;
      if (const auto wrong = read_word(word); !wrong.empty()) return std::unexpected(wrong);
      words.push_back(std::move(word));
    }
    return words;
  }

private:
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  static bool is_control(char c) {
    return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f';
  }

  // False at the end of the line, and at a comment.
  bool skip_space() {
    while (at_ < line_.size() && is_space(line_[at_])) ++at_;
    return at_ < line_.size() && line_[at_] != '#';
  }

  std::string read_word(std::string& word) {
    while (at_ < line_.size() && !is_space(line_[at_])) {
      const char c = line_[at_++];
      if (c == '\'' || c == '"') {
        if (!read_quoted(c, word)) return fmt::format("has a {} that is not closed", c);
      } else if (c == '\\') {
        if (at_ == line_.size()) return "ends with a backslash";
        word += line_[at_++];
      } else {
        word += c;
      }
    }
    // Quoted or not: words go to a command line, and in parts to the screen.
    return std::ranges::any_of(word, is_control) ? "has a control character" : std::string{};
  }

  bool read_quoted(char quote, std::string& word) {
    while (at_ < line_.size()) {
      const char c = line_[at_++];
      if (c == quote) return true;
      const bool escapes = c == '\\' && quote == '"' && at_ < line_.size() &&
                           (line_[at_] == '"' || line_[at_] == '\\');
      word += escapes ? line_[at_++] : c;
    }
    return false;
  }

  std::string_view line_;
  std::size_t at_ = 0;
};

// Empty, or what is wrong with it. It becomes a word of a command line: "-oX" would be an option.
std::string wrong_address(std::string_view address) {
  constexpr std::string_view allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789.:-_%";
  if (address.empty()) return "an address is empty";
  const bool good = address.size() <= address_max && address.front() != '-' &&
                    address.find_first_not_of(allowed) == std::string_view::npos;
  if (good) return {};
  return fmt::format("\"{}\" is not the name or address of a host", printable(address, 60));
}

std::string read_host(std::vector<std::string> words, Host& host) {
  std::string_view left = words.front();
  while (true) {
    const auto comma = left.find(',');
    const std::string_view address = left.substr(0, comma);
    if (auto wrong = wrong_address(address); !wrong.empty()) return wrong;
    host.addresses.emplace_back(address);
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (host.addresses.size() > rails_max)
    return fmt::format("has {} addresses, at most {} are possible", host.addresses.size(),
                       rails_max);
  words.erase(words.begin());
  if (words.empty()) {
    words = ssh_words;
    words.push_back(host.name());
  }
  if (words.front().empty()) return "the command that starts a process is empty";
  host.words = std::move(words);
  return {};
}

// The same host by its name of the list, on the network of that rail.
Result<> assign_urls(const config::Configuration& configuration, config::Node& node,
                     const Host& host) {
  const auto refuse = [&](const std::string& why) {
    return std::unexpected(configuration.wrong(node.url_key, why));
  };
  if (node.urls.size() > host.addresses.size())
    return refuse(fmt::format("\"{}\" has {} rails, but its host has {} in {}: add the addresses "
                              "after commas, as 10.1.0.1,10.2.0.1",
                              node.name, node.urls.size(),
                              counted(host.addresses.size(), "address", "addresses"), host.place));
  for (std::size_t rail = 0; rail < node.urls.size(); ++rail) {
    net::Url& url = node.urls[rail];
    if (url.reach() != net::Reach::network)
      return refuse(fmt::format("{}:// does not reach other hosts: use tcp", url.scheme));
    const bool anywhere = url.host.empty() || net::is_loopback(url.host);
    if (!anywhere && url.host != host.addresses[rail])
      return refuse(fmt::format("\"{}\" listens at {} here, and at {} by {}: leave the host out",
                                node.name, url.text(), host.addresses[rail], host.place));
    url.host = host.addresses[rail];
  }
  return {};
}

// When a process began, in ticks since the machine did; 0: there is none.
std::uint64_t start_of(std::uint64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return 0;
  const auto after_name = text.rfind(')');
  if (after_name == std::string::npos) return 0;
  std::size_t at = after_name;
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

} // namespace

std::string shell_word(std::string_view word) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos)
    return std::string{word};
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string HostList::addresses() const {
  std::string text;
  for (const Host& host : hosts) text += fmt::format("{}\n", fmt::join(host.addresses, ","));
  return text;
}

Result<HostList> parse_hosts(std::string_view text, const std::string& file) {
  HostList list;
  list.file = file;
  const auto refuse = [&file](std::size_t line, std::string_view why) {
    return fail(ErrorKind::usage, fmt::format("{}:{}: {}", file, line, why));
  };
  if (text.size() > text_max)
    return fail(ErrorKind::usage,
                fmt::format("{}: is larger than 1 MiB, so it is not a list of hosts", file));
  for (std::size_t line = 1; !text.empty(); ++line) {
    const auto end = text.find('\n');
    const std::string_view here = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    auto words = LineWords{here}.split();
    if (!words) return refuse(line, words.error());
    if (words->empty()) continue;
    Host host;
    host.place = fmt::format("{}:{}", file, line);
    if (const auto wrong = read_host(std::move(*words), host); !wrong.empty())
      return refuse(line, wrong);
    if (list.hosts.size() == hosts_max)
      return refuse(line, fmt::format("more than {} hosts", hosts_max));
    list.hosts.push_back(std::move(host));
  }
  return list;
}

Result<HostList> load_hosts(const std::string& path) {
  const auto text = FANIN_TRY(settings::read_text(path));
  return parse_hosts(text, path);
}

Result<HostList> testbed_hosts() {
  const char* const said = std::getenv("FANIN_TESTBED");
  const std::string folder =
      said != nullptr && *said != '\0' ? said : fmt::format("/tmp/fanin-testbed-{}", getuid());
  const auto none = [](std::string_view left) {
    return fail(ErrorKind::usage,
                fmt::format("--testbed: no testbed is up: ./dev testbed {}up NxM makes one", left));
  };
  struct stat status{};
  if (lstat(folder.c_str(), &status) != 0) {
    if (errno == ENOENT) return none("");
    return fail_errno(ErrorKind::usage, fmt::format("--testbed: {}", folder), errno);
  }
  if (!S_ISDIR(status.st_mode) || status.st_uid != getuid() || (status.st_mode & 022) != 0)
    return fail(ErrorKind::usage,
                fmt::format("--testbed: {} belongs to another user, or others may write there: "
                            "set FANIN_TESTBED to another folder",
                            folder));
  const auto text = settings::read_text(folder + "/state.json");
  if (!text) return none("");
  const auto state = json::Value::parse(*text);
  const std::uint64_t start = state ? state->at("start").natural() : 0;
  if (start == 0 || start_of(state->at("pid").natural()) != start) return none("down, then ");
  auto list = load_hosts(folder + "/hosts");
  if (!list) return none("down, then ");
  list->testbed = true;
  list->congestion = state->at("settings").at("tcp_congestion_control").text();
  for (const auto& word : state->at("switch").list()) list->switch_words.push_back(word.text());
  return list;
}

Error too_few_hosts(const HostList& list, std::size_t needed, std::string_view shape) {
  const std::string remedy =
      list.testbed ? fmt::format("./dev testbed down, then ./dev testbed up {}", shape)
                   : std::string("add lines; a host may be named twice");
  return {ErrorKind::usage,
          fmt::format("{}: has {}, and {} are needed, a process a host: {}", list.file,
                      counted(list.hosts.size(), "host"), needed, remedy)};
}

Result<> assign_hosts(config::Configuration& configuration, const HostList& list) {
  const std::size_t needed = configuration.processes.back().place + 1;
  if (needed > list.hosts.size()) {
    const std::size_t readouts = configuration.readouts() + configuration.readouts_left_out.size();
    const std::size_t others = configuration.nodes.size() - 1 - configuration.readouts();
    return std::unexpected(too_few_hosts(list, needed, fmt::format("{}x{}", readouts, others)));
  }
  for (const config::Process& process : configuration.processes) {
    const Host& host = list.hosts[process.place];
    for (const std::size_t index : process.nodes) {
      config::Node& node = configuration.nodes[index];
      if (!node.host.empty())
        return std::unexpected(configuration.wrong(
            node.key + ".host", fmt::format("is \"{}\", but {} says where nodes run: leave it out",
                                            node.host, list.file)));
      node.host = host.name();
      FANIN_TRY(assign_urls(configuration, node, host));
    }
  }
  return {};
}

} // namespace fanin::executive
