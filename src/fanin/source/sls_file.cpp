#include "fanin/source/sls_file.hpp"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

#include "fanin/base/try.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::source {
namespace {

void replace(std::string& text, std::string_view what, std::uint32_t number) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what)) {
    text.replace(at, what.size(), std::to_string(number));
  }
}

} // namespace

SlsHeader SlsHeader::decode(std::span<const std::byte, sls_header_size> bytes) {
  static_assert(std::endian::native == std::endian::little);
  SlsHeader header;
  std::memcpy(&header.frame, bytes.data(), sizeof header.frame);
  std::memcpy(&header.packets_caught, bytes.data() + 12, sizeof header.packets_caught);
  return header;
}

std::string SlsPattern::path(std::uint32_t file) const {
  std::string result = text;
  replace(result, "{part}", part);
  replace(result, "{file}", file);
  return result;
}

bool SlsPattern::several_files() const { return text.find("{file}") != std::string::npos; }

std::optional<std::uint64_t> find_sls_image_size(std::string_view master) {
  const auto key = master.find("Image Size");
  if (key == std::string_view::npos) return std::nullopt;
  const auto colon = master.find(':', key);
  if (colon == std::string_view::npos) return std::nullopt;
  const auto digit = master.find_first_not_of(" \t", colon + 1);
  if (digit == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto [stop, code] =
      std::from_chars(master.data() + digit, master.data() + master.size(), value);
  if (code != std::errc{}) return std::nullopt;
  return value;
}

Result<std::uint64_t> read_sls_image_size(const std::string& master_path) {
  constexpr std::uint64_t master_bytes_max = 1U << 20;
  FileWindow file = FANIN_TRY(FileWindow::open(master_path));
  const auto bytes = FANIN_TRY(file.at(0, std::min(file.size(), master_bytes_max)));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto size = find_sls_image_size(text);
  if (!size) return fail(ErrorKind::malformed, master_path + ": no \"Image Size\" in it");
  return *size;
}

Result<SlsReader> SlsReader::over(FileWindow file, std::uint64_t image_size) {
  if (image_size > wire::fragment_size_mask - sls_header_size) {
    return fail(ErrorKind::refused,
                fmt::format("image size {} is over the maximum of a fragment, {}", image_size,
                            wire::fragment_size_mask));
  }
  SlsReader reader(std::move(file), image_size);
  FANIN_TRY(reader.check_size());
  return reader;
}

Result<SlsReader> SlsReader::open(const SlsPattern& pattern, std::uint64_t image_size) {
  FileWindow file = FANIN_TRY(FileWindow::open(pattern.path(0)));
  auto reader = over(std::move(file), image_size);
  if (reader) reader->pattern_ = pattern;
  return reader;
}

Result<> SlsReader::check_size() const {
  const std::uint64_t rest = file_.size() % record_size_;
  if (rest == 0) return {};
  return file_.wrong(
      file_.size() - rest,
      fmt::format("{} bytes are left over: the file is not a whole number of records "
                  "of {} bytes (is the image size right?)",
                  rest, record_size_));
}

Result<bool> SlsReader::next() {
  while (next_ == file_.size()) {
    if (!pattern_ || !pattern_->several_files()) return false;
    auto file = FileWindow::open(pattern_->path(file_index_ + 1));
    if (!file && file.error().kind == ErrorKind::not_found) return false;
    if (!file) return std::unexpected(file.error());
    std::swap(file_, *file);
    if (auto good = check_size(); !good) {
      std::swap(file_, *file);
      return std::unexpected(good.error());
    }
    ++file_index_;
    next_ = 0;
  }
  std::array<std::byte, sls_header_size> bytes;
  FANIN_TRY(file_.read(next_, bytes));
  header_ = SlsHeader::decode(bytes);
  offset_ = next_;
  next_ += record_size_;
  return true;
}

Result<> SlsReader::read(std::uint64_t from, std::span<std::byte> out) const {
  return file_.read(offset_ + from, out);
}

Result<> SlsReader::rewind() {
  if (pattern_ && file_index_ != 0) {
    file_ = FANIN_TRY(FileWindow::open(pattern_->path(0)));
    file_index_ = 0;
    if (auto good = check_size(); !good) return good;
  }
  next_ = 0;
  return {};
}

} // namespace fanin::source
