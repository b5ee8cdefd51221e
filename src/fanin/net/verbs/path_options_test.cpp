// What needs no device.
#include "fanin/net/verbs/path_options.hpp"

#include <gtest/gtest.h>

#include "fanin/net/verbs/verbs.hpp"

namespace fanin::net::verbs {
namespace {

TEST(VerbsPathOptions, numbers_are_decimal_or_hexadecimal) {
  const auto options = parse_path_options(*Url::parse(
      "verbs://a:1?service_level=3&traffic_class=0x68&pkey=0x8001&gid_index=3&mtu=4096&posted=4"));
  ASSERT_TRUE(options) << options.error().text;
  EXPECT_EQ(options->service_level, 3);
  EXPECT_EQ(options->traffic_class, 0x68);
  EXPECT_EQ(options->pkey, 0x8001);
  EXPECT_EQ(options->gid_index, 3);
  EXPECT_EQ(options->mtu, 4096U);
}

TEST(VerbsPathOptions, what_is_wrong_is_said_in_one_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"service_level=16", "service_level is a number from 0 to 15, not \"16\""},
      {"traffic_class=high", "traffic_class is a number from 0 to 255, not \"high\""},
      {"pkey=0x10000", "pkey is a number from 0 to 65535, not \"0x10000\""},
      {"gid_index=", "gid_index is a number from 0 to 255, not \"\""},
      {"mtu=1500", "mtu is 256, 512, 1024, 2048 or 4096, not \"1500\""},
      {"colour=red", "option \"colour\" is not known; verbs:// has service_level, traffic_class, "
                     "pkey, gid_index, mtu, posted and share_above"}};
  for (const auto& [option, expected] : cases) {
    Url url{.scheme = "verbs", .host = "a", .port = 1};
    const std::string_view text = option;
    url.options[std::string(text.substr(0, text.find('=')))] = text.substr(text.find('=') + 1);
    const auto options = parse_path_options(url);
    ASSERT_FALSE(options) << option;
    EXPECT_EQ(options.error().kind, ErrorKind::usage);
    EXPECT_NE(options.error().text.find(expected), std::string::npos) << options.error().text;
    EXPECT_EQ(options.error().text.find('\n'), std::string::npos);
  }
}

TEST(VerbsProvider, a_host_without_rdma_is_told_what_to_load) {
  const auto made = make_provider();
  if (made) GTEST_SKIP() << "not applicable: this host has an RDMA device";
  EXPECT_EQ(made.error().kind, ErrorKind::unsupported);
  EXPECT_NE(made.error().text.find("rdma_rxe"), std::string::npos) << made.error().text;
}

} // namespace
} // namespace fanin::net::verbs
