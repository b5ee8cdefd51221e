// The rows of a run file as docs/modules/storage.md has them for readers in other languages.
#include "fanin/storage/layout.hpp"

#include <cstddef>

namespace fanin::storage {

static_assert(offsetof(EventRow, event) == 0);
static_assert(offsetof(EventRow, first_fragment) == 8);
static_assert(offsetof(EventRow, first_missing) == 16);
static_assert(offsetof(EventRow, size) == 24);
static_assert(offsetof(EventRow, fragment_count) == 32);
static_assert(offsetof(EventRow, missing_count) == 36);
static_assert(offsetof(EventRow, flags) == 40);
static_assert(offsetof(EventRow, incarnation) == 44);
static_assert(offsetof(EventRow, attempt) == 48);
static_assert(offsetof(EventRow, node) == 50);
static_assert(offsetof(EventRow, streams) == 52);
static_assert(offsetof(EventRow, time_unix_ns) == 56);

static_assert(offsetof(FragmentRow, event) == 0);
static_assert(offsetof(FragmentRow, offset) == 8);
static_assert(offsetof(FragmentRow, source) == 16);
static_assert(offsetof(FragmentRow, size) == 20);
static_assert(offsetof(FragmentRow, crc32c) == 24);
static_assert(offsetof(FragmentRow, flags) == 28);
static_assert(offsetof(FragmentRow, attempt) == 30);

static_assert(offsetof(MissingRow, event) == 0);
static_assert(offsetof(MissingRow, source) == 8);
static_assert(offsetof(MissingRow, reason) == 12);

static_assert(offsetof(GapRow, first) == 0);
static_assert(offsetof(GapRow, end) == 8);

} // namespace fanin::storage
