// How the sections of a configuration are read; private to the room.
#pragma once

#include <string>

#include "fanin/config/configuration.hpp"
#include "fanin/config/reader.hpp"

namespace fanin::config::detail {

// Relative paths are relative to the folder of the file that they are written in; those of
// overrides to the current folder.
[[nodiscard]] std::string resolve_path(const std::string& path, const Place& place);

void read_run(TableReader reader, Run& run);
void read_network(TableReader reader, Network& network);
void read_trigger(TableReader reader, Trigger& trigger);
void read_event(TableReader reader, EventRules& event);
void read_buffers(TableReader reader, Buffers& buffers);
void read_storage(TableReader reader, Storage& storage);
inline constexpr std::uint64_t buffer_max = 64ULL << 40; // bytes
[[nodiscard]] std::uint64_t read_buffer(TableReader& reader, std::string_view key,
                                        std::uint64_t fallback);
[[nodiscard]] int read_numa_node(TableReader& reader, int fallback);
[[nodiscard]] memory::HugePages read_huge_pages(TableReader& reader, memory::HugePages fallback);

// [event_manager], [[readout]] with [[readout.source]] and [source], [[builder]], [[process]].
void read_nodes(TableReader& root, Configuration& configuration, Problems& problems);

// What single keys cannot show: names, ids, addresses and processes against each other.
void check_consistency(const Configuration& configuration, Problems& problems);

} // namespace fanin::config::detail
