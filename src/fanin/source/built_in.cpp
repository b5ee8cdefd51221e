// The table of the sources that come with fanin, and how each reads its settings.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/source/emulator.hpp"
#include "fanin/source/hld_source.hpp"
#include "fanin/source/receive_source.hpp"
#include "fanin/source/registry.hpp"
#include "fanin/source/sls_source.hpp"

namespace fanin::source {
namespace {

using Made = Result<std::unique_ptr<Source>>;

constexpr std::uint64_t size_max = wire::fragment_size_mask;

std::uint64_t natural(SettingsReader& reader, std::string_view key, std::int64_t fallback) {
  return static_cast<std::uint64_t>(
      reader.integer(key, fallback, 0, std::numeric_limits<std::int64_t>::max()));
}

std::uint32_t fragment_size(SettingsReader& reader, std::string_view key, std::uint32_t fallback) {
  const std::uint64_t size = reader.size(key, fallback);
  if (size > size_max) reader.reject(key, "is over 256MiB - 1B, the most that a fragment can be");
  return static_cast<std::uint32_t>(std::min(size, size_max));
}

// size = "2KiB", or size_min and size_max (uniform), or size_mean and size_sigma (log-normal).
SizeDistribution size_distribution(SettingsReader& reader) {
  const bool fixed = reader.has("size");
  const bool uniform = reader.has("size_min") || reader.has("size_max");
  const bool lognormal = reader.has("size_mean") || reader.has("size_sigma");
  const std::uint32_t size = fragment_size(reader, "size", emulated_size_default);
  const UniformSize range{fragment_size(reader, "size_min", 0),
                          fragment_size(reader, "size_max", 0)};
  const std::uint32_t mean = fragment_size(reader, "size_mean", 1);
  const std::uint32_t sigma = fragment_size(reader, "size_sigma", 0);
  if (fixed + uniform + lognormal > 1) {
    reader.reject(uniform ? "size_max" : "size_mean",
                  "give one of: size; size_min and size_max; size_mean and size_sigma");
  } else if (uniform && !reader.has("size_max")) {
    reader.reject_missing("size_max", "is missing beside size_min");
  } else if (uniform && range.min_bytes > range.max_bytes) {
    reader.reject("size_max", "must not be below size_min");
  } else if (lognormal && !reader.has("size_mean")) {
    reader.reject_missing("size_mean", "is missing beside size_sigma");
  } else if (lognormal && mean == 0) {
    reader.reject("size_mean", "must be above 0B");
  } else if (lognormal && sigma / 100 > mean) {
    reader.reject("size_sigma", "is more than 100 times size_mean");
  } else if (uniform) {
    return range;
  } else if (lognormal) {
    return LogNormalSize{static_cast<double>(mean), static_cast<double>(sigma)};
  }
  return FixedSize{size};
}

Made make_emulator(const SourceSettings& settings) {
  SettingsReader reader(settings);
  EmulatorOptions options;
  options.source = settings.id;
  options.seed = settings.seed;
  options.size = size_distribution(reader);
  options.rate_hz = reader.rate_hz("rate", 0);
  options.first_event = natural(reader, "first_event", 0);
  options.event_count = natural(reader, "events", 0);
  options.content = reader.choice("content", {"pattern", "untouched"}) == 0
                        ? EmulatedContent::pattern
                        : EmulatedContent::untouched;
  FANIN_TRY(reader.finish());
  return std::make_unique<Emulator>(options);
}

ReplayOptions replay_options(SettingsReader& reader) {
  ReplayOptions options;
  options.loops = natural(reader, "loops", 1);
  options.span = natural(reader, "loop_span", 0);
  options.rate_hz = reader.rate_hz("rate", 0);
  return options;
}

Made make_hld(const SourceSettings& settings) {
  SettingsReader reader(settings);
  HldOptions options;
  options.path = reader.required_text("path");
  if (!reader.has("address")) reader.reject_missing("address", "is missing, as in 0xe000");
  options.address = static_cast<std::uint16_t>(reader.integer("address", 0, 0, 0xffff));
  if (options.address == hld_trailer_address) {
    reader.reject("address", "0x5555 is the trailer of the recording event builder, not a source");
  }
  options.key =
      reader.choice("key", {"trigger", "sequence"}) == 0 ? HldKey::trigger : HldKey::sequence;
  options.replay = replay_options(reader);
  FANIN_TRY(reader.finish());
  return HldSource::make(options);
}

Made make_sls(const SourceSettings& settings) {
  SettingsReader reader(settings);
  SlsOptions options;
  options.files.text = reader.required_text("path");
  options.files.part = static_cast<std::uint32_t>(reader.integer("part", 0, 0, 0xffffffff));
  const std::string master = reader.text("master");
  const bool sized = reader.has("image_size");
  options.image_size = reader.size("image_size", 0); // its limit: SlsReader
  options.replay = replay_options(reader);
  if (sized != master.empty()) {
    reader.reject("image_size", "give either image_size or master, the file that says it");
  }
  FANIN_TRY(reader.finish());
  if (!sized) options.image_size = FANIN_TRY(read_sls_image_size(master));
  return SlsSource::make(options);
}

Made make_receive(const SourceSettings& settings, ReceivePorts& ports) {
  SettingsReader reader(settings);
  ReceiveOptions options;
  options.source = settings.id;
  options.log = settings.log;
  options.check = reader.boolean("check", true);
  options.wait_for_sender = reader.boolean("wait_for_sender", false);
  if (reader.has("allow")) {
    if (auto allowed = AllowedNetworks::parse(reader.text("allow"))) {
      options.allow = *allowed;
    } else {
      reader.reject("allow", allowed.error().text);
    }
  }
  const std::string url = reader.required_text("listen");
  const auto parsed = net::Url::parse(url);
  if (!parsed) {
    reader.reject("listen", parsed.error().text);
  } else if (parsed->scheme != "tcp") {
    reader.reject("listen", "fragments are received over TCP: write tcp://host:port");
  } else if (!parsed->options.empty()) {
    reader.reject("listen", fmt::format("\"?{}\": this address has no options",
                                        parsed->options.begin()->first));
  }
  FANIN_TRY(reader.finish());
  options.listen_from = reader.where("listen");
  FANIN_ASSERT(settings.streams != nullptr);
  options.port = FANIN_TRY(ports.at(*parsed, *settings.streams));
  return ReceiveSource::make(std::move(options));
}

} // namespace

void add_built_in_sources(Registry& registry) {
  const auto add = [&registry](const char* type, SourceFactory factory) {
    const auto added = registry.add(type, std::move(factory));
    FANIN_ASSERT(added); // once per registry, before any plug-in
  };
  add("emulator", make_emulator);
  add("hld", make_hld);
  add("sls", make_sls);
  add("receive", [ports = std::make_shared<ReceivePorts>()](const SourceSettings& settings) {
    return make_receive(settings, *ports);
  });
}

} // namespace fanin::source
