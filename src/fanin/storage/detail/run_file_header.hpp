// What a run file holds before its first event: attributes and the table of sources.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fanin/base/result.hpp"
#include "fanin/storage/detail/hdf5.hpp"
#include "fanin/storage/run_file_writer.hpp"

namespace fanin::storage::detail {

// Before the file is switched to SWMR: no attribute or dataset can be added afterwards.
[[nodiscard]] Result<> write_header(hid_t file, const RunFileOptions& options, std::uint32_t part);

// The begin of the run, UTC. False: HDF5 has failed.
[[nodiscard]] bool write_started(hid_t file, std::int64_t unix_ns);

// "2026-11-21T08:01:38Z"
[[nodiscard]] std::string format_utc(std::int64_t unix_ns, std::size_t decimals = 0);

} // namespace fanin::storage::detail
