// The baselines between processes of one host, and within one: what memory gives without a library.
// Both ends spin.
#pragma once

#include <cstdint>

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// A ring of pages of records that both processes map; one fills them, the other walks them.
// Errors: exhausted.
[[nodiscard]] Result<Ends> shared_memory_stream(const Spec& spec);
// Two cache lines, or two buffers of the message's size, back and forth. Errors: exhausted.
[[nodiscard]] Result<Ends> shared_memory_roundtrip(const Spec& spec);
// One process that fills a page and walks it.
[[nodiscard]] Ends one_process_stream(const Spec& spec);
// One process that copies message after message.
[[nodiscard]] Ends memcpy_stream(const Spec& spec);

} // namespace fanin::bench
