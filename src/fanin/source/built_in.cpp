// The table of the sources that come with fanin, and how each reads its settings.
#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "fanin/base/assert.hpp"
#include "fanin/base/units.hpp"
#include "fanin/source/emulator.hpp"
#include "fanin/source/hld_source.hpp"
#include "fanin/source/receive_source.hpp"
#include "fanin/source/registry.hpp"
#include "fanin/source/sls_source.hpp"

namespace fanin::source {
namespace {

using Made = Result<std::unique_ptr<Source>>;

constexpr std::int64_t offset_max = std::int64_t{1} << 62;
constexpr std::uint64_t size_max = wire::fragment_size_mask;

std::uint64_t natural(SettingsReader& reader, std::string_view key, std::int64_t fallback) {
  return static_cast<std::uint64_t>(
      reader.integer(key, fallback, 0, std::numeric_limits<std::int64_t>::max()));
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

struct Call { // name(first, second)
  std::string_view name;
  std::string_view first;
  std::string_view second;
};

std::optional<Call> parse_call(std::string_view text) {
  const auto open = text.find('(');
  const auto comma = text.find(',');
  if (open == std::string_view::npos || comma == std::string_view::npos || comma < open ||
      !text.ends_with(')')) {
    return std::nullopt;
  }
  return Call{trimmed(text.substr(0, open)), trimmed(text.substr(open + 1, comma - open - 1)),
              trimmed(text.substr(comma + 1, text.size() - comma - 2))};
}

// "2KiB", "uniform(100B, 3KiB)" or "lognormal(2KiB, 1KiB)": mean and standard deviation.
Result<SizeDistribution> parse_size_distribution(std::string_view text) {
  const auto bounded = [](std::string_view part) -> Result<std::uint32_t> {
    const auto size = parse_size(part);
    if (!size) return std::unexpected(size.error());
    if (*size > size_max) {
      return fail(ErrorKind::usage,
                  fmt::format("{} is over the maximum of a fragment, {}B", part, size_max));
    }
    return static_cast<std::uint32_t>(*size);
  };
  if (text.find('(') == std::string_view::npos) {
    const auto size = bounded(text);
    if (!size) return std::unexpected(size.error());
    return FixedSize{*size};
  }
  const auto call = parse_call(text);
  if (!call || (call->name != "uniform" && call->name != "lognormal")) {
    return fail(
        ErrorKind::usage,
        fmt::format("\"{}\" is none of 2KiB, uniform(100B, 3KiB), lognormal(2KiB, 1KiB)", text));
  }
  const auto first = bounded(call->first);
  if (!first) return std::unexpected(first.error());
  const auto second = bounded(call->second);
  if (!second) return std::unexpected(second.error());
  if (call->name == "uniform") {
    if (*first <= *second) return UniformSize{*first, *second};
    return fail(ErrorKind::usage, fmt::format("{} is more than {}", call->first, call->second));
  }
  if (*first == 0) return fail(ErrorKind::usage, "a log-normal mean must be above 0B");
  if (*second / 100 > *first) {
    return fail(ErrorKind::usage,
                fmt::format("the standard deviation {} is more than 100 times the "
                            "mean {}",
                            call->second, call->first));
  }
  return LogNormalSize{static_cast<double>(*first), static_cast<double>(*second)};
}

Made make_emulator(const SourceSettings& settings) {
  SettingsReader reader(settings);
  EmulatorOptions options;
  options.source = settings.id;
  options.seed = settings.seed;
  if (auto size = parse_size_distribution(reader.text("size", "1KiB"))) {
    options.size = *size;
  } else {
    reader.reject("size", size.error().text);
  }
  options.rate_hz = reader.rate_hz("rate", 0);
  options.first_event = natural(reader, "first_event", 0);
  options.event_count = natural(reader, "events", 0);
  options.content = reader.choice("content", {"pattern", "untouched"}) == 0
                        ? EmulatedContent::pattern
                        : EmulatedContent::untouched;
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  return std::make_unique<Emulator>(options);
}

ReplayOptions replay_options(SettingsReader& reader) {
  ReplayOptions options;
  options.loops = natural(reader, "loops", 1);
  options.offset = reader.integer("offset", 0, -offset_max, offset_max);
  options.span = natural(reader, "loop_span", 0);
  options.rate_hz = reader.rate_hz("rate", 0);
  return options;
}

Made make_hld(const SourceSettings& settings) {
  SettingsReader reader(settings);
  HldOptions options;
  options.path = reader.required_text("path");
  if (!reader.has("address")) reader.reject("address", "is missing; as in 0xe000");
  options.address = static_cast<std::uint16_t>(reader.integer("address", 0, 0, 0xffff));
  if (options.address == hld_trailer_address) {
    reader.reject("address", "0x5555 is the trailer of the recording event builder, not a source");
  }
  options.key =
      reader.choice("key", {"trigger", "sequence"}) == 0 ? HldKey::trigger : HldKey::sequence;
  options.replay = replay_options(reader);
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
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
    reader.reject("image_size", "give either image_size or master, the file that tells it");
  }
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  if (!sized) {
    const auto size = read_sls_image_size(master);
    if (!size) return std::unexpected(size.error());
    options.image_size = *size;
  }
  return SlsSource::make(options);
}

Made make_receive(const SourceSettings& settings) {
  SettingsReader reader(settings);
  ReceiveOptions options;
  options.source = settings.id;
  options.log = settings.log;
  options.check = reader.boolean("check", true);
  const std::string url = reader.required_text("listen");
  if (auto parsed = net::Url::parse(url); !parsed) {
    reader.reject("listen", parsed.error().text);
  } else if (parsed->scheme != "tcp") {
    reader.reject("listen", "fragments are received over TCP: write tcp://host:port");
  } else {
    options.listen = *parsed;
  }
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
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
  add("receive", make_receive);
}

} // namespace fanin::source
