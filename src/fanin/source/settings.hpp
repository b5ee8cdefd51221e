// What the configuration says about one source, still as text, and a reader that turns it into
// values. The reader's errors say file, line, key and reason; it is meant for plug-ins too.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "fanin/base/clock.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"

namespace fanin::source {

// One value as it was written, without quotes: "64KiB", "0xe000", "true".
struct Setting {
  std::string value;
  std::string file; // where it was written; empty: nowhere, as in a test
  std::uint32_t line = 0;
};

struct SourceSettings {
  SourceId id = 0;
  std::string name; // for people
  std::string type; // "emulator", "hld", ..., as registered
  std::string file; // where the source is described
  std::uint32_t line = 0;
  std::uint64_t seed = 1;                // of the run; a source mixes its id in
  std::map<std::string, Setting> values; // of the type's own keys
  LogFunction log;                       // for what the source tells people; may be empty
};

// Reads keys one by one; the first thing wrong is kept and what follows gives fallbacks, so that a
// factory reads all its keys in a row and asks finish() once.
//
//   SettingsReader reader(settings);
//   options.path = reader.required_text("path");
//   options.rate_hz = reader.rate_hz("rate", 0);
//   if (auto good = reader.finish(); !good) return std::unexpected(good.error());
class SettingsReader {
public:
  // `settings` must outlive the reader.
  explicit SettingsReader(const SourceSettings& settings) : settings_(settings) {}

  [[nodiscard]] bool has(std::string_view key); // marks the key as known
  [[nodiscard]] std::string text(std::string_view key, std::string_view fallback = {});
  [[nodiscard]] std::string required_text(std::string_view key);
  [[nodiscard]] std::uint64_t size(std::string_view key, std::uint64_t fallback); // bytes
  [[nodiscard]] double rate_hz(std::string_view key, double fallback);
  [[nodiscard]] Duration duration(std::string_view key, Duration fallback);
  // Decimal, or hexadecimal as in 0xe000.
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback,
                                     std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                                     std::int64_t max = std::numeric_limits<std::int64_t>::max());
  [[nodiscard]] bool boolean(std::string_view key, bool fallback);
  // Which of `names` was written, by index; the first if the key is absent.
  [[nodiscard]] std::size_t choice(std::string_view key,
                                   std::initializer_list<std::string_view> names);

  // The value of `key` cannot be: kept as the error, unless there is one already.
  void reject(std::string_view key, std::string_view reason);
  // The first error, or an unknown key. Kind: usage.
  [[nodiscard]] Result<> finish();

private:
  [[nodiscard]] const Setting* find(std::string_view key);
  [[nodiscard]] Error error(std::string_view key, std::string_view reason) const;

  const SourceSettings& settings_;
  std::set<std::string, std::less<>> known_;
  Result<> result_;
};

} // namespace fanin::source
