#include "fanin/source/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "fanin/source/emulator.hpp"
#include "fanin/source/testing/recorded.hpp"

namespace fanin::source {
namespace {

using ::testing::HasSubstr;
using testing::QueueFixture;
using ::testing::StartsWith;

SourceSettings settings_of(std::string type,
                           const std::map<std::string, std::string>& values = {}) {
  SourceSettings settings;
  settings.id = 7;
  settings.type = std::move(type);
  settings.key = "readout.0.source.0";
  settings.place = {"run.toml", 10};
  std::uint32_t line = 10;
  for (const auto& [key, value] : values) settings.values[key] = {value, {"run.toml", ++line}};
  return settings;
}

Registry built_in() {
  Registry registry;
  add_built_in_sources(registry);
  return registry;
}

// The error of making such a source.
std::string error_of(const std::string& type, const std::map<std::string, std::string>& values,
                     ErrorKind kind = ErrorKind::usage) {
  const auto made = built_in().make(settings_of(type, values));
  if (made) return "no error";
  EXPECT_EQ(made.error().kind, kind) << made.error().text;
  return made.error().text;
}

TEST(Registry, the_built_in_types_are_there) {
  EXPECT_EQ(built_in().types(), (std::vector<std::string>{"emulator", "hld", "receive", "sls"}));
}

TEST(Registry, an_unknown_type_names_the_known_ones) {
  EXPECT_EQ(error_of("emu", {}), "run.toml:10: readout.0.source.0.type: there is no source of type "
                                 "\"emu\"; known: emulator, hld, receive, sls");
}

TEST(Registry, an_unknown_key_says_file_line_key_and_the_known_ones) {
  const std::string error = error_of("emulator", {{"colour", "red"}});
  EXPECT_THAT(error,
              StartsWith("run.toml:11: readout.0.source.0.colour: unknown key; known here: "));
  EXPECT_THAT(error, HasSubstr("rate"));
  EXPECT_THAT(error_of("emulator", {{"rat", "1kHz"}}), HasSubstr("did you mean rate?"));
}

TEST(Registry, an_unknown_key_that_is_like_one_of_all_types_is_taken_for_it) {
  constexpr auto common = std::to_array<std::string_view>({"fragment_max", "required"});
  SourceSettings settings = settings_of("emulator", {{"fragmentmax", "4KiB"}});
  settings.common_keys = common;
  const auto made = built_in().make(settings);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().text, "run.toml:11: readout.0.source.0.fragmentmax: unknown key; did you "
                               "mean fragment_max?");
}

TEST(Registry, an_unknown_key_comes_before_a_missing_one) {
  EXPECT_EQ(error_of("receive", {{"lisent", "tcp://127.0.0.1:1"}}),
            "run.toml:11: readout.0.source.0.lisent: unknown key; did you mean listen?");
  EXPECT_THAT(error_of("receive", {{"where", "tcp://127.0.0.1:1"}}),
              StartsWith("run.toml:11: readout.0.source.0.where: unknown key; known here: "));
}

TEST(Registry, an_override_that_has_named_the_type_is_at_fault_for_keys_of_another_one) {
  SourceSettings settings = settings_of("emulator", {{"path", "x.hld"}});
  settings.place = {"--set", 2};
  const auto made = built_in().make(settings);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().text, StartsWith("--set:2: readout.0.source.0.path: unknown key; "));
  settings.values["rat"] = {"1kHz", {"--set", 3}};
  settings.values.erase("path");
  EXPECT_EQ(built_in().make(settings).error().text,
            "--set:3: readout.0.source.0.rat: unknown key; did you mean rate?");
}

TEST(Registry, a_missing_unit_names_the_units) {
  EXPECT_THAT(error_of("emulator", {{"size", "200"}}),
              StartsWith("run.toml:11: readout.0.source.0.size: "));
  EXPECT_THAT(error_of("emulator", {{"size", "200"}}), HasSubstr("KiB"));
  EXPECT_THAT(error_of("emulator", {{"rate", "100"}}), HasSubstr("kHz"));
}

TEST(Registry, impossible_values_are_errors) {
  EXPECT_THAT(error_of("emulator", {{"size", "1GiB"}}), HasSubstr("size: is over 256MiB"));
  EXPECT_THAT(error_of("emulator", {{"size", "1kB"}, {"size_mean", "1kB"}}),
              HasSubstr("give one of"));
  EXPECT_THAT(error_of("emulator", {{"size_min", "2kB"}, {"size_max", "1kB"}}),
              HasSubstr("size_max: must not be below size_min"));
  EXPECT_THAT(error_of("emulator", {{"size_min", "2kB"}}),
              HasSubstr("size_max: is missing beside size_min"));
  EXPECT_THAT(error_of("emulator", {{"size_sigma", "2kB"}}),
              HasSubstr("size_mean: is missing beside size_sigma"));
  EXPECT_THAT(error_of("emulator", {{"size_meen", "2kB"}, {"size_sigma", "2kB"}}),
              HasSubstr("size_meen: unknown key; did you mean size_mean?"));
  EXPECT_THAT(error_of("emulator", {{"size_mean", "0B"}}),
              HasSubstr("size_mean: must be above 0B"));
  EXPECT_THAT(error_of("emulator", {{"size_mean", "1B"}, {"size_sigma", "1kB"}}),
              HasSubstr("more than 100 times size_mean"));
  EXPECT_THAT(error_of("emulator", {{"content", "noise"}}),
              HasSubstr("none of \"pattern\", \"untouched\""));
  EXPECT_THAT(error_of("emulator", {{"events", "-1"}}),
              HasSubstr("events: -1 is not a whole number from 0"));
  EXPECT_THAT(error_of("emulator", {{"events", "ten"}}), HasSubstr("not a whole number"));
  EXPECT_THAT(error_of("hld", {{"address", "0xe000"}}),
              HasSubstr("run.toml:10: readout.0.source.0.path: is missing"));
  EXPECT_THAT(error_of("hld", {{"path", "x.hld"}}), HasSubstr("address: is missing"));
  EXPECT_THAT(error_of("hld", {{"path", "x.hld"}, {"address", "0x5555"}}), HasSubstr("trailer"));
  EXPECT_THAT(error_of("hld", {{"path", "x.hld"}, {"address", "65536"}}),
              HasSubstr("address: 65536"));
  EXPECT_THAT(error_of("sls", {{"path", "x.raw"}}), HasSubstr("image_size"));
  EXPECT_THAT(error_of("sls", {{"path", "x.raw"}, {"image_size", "1kB"}, {"master", "m"}}),
              HasSubstr("either image_size or master"));
  EXPECT_THAT(error_of("receive", {}), HasSubstr("listen: is missing"));
  EXPECT_THAT(error_of("receive", {{"listen", "shm://x"}}), HasSubstr("tcp://host:port"));
  EXPECT_THAT(error_of("receive", {{"listen", "tcp://h:1?congestion=bbr"}}),
              HasSubstr("listen: \"?congestion\": this address has no options"));
  EXPECT_THAT(error_of("receive", {{"listen", "tcp://h:1"}, {"check", "maybe"}}),
              HasSubstr("check: \"maybe\" is neither true nor false"));
}

TEST(Registry, a_missing_file_is_not_found) {
  EXPECT_THAT(error_of("hld", {{"path", "/no/such.hld"}, {"address", "1"}}, ErrorKind::not_found),
              HasSubstr("/no/such.hld"));
}

TEST(Registry, settings_reach_the_source) {
  const auto made = built_in().make(
      settings_of("emulator", {{"size_mean", "2KiB"}, {"size_sigma", "1KiB"}, {"events", "5"}}));
  ASSERT_TRUE(made) << made.error().text;
  QueueFixture fixture({.source = 7, .window = 64});
  ASSERT_TRUE((*made)->start(0, Time{}));
  EXPECT_EQ((*made)->read(fixture.queue, Time{}).state, ReadState::finished);
  const SizeTable sizes(LogNormalSize{2048, 1024}, 7, 1);
  for (EventNumber event = 0; event < 5; ++event) {
    EXPECT_EQ(fixture.queue.entry(event).size(), sizes(event));
    EXPECT_TRUE(check_emulated_payload(testing::payload_of(fixture.queue, event), event, 7));
  }
}

TEST(Registry, a_type_is_registered_once) {
  Registry registry = built_in();
  const auto again = registry.add("hld", nullptr);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::usage);
}

TEST(Registry, an_exception_of_a_factory_is_an_error) {
  Registry registry;
  ASSERT_TRUE(registry.add("bad", [](const SourceSettings&) -> Result<std::unique_ptr<Source>> {
    throw std::runtime_error("no such board");
  }));
  const auto made = registry.make(settings_of("bad"));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().text, HasSubstr("it threw an exception: no such board"));
  Registry empty;
  ASSERT_TRUE(empty.add(
      "none", [](const SourceSettings&) -> Result<std::unique_ptr<Source>> { return nullptr; }));
  EXPECT_FALSE(empty.make(settings_of("none")));
}

} // namespace
} // namespace fanin::source
