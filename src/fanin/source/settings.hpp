/// \file
/// The settings of one source in the configuration, as text, and a reader that turns them into
/// values. The reader's errors name file, line, key and reason. Plug-ins use it too.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"
#include "fanin/settings/reader.hpp"

namespace fanin::net {
class Streams;
}

namespace fanin::source {

struct SourceSettings {
  SourceId id = 0;
  std::string name; ///< human-readable
  std::string type; ///< "emulator", "hld", ..., as registered
  std::string key; ///< name of its table: "readout.0.source.1"; may be empty
  settings::Place place; ///< where it is described
  std::uint64_t seed = 1; ///< seed of the run; a source mixes its id in
  std::map<std::string, settings::Setting> values; ///< of the type's own keys
  std::span<const std::string_view> common_keys; ///< what fanin reads itself, whatever the type
  LogFunction log; ///< gets the log lines of the source; may be empty
  net::Streams* streams = nullptr; ///< of its node, for built-in sources; outlives them
};

/// Reads keys one by one, as settings::TableReader does. The first error is kept, and later reads
/// return fallbacks; so a factory reads all its keys without checks and calls finish() once.
///
///     SettingsReader reader(settings);
///     options.path = reader.required_text("path");
///     options.rate_hz = reader.rate_hz("rate", 0);
///     if (auto good = reader.finish(); !good) return std::unexpected(good.error());
class FANIN_API SettingsReader {
public:
  explicit SettingsReader(const SourceSettings& settings);
  SettingsReader(const SettingsReader&) = delete;
  SettingsReader& operator=(const SettingsReader&) = delete;

  /// Whether the key is there. finish() then counts it as known.
  [[nodiscard]] bool has(std::string_view key) { return reader_.has(key); }
  [[nodiscard]] std::string text(std::string_view key, std::string fallback = {}) {
    return reader_.text(key, std::move(fallback));
  }
  [[nodiscard]] std::string required_text(std::string_view key);
  [[nodiscard]] std::uint64_t size(std::string_view key, std::uint64_t fallback) { // bytes
    return reader_.size(key, fallback);
  }
  [[nodiscard]] double rate_hz(std::string_view key, double fallback) {
    return reader_.rate_hz(key, fallback);
  }
  [[nodiscard]] Duration duration(std::string_view key, Duration fallback) {
    return reader_.duration(key, fallback);
  }
  /// Decimal, or hexadecimal as in 0xe000.
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback,
                                     std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                                     std::int64_t max = std::numeric_limits<std::int64_t>::max()) {
    return reader_.signed_integer(key, fallback, min, max);
  }
  [[nodiscard]] bool boolean(std::string_view key, bool fallback) {
    return reader_.boolean(key, fallback);
  }
  /// The index in `names` of the value; the first if the key is absent.
  [[nodiscard]] std::size_t choice(std::string_view key,
                                   std::initializer_list<std::string_view> names) {
    return reader_.choice(key, names);
  }

  /// File, line and dotted key, for later messages.
  [[nodiscard]] std::string where(std::string_view key) const { return reader_.where(key); }
  /// Keeps an error for the value of `key`, unless there is one already.
  void reject(std::string_view key, std::string_view reason) { reader_.reject(key, reason); }
  /// Keeps an error for `key`, which is not there, unless there is one already. A key that is
  /// similar and unknown is named instead.
  void reject_missing(std::string_view key, std::string_view reason) {
    reader_.reject_missing(key, reason);
  }
  /// The first error, or an unknown key. Kind: usage.
  [[nodiscard]] Result<> finish();

private:
  settings::Value table_;
  settings::Problems problems_;
  settings::TableReader reader_;
};

/// "there is no source 9 (0x9); there are: 0x100, 0x101": a reason to reject a key.
[[nodiscard]] FANIN_API std::string no_such_source(SourceId id, std::span<const SourceId> known);

} // namespace fanin::source
