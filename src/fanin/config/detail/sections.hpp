// How the sections of a configuration are read; private to the module.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/config/configuration.hpp"
#include "fanin/settings/reader.hpp"

namespace fanin::config::detail {

using settings::Entry;
using settings::Place;
using settings::Problems;
using settings::TableReader;
using settings::Value;

// Relative paths are relative to the folder of the file that they are written in; those of
// overrides to the current folder.
[[nodiscard]] std::string resolve_path(const std::string& path, const Place& place);

inline constexpr std::uint64_t buffer_max = 64ULL << 40; // bytes
[[nodiscard]] std::uint64_t read_buffer(TableReader& reader, std::string_view key,
                                        std::uint64_t fallback);
// All keys but the common ones, for the type of source, application, filter or sink to understand.
void read_own_settings(TableReader& reader, std::span<const std::string_view> common,
                       std::map<std::string, settings::Setting>& settings);
[[nodiscard]] int read_numa_node(TableReader& reader, int fallback);

// Bytes of header and table of a data message of so many events, with some room.
[[nodiscard]] constexpr std::uint64_t table_bytes_max(std::uint32_t events) {
  return events * 8ULL + 512;
}

// The ids of sources under a key, ascending: [1, 0x400] or ["1", "0x400-0x40f"].
[[nodiscard]] std::vector<SourceId> read_ids(TableReader& reader, std::string_view key);

inline constexpr std::uint32_t slices_max = 4096;
// Reads [slice]. [event] must have been read.
void read_slice(TableReader reader, Configuration& configuration);
// Call it when the size of a batch is known.
void check_block(TableReader slice, const builder::System& system);
// What a source's super-fragments merge; nothing: they are fragments.
[[nodiscard]] std::vector<storage::SourceInfo> read_merged(TableReader& reader, bool required);
// That one source can take its super-fragments; of plain fragments nothing.
void check_super_fragments(TableReader& reader, const Source& source);
void check_merged(const Configuration& configuration, Problems& problems);
// Checks that built events can go to slices as they are.
void check_forward(const Configuration& configuration, Problems& problems);

// [[stream]].
void read_streams(TableReader& root, builder::System& system);
// Call it when nodes and sources are known. It takes sources that are left out from the streams,
// and finds streams without filter units, and sources of streams that do not exist.
void check_streams(Configuration& configuration, TableReader& root);

// [event_manager], [[readout]] with [[readout.source]] and [source], [[builder]], [[application]],
// [[filter]] (one stream, "accepted", if there are none), [[process]].
void read_nodes(TableReader& root, Configuration& configuration, Problems& problems);

// Takes out sources that are not enabled or that run.without names, and readout units that have no
// others. Call it when the processes are known: the places of those that stay do not change.
void leave_out(Configuration& configuration, Problems& problems);
// Those that are left out, too.
[[nodiscard]] std::vector<std::string> names_of_sources(const Configuration& configuration);
[[nodiscard]] std::string no_such_source(std::string_view name, std::span<const std::string> known);

// What is wrong with a key, once the whole configuration is known.
void report(const Configuration& configuration, Problems& problems, const std::string& key,
            std::string_view reason);

// What single keys cannot show: names, ids, addresses and processes against each other.
void check_consistency(const Configuration& configuration, Problems& problems);

} // namespace fanin::config::detail
