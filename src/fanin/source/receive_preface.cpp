#include "fanin/source/receive_preface.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"

namespace fanin::source {
namespace {

struct FaultText {
  std::string_view name;
  std::string_view meaning;
};

static_assert(receive_version == 1, "it stands in the meaning of other_version");
constexpr std::array<FaultText, receive_faults> fault_texts{{
    {"none", "no fault"},
    {"bad_preface", "it is no sender of fragments, or its first bytes were damaged on the way"},
    {"other_version", "only version 1 of the format is known here"},
    {"other_source", "it has data of another source"},
    {"bad_mark", "no header where one must be: a size was wrong, or bytes are missing"},
    {"bad_kind", "a header has an unknown kind or flags"},
    {"bad_size", "a header has a size that cannot be"},
    {"cut_short", "it ended, or stood still, within a message"},
    {"no_preface", "it did not say in time what it sends, and others waited"},
    {"not_allowed", "its address is not on the list `allow`"},
    {"damaged", "a checksum differs"},
    {"after_end", "bytes follow its end of the data, and are not read"},
    {"other_run", "it sends for another run"},
}};

} // namespace

std::string_view name(ReceiveFault fault) {
  return fault_texts[static_cast<std::size_t>(fault)].name;
}

std::string described(ReceiveFault fault) {
  return fmt::format("{}: {}", name(fault), fault_texts[static_cast<std::size_t>(fault)].meaning);
}

std::span<std::byte> PrefaceReader::room() {
  return std::span(bytes_).subspan(size_, wanted_ - size_);
}

void PrefaceReader::received(std::size_t bytes) {
  FANIN_ASSERT(bytes <= room().size());
  size_ += bytes;
  if (!complete()) return;
  std::memcpy(&preface_, bytes_.data(), std::min(size_, sizeof preface_));
  const ReceivePreface& common = this->common();
  const auto size_of = [](ReceiveForm form) {
    return form == ReceiveForm::group ? sizeof(CheckedBytes<GroupPreface>)
                                      : sizeof(CheckedBytes<ReliablePreface>);
  };
  if (common.magic != ReceivePreface{}.magic) {
    fault_ = ReceiveFault::bad_preface;
  } else if (common.version != receive_version) {
    fault_ = ReceiveFault::other_version;
  } else if (common.form == ReceiveForm::plain) {
    return;
  } else if (common.form != ReceiveForm::reliable && common.form != ReceiveForm::group) {
    fault_ = ReceiveFault::bad_preface;
  } else if (wanted_ < size_of(common.form)) {
    wanted_ = size_of(common.form);
  } else if (!own_checksum_fits(std::span(bytes_).first(wanted_)) || sender() == 0) {
    fault_ = ReceiveFault::bad_preface;
  }
}

} // namespace fanin::source
