#include "fanin/storage/sink_registry.hpp"

#include <stdexcept>

#include <gtest/gtest.h>

namespace fanin::storage {
namespace {

source::SourceSettings sink_of(const std::string& type) {
  source::SourceSettings settings;
  settings.type = type;
  settings.key = "storage";
  settings.place = {"run.toml", 7};
  return settings;
}

TEST(SinkRegistry, an_error_names_the_place_in_the_configuration) {
  SinkRegistry sinks;
  ASSERT_TRUE(sinks.add("bad", [](const source::SourceSettings&) -> Result<SinkMaker> {
    throw std::runtime_error("no tape");
  }));
  ASSERT_TRUE(sinks.add(
      "none", [](const source::SourceSettings&) -> Result<SinkMaker> { return SinkMaker{}; }));
  EXPECT_EQ(sinks.find(sink_of("bad")).error().text,
            "run.toml:7: storage.sink: it threw an exception: no tape");
  EXPECT_EQ(sinks.find(sink_of("none")).error().text,
            "run.toml:7: storage.sink: the plug-in made no sink");
  EXPECT_EQ(sinks.find(sink_of("other")).error().text,
            "run.toml:7: storage.sink: no plug-in has a sink \"other\"");
}

} // namespace
} // namespace fanin::storage
