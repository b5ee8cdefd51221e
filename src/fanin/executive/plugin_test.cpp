#include "fanin/executive/plugin.hpp"

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/executive/plugins.hpp"
#include "fanin/source/testing/recorded.hpp"

namespace fanin::executive {
namespace {

using ::testing::HasSubstr;

struct Plugin : ::testing::Test {
  Plugins plugins = *Plugins::load({});
  PluginRegistry registry{plugins.sources, plugins.transports, plugins.applications,
                          plugins.filters, plugins.sinks};
};

TEST_F(Plugin, adds_a_source) {
  const auto loaded = load_plugin(FANIN_TEST_PLUGIN_CONSTANT, registry);
  ASSERT_TRUE(loaded) << loaded.error().text;
  source::SourceSettings settings;
  settings.id = 7;
  settings.type = "test_constant";
  settings.values["value"] = {"42", {"run.toml", 11}};
  const auto made = plugins.sources.make(settings);
  ASSERT_TRUE(made) << made.error().text;
  source::testing::QueueFixture fixture({.source = 7, .window = 64});
  ASSERT_TRUE((*made)->start(0, Time{}));
  EXPECT_EQ((*made)->read(fixture.queue, Time{}).state, source::ReadState::finished);
  fixture.end_held(); // its only number
  EXPECT_EQ(source::testing::payload_of(fixture.queue, 0),
            source::testing::Bytes(8, std::byte{42}));
}

TEST_F(Plugin, that_is_wrong_is_refused_with_the_reason) {
  const auto error = [this](const std::string& path) {
    const auto loaded = load_plugin(path, registry);
    return loaded ? Error{} : loaded.error();
  };
  EXPECT_EQ(error("/no/such/plugin.so").kind, ErrorKind::not_found);
  EXPECT_THAT(error("/no/such/plugin.so").text, HasSubstr("/no/such/plugin.so"));
  EXPECT_EQ(error(FANIN_TEST_PLUGIN_OF_ANOTHER_ABI).kind, ErrorKind::unsupported);
  EXPECT_THAT(error(FANIN_TEST_PLUGIN_OF_ANOTHER_ABI).text,
              HasSubstr("built for plug-in ABI 1000"));
  EXPECT_THAT(error(FANIN_TEST_NO_PLUGIN).text, HasSubstr("no plug-in of fanin"));
  ASSERT_TRUE(load_plugin(FANIN_TEST_PLUGIN_CONSTANT, registry));
  EXPECT_EQ(error(FANIN_TEST_PLUGIN_CONSTANT).kind, ErrorKind::usage); // its name is taken
}

TEST_F(Plugin, that_is_a_pipe_without_a_writer_is_not_waited_for) {
  const source::testing::TemporaryFolder folder;
  const std::string pipe = folder.file("plugin.so");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto loaded = load_plugin(pipe, registry);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().text, HasSubstr("plugin.so: is a pipe, not a file"));
}

} // namespace
} // namespace fanin::executive
