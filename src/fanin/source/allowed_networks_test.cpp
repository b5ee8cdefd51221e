#include "fanin/source/allowed_networks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fanin::source {
namespace {

bool contains(std::string_view list, const std::string& address) {
  const auto allowed = AllowedNetworks::parse(list);
  EXPECT_TRUE(allowed) << list;
  return allowed && allowed->contain(net::addresses_of_number(address).value().front());
}

TEST(AllowedNetworks, without_a_list_all_may_connect) {
  for (const char* address : {"10.0.0.1", "::1"}) {
    EXPECT_TRUE(AllowedNetworks{}.contain(net::addresses_of_number(address).value().front()));
  }
}

TEST(AllowedNetworks, a_network_ends_at_its_last_bit) {
  EXPECT_TRUE(contains("10.1.0.0/16", "10.1.255.255"));
  EXPECT_FALSE(contains("10.1.0.0/16", "10.2.0.0"));
  EXPECT_FALSE(contains("10.1.0.0/16", "10.0.255.255"));
  EXPECT_TRUE(contains("10.1.2.128/25", "10.1.2.128"));
  EXPECT_FALSE(contains("10.1.2.128/25", "10.1.2.127"));
  EXPECT_TRUE(contains("10.1.2.6/31", "10.1.2.7"));
  EXPECT_FALSE(contains("10.1.2.6/31", "10.1.2.8"));
  EXPECT_TRUE(contains("2001:db8:8000::/33", "2001:db8:ffff::1"));
  EXPECT_FALSE(contains("2001:db8:8000::/33", "2001:db8:7fff::1"));
}

TEST(AllowedNetworks, an_address_alone_is_itself_and_a_list_is_all_of_it) {
  EXPECT_TRUE(contains("10.1.2.3", "10.1.2.3"));
  EXPECT_FALSE(contains("10.1.2.3", "10.1.2.2"));
  EXPECT_TRUE(contains("::1", "::1"));
  EXPECT_FALSE(contains("::1", "::2"));
  EXPECT_TRUE(contains("10.1.2.3, ::1,192.168.0.0/16", "192.168.7.7"));
  EXPECT_TRUE(contains("10.1.2.3, ::1,192.168.0.0/16", "::1"));
}

TEST(AllowedNetworks, all_of_one_family_has_nobody_of_the_other) {
  EXPECT_TRUE(contains("0.0.0.0/0", "255.1.2.3"));
  EXPECT_FALSE(contains("0.0.0.0/0", "2001:db8::1"));
  EXPECT_TRUE(contains("::/0", "2001:db8::1"));
}

TEST(AllowedNetworks, an_ipv4_address_within_an_ipv6_address_is_an_ipv4_address) {
  EXPECT_TRUE(contains("10.1.0.0/16", "::ffff:10.1.0.7"));
  EXPECT_FALSE(contains("10.1.0.0/16", "::ffff:10.2.0.7"));
}

TEST(AllowedNetworks, what_is_no_network_is_refused_with_a_reason) {
  for (const char* wrong : {"", "daq-front-end", "10.1", "10.1.0.0/", "10.1.0.0/33", "::/129",
                            "10.1.0.0/-1", "10.1.0.0/8x", "10.1.0.0/16,", "10.1.0.0/ 8"}) {
    EXPECT_FALSE(AllowedNetworks::parse(wrong)) << wrong;
  }
  EXPECT_EQ(AllowedNetworks::parse("::1, names").error().text,
            "\"names\" is not a network: write 10.1.0.0/16, 2001:db8::/32 or an address");
  EXPECT_EQ(AllowedNetworks::parse("10.1.0.0/33").error().text,
            "\"10.1.0.0/33\" needs a number of bits up to 32 behind the slash");
  EXPECT_EQ(AllowedNetworks::parse("10.1.2.3/16").error().text,
            "\"10.1.2.3/16\" has bits set behind the first 16: is it one address, without the "
            "slash?");
  EXPECT_TRUE(AllowedNetworks::parse("10.1.2.2/31"));
  EXPECT_FALSE(AllowedNetworks::parse("10.1.2.3/31"));
}

} // namespace
} // namespace fanin::source
