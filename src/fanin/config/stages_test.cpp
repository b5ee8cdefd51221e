#include "fanin/config/stages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include <fmt/format.h>

namespace fanin::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* group_text = R"([event]
batch_events = 64
assignment = "by-number"
[storage]
sink = "forward"
[slice]
urls = ["tcp://127.0.0.1:7500", "tcp://daq-s1:7500"]
source = {0}
give_up = "500ms"
[source]
type = "emulator"
fragment_max = "4KiB"
[[readout]]
source = [{{ id = {1}, count = 2 }}]
[[builder]]
)";

constexpr const char* slice_text = R"([run]
output = "data/s{0}"
[event]
batch_events = 16
[slice]
number = {0}
of = 2
block = 64
[source]
type = "receive"
fragment_max = "16KiB"
listen = "{1}"
[[readout]]
source = [{{ id = 10, merged = ["1-2"] }}, {{ id = 11, merged = ["3-4"] }}]
[[builder]]
)";

// Two groups and two slices that fit, but for what a test changes.
class StagesTest : public ::testing::Test {
protected:
  StagesTest() {
    set(0, "group0.toml", fmt::format(fmt::runtime(group_text), 10, 1));
    set(1, "group1.toml", fmt::format(fmt::runtime(group_text), 11, 3));
    set(2, "slice0.toml", fmt::format(fmt::runtime(slice_text), 0, "tcp://localhost:7500"));
    set(3, "slice1.toml", fmt::format(fmt::runtime(slice_text), 1, "tcp://0.0.0.0:7500"));
  }
  void set(std::size_t index, std::string file, std::string text) {
    files_.resize(std::max(files_.size(), index + 1));
    files_[index] = {std::move(file), std::move(text)};
  }
  // As `fanin check` reads them, one with this override.
  Result<Stages> fit(std::size_t changed = 0, const std::string& override = {}) {
    std::vector<Configuration> configurations;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      std::vector<std::string> overrides;
      if (i == changed && !override.empty()) overrides.push_back(override);
      auto one = parse(files_[i].second, files_[i].first, overrides);
      if (!one) return std::unexpected(one.error());
      configurations.push_back(std::move(*one));
    }
    return fit_stages(configurations);
  }
  std::string error_of(std::size_t changed = 0, const std::string& override = {}) {
    const auto result = fit(changed, override);
    if (result) return "they fit";
    EXPECT_EQ(result.error().kind, ErrorKind::usage);
    EXPECT_EQ(result.error().text.find('\n'), std::string::npos);
    return result.error().text;
  }

  std::vector<std::pair<std::string, std::string>> files_;
};

TEST_F(StagesTest, what_forwards_is_the_first_stage) {
  const auto stages = fit();
  ASSERT_TRUE(stages) << stages.error().text;
  EXPECT_THAT(stages->groups, ElementsAre(0, 1));
  EXPECT_THAT(stages->slices, ElementsAre(2, 3));
  EXPECT_FALSE(stages->run.has_value());
}

TEST_F(StagesTest, one_stage_alone_is_refused) {
  auto all = files_;
  files_ = {all[0], all[1]};
  EXPECT_EQ(error_of(), "group0.toml:5: storage.sink: all of these configurations forward: give "
                        "those of the slices too");
  files_ = {all[2], all[3]};
  EXPECT_THAT(error_of(), HasSubstr("slice0.toml:1: storage.sink: several configurations are two "
                                    "stages, and none of them forwards"));
}

TEST_F(StagesTest, an_address_where_no_slice_listens_is_refused) {
  EXPECT_EQ(error_of(1, "slice.urls=[\"tcp://127.0.0.1:7500\", \"tcp://daq-s1:7501\"]"),
            "--set:1: slice.urls: no receive source of the slices listens at "
            "tcp://daq-s1:7501; write where they listen: tcp://0.0.0.0:7500, tcp://localhost:7500");
}

TEST_F(StagesTest, a_name_may_be_any_address) {
  const auto listen = [this](const char* at0, const char* at1) {
    set(2, "slice0.toml", fmt::format(fmt::runtime(slice_text), 0, at0));
    set(3, "slice1.toml", fmt::format(fmt::runtime(slice_text), 1, at1));
  };
  for (auto* const text : {&files_[0].second, &files_[1].second}) {
    text->replace(text->find("tcp://127.0.0.1:7500"), 20, "tcp://daq-s0:7500");
  }
  listen("tcp://10.0.0.5:7500", "tcp://10.0.0.6:7500");
  EXPECT_EQ(error_of(), "they fit");
  listen("tcp://[fd00::5]:7500", "tcp://daq-s1.site:7500");
  EXPECT_EQ(error_of(), "they fit");
  listen("tcp://0.0.0.0:7500", "tcp://daq-s1:7500");
  EXPECT_EQ(error_of(), "they fit");
  listen("tcp://daq-s1:7500", "tcp://daq-s0:7500");
  EXPECT_THAT(error_of(), HasSubstr("slice1.toml:6: slice.number: this is slice 1 of 2, but in "
                                    "slice.urls of group0.toml its address tcp://daq-s0:7500"))
      << "what is said of the same host counts";
}

TEST_F(StagesTest, two_addresses_are_two_hosts) {
  set(2, "slice0.toml", fmt::format(fmt::runtime(slice_text), 0, "tcp://10.0.0.5:7500"));
  set(3, "slice1.toml", fmt::format(fmt::runtime(slice_text), 1, "tcp://10.0.0.6:7500"));
  EXPECT_THAT(error_of(), HasSubstr("group0.toml:7: slice.urls: no receive source of the slices "
                                    "listens at tcp://127.0.0.1:7500"));
}

TEST_F(StagesTest, a_slice_that_is_not_the_one_at_its_place_is_refused) {
  EXPECT_EQ(error_of(3, "slice.of=3"),
            "--set:1: slice.number: this is slice 1 of 3, but in slice.urls of group0.toml "
            "its address tcp://daq-s1:7500 is number 1 of 2: write number = 1 and of = 2, or "
            "correct the order of slice.urls");
  EXPECT_THAT(error_of(1, "slice.urls=[\"tcp://127.0.0.1:7500\"]"),
              HasSubstr("slice0.toml:6: slice.number: this is slice 0 of 2, but in slice.urls of "
                        "group1.toml its address tcp://127.0.0.1:7500 is number 0 of 1"));
}

TEST_F(StagesTest, blocks_of_another_size_are_refused) {
  EXPECT_EQ(error_of(2, "slice.block=128"),
            "--set:1: slice.block: is 128, but group0.toml deals blocks of "
            "event.batch_events = 64: write block = 64");
}

TEST_F(StagesTest, a_source_that_the_slice_does_not_have_is_refused) {
  EXPECT_EQ(error_of(0, "slice.source=12"),
            "--set:1: slice.source: 0xc is no source that listens at tcp://127.0.0.1:7500 in "
            "slice0.toml; there are: 0xa, 0xb");
}

TEST_F(StagesTest, two_groups_with_one_source_are_refused) {
  EXPECT_EQ(error_of(1, "slice.source=10"),
            "--set:1: slice.source: group0.toml forwards to source 0xa of slice0.toml too: "
            "each group needs a source of its own in each slice");
}

TEST_F(StagesTest, a_slice_that_expects_other_sources_than_the_group_has_is_refused) {
  EXPECT_EQ(error_of(3, "readout.0.source.0.merged=[2, 5]"),
            "--set:1: readout.0.source.0.merged: does not say what group0.toml merges: add "
            "0x1; leave out 0x5");
}

TEST_F(StagesTest, a_super_fragment_that_the_slice_would_not_take_is_refused) {
  EXPECT_EQ(error_of(2, "source.fragment_max=8KiB"),
            "--set:1: readout.0.source.0.fragment_max: 8 KiB is less than a super-fragment "
            "of group0.toml may have: write fragment_max = \"8240B\", or lower source.fragment_max "
            "there");
  EXPECT_EQ(error_of(2, "source.fragment_max=8240B"), "they fit");
}

TEST_F(StagesTest, a_slice_that_does_not_wait_as_long_as_the_groups_is_refused) {
  EXPECT_EQ(error_of(0, "slice.give_up=1s"),
            "--set:1: event.deadline: 1 s is not longer than slice.give_up = 1 s of "
            "group0.toml: while groups wait for another slice, this one would build events without "
            "them; raise event.deadline or lower slice.give_up");
}

TEST_F(StagesTest, checksums_of_the_second_stage_alone_are_refused) {
  EXPECT_EQ(error_of(0, "event.integrity=none"),
            "--set:1: event.integrity: is \"none\", but the files of slice0.toml have "
            "checksums: write \"none\" in both, or \"crc32c\" in both");
  EXPECT_EQ(error_of(2, "event.integrity=none"), "they fit");
}

TEST_F(StagesTest, a_source_or_a_slice_that_no_group_forwards_to_is_refused) {
  files_.erase(files_.begin() + 1);
  EXPECT_EQ(error_of(), "slice0.toml:14: readout.0.source.1.merged: no group forwards to this "
                        "source: give the configuration of the group with slice.source = 0xb, or "
                        "leave the source out");
  set(3, "other.toml", "[[readout]]\nsource = [{ id = 7, type = \"emulator\" }]\n[[builder]]\n");
  for (auto* const slice : {&files_[1].second, &files_[2].second}) {
    const std::size_t at = slice->find(", { id = 11");
    slice->erase(at, slice->find("]\n[[builder") - at);
  }
  EXPECT_EQ(error_of(), "other.toml:1: slice.number: no group forwards to this slice: add its "
                        "address to slice.urls of the groups, or leave the configuration out");
}

TEST_F(StagesTest, slices_know_which_sources_of_the_groups_are_left_out) {
  const auto read = [&](const std::vector<std::vector<std::string>>& overrides = {}) {
    std::vector<Configuration> configurations;
    for (std::size_t i = 0; i < files_.size(); ++i)
      configurations.push_back(parse(files_[i].second, files_[i].first,
                                     overrides.empty() ? std::vector<std::string>{} : overrides[i])
                                   .value());
    return configurations;
  };
  files_[1].second.replace(files_[1].second.find("id = 3"), 6, "id = 3, name = 'a \"b'");
  const std::vector<std::string> names{"0x2", "a \"b0"};
  const auto overrides = overrides_without(read(), names);
  ASSERT_TRUE(overrides) << overrides.error().text;
  EXPECT_THAT((*overrides)[0], ElementsAre("run.without+=\"0x2\""));
  EXPECT_THAT((*overrides)[1], ElementsAre("run.without+=\"a \\\"b0\""));
  EXPECT_THAT((*overrides)[3], ElementsAre("run.without+=\"0x2\"", "run.without+=\"0x3\""));
  const auto fitting = fit_stages(read(*overrides));
  EXPECT_TRUE(fitting) << fitting.error().text;
  const std::vector<std::string> of_slices{"0xa"};
  const auto others = overrides_without(read(), of_slices);
  ASSERT_TRUE(others) << others.error().text;
  EXPECT_THAT((*others)[0], ElementsAre());
  EXPECT_THAT((*others)[2], ElementsAre("run.without+=\"0xa\""));
  const std::vector<std::string> nobody{"x"};
  EXPECT_EQ(overrides_without(read(), nobody).error().text,
            "--without: there is no source \"x\"; there are: 0x1, 0x2, a \"b0, a \"b1");
}

TEST_F(StagesTest, slices_with_one_folder_are_refused) {
  EXPECT_EQ(error_of(3, "run.output=data/../data/s0"),
            "--set:1: run.output: data/../data/s0 is also the folder of slice0.toml: write another "
            "one for each slice");
  EXPECT_EQ(error_of(3, "run.output=discard"), "they fit");
}

TEST_F(StagesTest, they_have_one_run_number) {
  files_[0].second = "[run]\nnumber = 7\n" + files_[0].second;
  EXPECT_EQ(fit().value().run, 7U);
  EXPECT_EQ(error_of(3, "run.number=8"),
            "--set:1: run.number: is 8, but 7 in group0.toml: all stages have one run "
            "number; leave it out for the next free one");
}

} // namespace
} // namespace fanin::config
