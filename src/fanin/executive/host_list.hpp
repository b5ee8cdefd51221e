// A list of hosts, on which a launcher starts a process each: addresses, and the words that start a
// command there. docs/configuration.md describes the file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/configuration.hpp"

namespace fanin::executive {

struct Host {
  std::vector<std::string> addresses; // one for each rail; at least one
  std::vector<std::string> words; // that start a command there, which follows them
  std::string place; // "hosts:3", for messages

  [[nodiscard]] const std::string& name() const { return addresses.front(); }
  [[nodiscard]] std::string text() const { return "host " + name() + " (" + place + ")"; }
};

struct HostList {
  std::string file;
  std::vector<Host> hosts;
  bool testbed = false;
  std::string congestion; // of TCP on the testbed's hosts; empty: not known
  std::vector<std::string> switch_words; // that start a command at the testbed's switches

  // The addresses alone, as a text for parse_hosts(): what a process needs that was started there.
  [[nodiscard]] FANIN_INTERNAL_API std::string addresses() const;
};

// As a shell reads it back.
[[nodiscard]] FANIN_INTERNAL_API std::string shell_word(std::string_view word);

// A line for each host: ADDRESS[,ADDRESS OF ANOTHER RAIL...] [WORD...]. Without words: ssh to the
// first address. '#' begins a comment; quotes and backslashes are those of a shell. Errors: usage,
// in one line with file and line.
[[nodiscard]] FANIN_INTERNAL_API Result<HostList> parse_hosts(std::string_view text,
                                                              const std::string& file);
// Errors: as parse_hosts(), and a file that cannot be read.
[[nodiscard]] FANIN_INTERNAL_API Result<HostList> load_hosts(const std::string& path);
// The list of this user's testbed (docs/testbed.md). Errors: none is up, or its folder may have
// been written by somebody else: it says which commands are run.
[[nodiscard]] FANIN_INTERNAL_API Result<HostList> testbed_hosts();

// Each process of the configuration gets a host, in the order of the list: its nodes listen there.
// The hosts of processes that are left out are not used, so that the others keep theirs.
// Errors: usage; too few hosts, a configuration that names hosts itself, networks that do not reach
// other hosts, more rails than addresses.
[[nodiscard]] FANIN_INTERNAL_API Result<> assign_hosts(config::Configuration& configuration,
                                                       const HostList& list);

// "the list has 3 hosts, ..." and the remedy; `shape`: of the testbed that would do, as "2x2".
[[nodiscard]] FANIN_INTERNAL_API Error too_few_hosts(const HostList& list, std::size_t needed,
                                                     std::string_view shape);

} // namespace fanin::executive
