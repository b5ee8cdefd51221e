#include "fanin/operation/registry.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fanin::operation {
namespace {

using ::testing::HasSubstr;
using Access = Database::Access;

class Registries : public ::testing::Test {
protected:
  Registries() { folder_ = mkdtemp(name_.data()); }
  ~Registries() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return folder_ + "/runs.sqlite"; }
  [[nodiscard]] Registry open(Access access = Access::write) const {
    auto registry = Registry::open(path(), access);
    EXPECT_TRUE(registry.has_value()) << registry.error().text;
    return std::move(*registry);
  }
  [[nodiscard]] std::string error() const {
    const auto registry = Registry::open(path(), Access::write);
    return registry ? "" : registry.error().text;
  }
  static Result<RunNumber> any(RunNumber least) { return least; }
  static NewRun run(std::string kind = "physics") {
    return {.id = 0x1234567890abcdef,
            .kind = std::move(kind),
            .comment = "beam 150 GeV",
            .who = "shifter",
            .host = "daq1",
            .configurations = {{"run.toml", "[run]\noutput = \"x\"\n", {"run.events=3"}}},
            .unix_ns = 10};
  }

  std::string folder_;

private:
  std::string name_ = "/tmp/fanin-registry-XXXXXX";
};

TEST_F(Registries, keep_what_a_run_was) {
  Registry registry = open();
  ASSERT_EQ(registry.reserve(run(), any), 1U);
  ASSERT_TRUE(registry.begun(1, 20).has_value());
  json::Value result;
  result["ok"] = true;
  const std::vector<LogLine> log{{7, "info", "em a line"}};
  ASSERT_TRUE(registry.ended(1, {.ended_ns = 30, .reason = "stopped", .result = result, .log = log})
                  .has_value());
  const auto found = open(Access::read).find(1);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->id, 0x1234567890abcdefU);
  EXPECT_EQ(found->kind, "physics");
  EXPECT_EQ(found->comment, "beam 150 GeV");
  EXPECT_EQ(found->who, "shifter");
  EXPECT_EQ(found->reserved_ns, 10);
  EXPECT_EQ(found->begun_ns, 20);
  EXPECT_EQ(found->ended_ns, 30);
  EXPECT_EQ(found->reason, "stopped");
  EXPECT_TRUE(found->result.at("ok").boolean());
  const auto configurations = registry.configurations(1);
  ASSERT_EQ(configurations->size(), 1U);
  EXPECT_EQ(configurations->front().text, "[run]\noutput = \"x\"\n");
  EXPECT_EQ(configurations->front().overrides, std::vector<std::string>{"run.events=3"});
  ASSERT_EQ(registry.log(1)->size(), 1U);
  EXPECT_EQ(registry.log(1)->front().text, "em a line");
}

TEST_F(Registries, give_each_number_once_and_never_a_lower_one) {
  Registry one = open();
  Registry two = open();
  EXPECT_EQ(one.reserve(run(), any), 1U);
  EXPECT_EQ(two.reserve(run(), any), 2U);
  EXPECT_EQ(one.reserve(run(), [](RunNumber) -> Result<RunNumber> { return 4711; }), 4711U);
  EXPECT_EQ(two.reserve(run(), any), 4712U);
}

TEST_F(Registries, keep_nothing_of_a_number_that_is_refused) {
  Registry registry = open();
  const auto refused = registry.reserve(
      run(), [](RunNumber) -> Result<RunNumber> { return fail(ErrorKind::usage, "not this one"); });
  EXPECT_EQ(refused.error().text, "not this one");
  EXPECT_TRUE(registry.list({})->empty());
  EXPECT_EQ(registry.reserve(run(), any), 1U);
}

TEST_F(Registries, keep_the_text_of_a_configuration_once) {
  Registry registry = open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(registry.reserve(run(), any).has_value());
  auto database = Database::open(path(), Access::read);
  auto count = (*database)->prepare("SELECT count(*) FROM configurations");
  ASSERT_TRUE(*count->step());
  EXPECT_EQ(count->integer(0), 1);
}

TEST_F(Registries, list_what_is_asked_for) {
  Registry registry = open();
  for (const char* kind : {"physics", "test", "physics"})
    ASSERT_TRUE(registry.reserve(run(kind), any).has_value());
  ASSERT_TRUE(registry.set_quality(3, Quality::bad, {"expert", 1}).has_value());
  const auto numbers = [&](const RunFilter& filter) {
    std::vector<RunNumber> all;
    const auto runs = registry.list(filter);
    for (const RunEntry& entry : *runs) all.push_back(entry.number);
    return all;
  };
  EXPECT_EQ(numbers({}), (std::vector<RunNumber>{1, 2, 3}));
  EXPECT_EQ(numbers({.kind = "test"}), (std::vector<RunNumber>{2}));
  EXPECT_EQ(numbers({.quality = Quality::bad}), (std::vector<RunNumber>{3}));
  EXPECT_EQ(numbers({.last = 2}), (std::vector<RunNumber>{2, 3}));
  EXPECT_TRUE(numbers({.since_ns = INT64_MAX}).empty());
}

TEST_F(Registries, remember_what_a_comment_was) {
  Registry registry = open();
  ASSERT_TRUE(registry.reserve(run(), any).has_value());
  ASSERT_TRUE(registry.set_comment(1, "\"'; DROP TABLE runs", {"expert", 1}).has_value());
  EXPECT_EQ(registry.find(1)->comment, "\"'; DROP TABLE runs");
  auto database = Database::open(path(), Access::read);
  auto before = (*database)->prepare("SELECT who, what, before FROM changes");
  ASSERT_TRUE(*before->step());
  EXPECT_EQ(before->text(0) + before->text(1) + before->text(2), "expertcommentbeam 150 GeV");
  EXPECT_THAT(registry.set_comment(9, "x", {"y", 1}).error().text, HasSubstr("has no run 9"));
}

TEST_F(Registries, that_are_none_are_refused_with_the_remedy) {
  std::ofstream(path())
      << "this is no database, but a text that is long enough to be looked at....";
  EXPECT_THAT(error(), AllOf(HasSubstr(path()), HasSubstr("run.registry")));
  std::filesystem::remove(path());
  {
    auto other = Database::open(path(), Access::write);
    ASSERT_TRUE((*other)->run("CREATE TABLE t (x)").has_value());
  }
  EXPECT_THAT(error(), HasSubstr("is no registry of runs"));
  std::filesystem::remove(path());
  {
    (void)open();
  }
  {
    auto later = Database::open(path(), Access::write);
    ASSERT_TRUE((*later)->run("PRAGMA user_version = 2").has_value());
  }
  EXPECT_THAT(error(), HasSubstr("is of version 2"));
  EXPECT_THAT(Registry::open(folder_ + "/none/runs.sqlite", Access::write).error().text,
              HasSubstr("is its folder there"));
}

TEST_F(Registries, that_are_damaged_give_errors_and_no_crash) {
  {
    Registry registry = open();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(registry.reserve(run(), any).has_value());
  }
  const auto size = std::filesystem::file_size(path());
  std::ifstream in(path(), std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t at = 16; at < size; at += 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x5a);
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bad;
    auto registry = Registry::open(path(), Access::write);
    if (!registry) continue;
    (void)registry->list({});
    (void)registry->find(3);
    (void)registry->reserve(run(), any);
  }
}

} // namespace
} // namespace fanin::operation
