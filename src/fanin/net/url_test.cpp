#include "fanin/net/url.hpp"

#include <gtest/gtest.h>

namespace fanin::net {
namespace {

TEST(Url, reads_every_part) {
  const auto url = Url::parse("tcp://127.0.0.1:7000?congestion=cubic&rail=1");
  ASSERT_TRUE(url) << url.error().text;
  EXPECT_EQ(url->scheme, "tcp");
  EXPECT_EQ(url->host, "127.0.0.1");
  EXPECT_EQ(url->port, 7000);
  EXPECT_EQ(url->options.at("congestion"), "cubic");
  EXPECT_EQ(url->options.at("rail"), "1");
}

TEST(Url, reads_ipv6_host_names_and_schemes_alone) {
  EXPECT_EQ(Url::parse("tcp://[::1]:0").value(), (Url{.scheme = "tcp", .host = "::1"}));
  EXPECT_EQ(Url::parse("tcp://[fe80::1%eth0]:7").value().host, "fe80::1%eth0");
  EXPECT_EQ(Url::parse("tcp://daq-bu-03:7100").value().host, "daq-bu-03");
  EXPECT_EQ(Url::parse("inproc://evm").value().host, "evm");
  EXPECT_EQ(Url::parse("TCP").value(), (Url{.scheme = "tcp"}));
  EXPECT_EQ(Url::parse("trace+fault+tcp").value().scheme, "trace+fault+tcp");
  EXPECT_EQ(Url::parse("trace+fault+tcp").value().network(), "tcp");
  EXPECT_EQ(Url::parse("tcp").value().network(), "tcp");
  EXPECT_EQ(Url::parse("fault+inproc://a").value().reach(), Reach::process);
  EXPECT_EQ(Url::parse("shm://a").value().reach(), Reach::host);
  EXPECT_EQ(Url::parse("ofi+shm").value().reach(), Reach::host);
  EXPECT_EQ(Url::parse("ofi+tcp").value().reach(), Reach::network);
  EXPECT_EQ(Url::parse("tcp://:7000").value(), (Url{.scheme = "tcp", .port = 7000}));
  EXPECT_EQ(Url::parse("tcp?congestion=reno").value().options.size(), 1U);
}

TEST(Url, text_reads_back_as_the_same_address) {
  for (const char* text : {"tcp", "tcp://127.0.0.1:7000", "tcp://[::1]:7000", "tcp://:7000",
                           "inproc://evm", "tcp?a=1&b=", "sim://bu-3:2?x=y"}) {
    const auto url = Url::parse(text);
    ASSERT_TRUE(url) << url.error().text;
    EXPECT_EQ(url->text(), text);
  }
}

TEST(Url, what_is_wrong_is_named) {
  const std::pair<const char*, const char*> cases[] = {{"", "scheme"},
                                                       {"127.0.0.1:7000", "scheme"},
                                                       {"://x", "scheme"},
                                                       {"t_p://x", "'_'"},
                                                       {"tcp://::1:7000", "brackets"},
                                                       {"tcp://[::1", "closed"},
                                                       {"tcp://[]:1", "nothing"},
                                                       {"tcp://[::1]7000", ":port"},
                                                       {"tcp://x:", "port"},
                                                       {"tcp://x:70000", "70000"},
                                                       {"tcp://x:-1", "-1"},
                                                       {"tcp://x:7 ", "7 "},
                                                       {"tcp://a b", "' '"},
                                                       {"tcp://*:7000", "0.0.0.0"},
                                                       {"tcp://x/path", "'/'"},
                                                       {"tcp://x?", "name=value"},
                                                       {"tcp://x?a", "name=value"},
                                                       {"tcp://x?=1", "name=value"},
                                                       {"tcp://x?a=1&a=2", "twice"},
                                                       {"tcp://x?a=1&", "name=value"},
                                                       {"tcp:/x", "':'"}};
  for (const auto& [text, part] : cases) {
    const auto url = Url::parse(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error().kind, ErrorKind::usage);
    EXPECT_NE(url.error().text.find(part), std::string::npos) << text << " -> " << url.error().text;
  }
}

} // namespace
} // namespace fanin::net
