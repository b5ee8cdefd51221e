#include "fanin/executive/host_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace fanin::executive {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* node_tables = "[[readout]]\ncount = 2\nsource = [{ type = \"emulator\" }]\n"
                                    "[[builder]]\n";

config::Configuration parsed(const std::vector<std::string>& overrides = {},
                             const std::string& text = node_tables) {
  return config::parse(text, "run.toml", overrides).value();
}

HostList four_hosts() {
  return parse_hosts("10.0.0.1\n10.0.0.2\n10.0.0.3\n10.0.0.4,10.1.0.4\n10.0.0.5\n", "hosts")
      .value();
}

TEST(HostList, has_addresses_and_the_words_that_start_a_command) {
  const auto list = parse_hosts("# a comment\n\n"
                                "10.0.0.1 nsenter --target=7 -- # of the first\n"
                                "daq-ru0,fe80::1%eth0\r\n"
                                "  host_b\tsudo 'it'\"'\"'s' \"a \\\" b\" c\\ d ''",
                                "hosts");
  ASSERT_TRUE(list) << list.error().text;
  ASSERT_EQ(list->hosts.size(), 3U);
  EXPECT_THAT(list->hosts[0].addresses, ElementsAre("10.0.0.1"));
  EXPECT_THAT(list->hosts[0].words, ElementsAre("nsenter", "--target=7", "--"));
  EXPECT_EQ(list->hosts[0].place, "hosts:3");
  EXPECT_THAT(list->hosts[1].addresses, ElementsAre("daq-ru0", "fe80::1%eth0"));
  EXPECT_EQ(list->hosts[1].words.front(), "ssh");
  EXPECT_EQ(list->hosts[1].words.back(), "daq-ru0");
  EXPECT_THAT(list->hosts[2].words, ElementsAre("sudo", "it's", "a \" b", "c d", ""));
  const auto again = parse_hosts(list->addresses(), "again");
  ASSERT_TRUE(again) << again.error().text;
  ASSERT_EQ(again->hosts.size(), 3U);
  EXPECT_EQ(again->hosts[1].addresses, list->hosts[1].addresses);
}

TEST(HostList, what_is_wrong_names_file_and_line) {
  const std::map<std::string, std::string> wrong{
      {"a\n-oProxyCommand=x\n", "hosts:2: \"-oProxyCommand=x\" is not the name or address"},
      {"a,,b", "hosts:1: an address is empty"},
      {"a,", "hosts:1: an address is empty"},
      {"a;b", "hosts:1: \"a;b\" is not the name or address"},
      {"''", "hosts:1: an address is empty"},
      {"\n\na 'b", "hosts:3: has a ' that is not closed"},
      {"a b\\", "hosts:1: ends with a backslash"},
      {std::string("a b\0c", 5), "hosts:1: has a control character"},
      {"a \x1b[2J", "hosts:1: has a control character"},
      {"a 'b \x1b[2J'", "hosts:1: has a control character"},
      {"a \"\x01\"", "hosts:1: has a control character"},
      {"a b\\\x7f", "hosts:1: has a control character"},
      {"a ''", "hosts:1: the command that starts a process is empty"},
      {"a,b,c,d,e,f,g,h,i", "hosts:1: has 9 addresses, at most 8 are possible"},
      {std::string(254, 'a'), "is not the name or address of a host"},
      {std::string((1U << 20) + 1, '\n'), "hosts: is larger than 1 MiB"},
  };
  for (const auto& [text, error] : wrong) {
    const auto list = parse_hosts(text, "hosts");
    ASSERT_FALSE(list) << error;
    EXPECT_THAT(list.error().text, HasSubstr(error));
    EXPECT_EQ(list.error().text.find('\n'), std::string::npos);
  }
  std::string many;
  for (int i = 0; i < 4097; ++i) many += "a\n";
  EXPECT_THAT(parse_hosts(many, "hosts").error().text, HasSubstr("hosts:4097: more than 4096"));
  EXPECT_FALSE(load_hosts("/no/such/list"));
}

TEST(HostList, processes_get_hosts_in_its_order) {
  auto configuration = parsed();
  const auto assigned = assign_hosts(configuration, four_hosts());
  ASSERT_TRUE(assigned) << assigned.error().text;
  EXPECT_EQ(configuration.event_manager().urls.front().text(), "tcp://10.0.0.1");
  EXPECT_EQ(configuration.nodes[2].host, "10.0.0.3");
  EXPECT_EQ(configuration.nodes[3].host, "10.0.0.4");
  EXPECT_EQ(configuration.nodes[3].urls.front().text(), "tcp://10.0.0.4");
}

TEST(HostList, a_process_of_several_nodes_has_one_host) {
  auto configuration =
      parsed({}, std::string(node_tables) + "[[process]]\nnodes = [\"ru0\", \"ru1\"]\n");
  ASSERT_TRUE(assign_hosts(configuration, four_hosts()));
  EXPECT_EQ(configuration.nodes[1].host, "10.0.0.2");
  EXPECT_EQ(configuration.nodes[2].host, "10.0.0.2");
  EXPECT_EQ(configuration.nodes[3].host, "10.0.0.3");
}

TEST(HostList, a_process_that_is_left_out_does_not_take_the_others_to_other_hosts) {
  auto configuration = parsed({"run.without=0"});
  ASSERT_TRUE(assign_hosts(configuration, four_hosts()));
  EXPECT_EQ(configuration.node_names(), "evm, ru1, bu0");
  EXPECT_EQ(configuration.nodes[1].host, "10.0.0.3");
  EXPECT_EQ(configuration.nodes[2].host, "10.0.0.4");
  auto large = parsed({"run.without=0", "builder.0.count=4"});
  HostList testbed = four_hosts();
  testbed.testbed = true;
  EXPECT_THAT(assign_hosts(large, testbed).error().text,
              HasSubstr("has 5 hosts, and 7 are needed, a process a host: ./dev testbed down, then "
                        "./dev testbed up 2x4"));
}

TEST(HostList, rails_are_the_addresses_of_a_host) {
  auto configuration = parsed({"builder.0.url=[\"tcp\", \"tcp\"]"});
  const auto assigned = assign_hosts(configuration, four_hosts());
  ASSERT_TRUE(assigned) << assigned.error().text;
  EXPECT_EQ(configuration.nodes[3].urls[1].host, "10.1.0.4");
}

TEST(HostList, what_it_cannot_serve_is_refused_in_one_line) {
  const auto refusal = [](const std::vector<std::string>& overrides) {
    auto configuration = parsed(overrides);
    const auto assigned = assign_hosts(configuration, four_hosts());
    return assigned ? std::string() : assigned.error().text;
  };
  EXPECT_THAT(refusal({"builder.0.count=4"}),
              HasSubstr("hosts: has 5 hosts, and 7 are needed, a process a host: add lines"));
  EXPECT_THAT(refusal({"network.url=shm"}), HasSubstr("network.url: shm:// does not reach other"));
  EXPECT_THAT(refusal({"network.control=tcp://10.9.9.9:7000"}),
              HasSubstr("listens at tcp://10.9.9.9:7000 here, and at 10.0.0.1 by hosts:1"));
  EXPECT_EQ(refusal({"network.control=tcp://10.0.0.1:7000"}), "");
  EXPECT_THAT(refusal({"builder.0.url=[\"tcp\", \"tcp\", \"tcp\"]"}),
              HasSubstr("has 3 rails, but its host has 2 addresses in hosts:4"));
  auto named = parsed({}, "[event_manager]\nhost = \"a\"\n[[readout]]\nhost = \"a\"\n"
                          "source = [{ type = \"emulator\" }]\n[[builder]]\nhost = \"a\"\n");
  EXPECT_THAT(
      assign_hosts(named, four_hosts()).error().text,
      HasSubstr("run.toml:2: event_manager.host: is \"a\", but hosts says where nodes run"));
  HostList testbed = four_hosts();
  testbed.testbed = true;
  auto large = parsed({"builder.0.count=4"});
  EXPECT_THAT(assign_hosts(large, testbed).error().text, HasSubstr("./dev testbed up 2x4"));
}

} // namespace
} // namespace fanin::executive
