// Finds the heads of super-fragments in a built batch (wire/super_fragment.hpp). What it does not
// take for a super-fragment has nothing of its members, for the ledger as in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <expected>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/layout.hpp"
#include "fanin/wire/fragment.hpp"
#include "fanin/wire/slice.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {

// `index`: of an event in the piece.
[[nodiscard]] inline wire::FragmentEntry entry_at(const SourcePiece& piece, std::uint64_t index) {
  wire::FragmentEntry entry;
  std::memcpy(&entry, piece.table.data() + index * sizeof entry, sizeof entry);
  return entry;
}

// Why a fragment is no super-fragment of an event and its members: `came` is not `expected`.
struct SuperFault {
  enum class What : std::uint8_t {
    bytes, // not those of a super-fragment
    count, // how many sources it merges
    source, // the first one that it merges and that is another
    event, // the detector's number
    run // its number
  };
  What what = What::bytes;
  std::uint64_t came = 0; // not of `bytes`
  std::uint64_t expected = 0; // likewise

  friend bool operator==(const SuperFault&, const SuperFault&) = default;
};
// Human-readable, with the keys to look at; it follows "the super-fragment".
[[nodiscard]] std::string text_of(const SuperFault& fault, const wire::Slice& slice);

// Thread: one.
class SuperReader {
public:
  // `run`: what says that it is of another one does not fit; 0: of any.
  explicit SuperReader(const wire::Slice& slice, RunNumber run = 0) : slice_(slice), run_(run) {}

  // The head of the super-fragment of event `index` in the first of `pieces`, which begins at
  // `from` in its payload and may go on in those that follow. It must not be absent. Else why it
  // is no super-fragment of this event and `members`, ascending by id. Valid until the next call.
  [[nodiscard]] std::expected<wire::SuperHead, SuperFault>
  read(std::span<const SourcePiece* const> pieces, std::uint64_t index, std::uint64_t from,
       std::span<const SourceInfo> members);

private:
  [[nodiscard]] std::span<const std::byte> gather(std::span<const SourcePiece* const> pieces,
                                                  std::uint64_t from, std::size_t size);

  wire::Slice slice_;
  RunNumber run_;
  std::vector<std::byte> head_; // of one that spans pieces
};

} // namespace fanin::storage
