/// \file
/// A run file as text: `fanin inspect`.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/storage/layout.hpp"

namespace fanin::storage {

/// What the file is, what it holds, and every source with its fragments and bytes. Reads all rows
/// and no payload. Errors: as of RunFileReader.
[[nodiscard]] FANIN_INTERNAL_API Result<std::string> inspect_file(const std::string& path);

/// The same for a program. Keys: docs/command.md.
[[nodiscard]] FANIN_INTERNAL_API Result<json::Value> describe_file(const std::string& path);

/// What a run's metadata is in JSON: an object with a value for each key.
[[nodiscard]] FANIN_INTERNAL_API json::Value metadata_json(std::span<const Metadata> metadata);

/// One event: its fragments with size, checksum and first bytes, and the sources that are missing.
/// `dump_bytes`: how many of each fragment. `path` is a run file, or a run's manifest: then of all
/// copies the one that counts is shown. Errors: not_found (no such event), else as of RunFileReader
/// and read_manifest().
[[nodiscard]] FANIN_INTERNAL_API Result<std::string>
inspect_event(const std::string& path, EventNumber event, std::size_t dump_bytes = 64);

} // namespace fanin::storage
