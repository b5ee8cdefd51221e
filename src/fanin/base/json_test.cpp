#include "fanin/base/json.hpp"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "fanin/base/printable.hpp"
#include "fanin/base/random.hpp"

namespace fanin::json {
namespace {

TEST(Json, what_was_written_is_read_back) {
  Value value;
  value["name"] = "run \"7\"\n\t\x01 \xc3\xa9";
  value["events"] = std::numeric_limits<std::uint64_t>::max();
  value["step"] = -5;
  value["rate_hz"] = 0.1;
  value["balanced"] = true;
  value["none"] = Value{};
  value["files"].append("a.h5");
  value["files"].append(List{});
  value["nodes"]["bu0"]["events"] = 3U;
  for (const int indent : {-1, 0, 2}) {
    const auto read = Value::parse(value.dump(indent));
    ASSERT_TRUE(read) << read.error().text;
    EXPECT_EQ(read->dump(), value.dump());
    EXPECT_EQ(read->at("events").natural(), std::numeric_limits<std::uint64_t>::max());
    EXPECT_EQ(read->at("rate_hz").real(), 0.1);
    EXPECT_EQ(read->at("name").text(), "run \"7\"\n\t\x01 \xc3\xa9");
    EXPECT_EQ(read->at("nodes").at("bu0").at("events").natural(), 3U);
  }
}

TEST(Json, what_is_absent_or_of_another_kind_is_the_fallback) {
  const auto value = Value::parse(R"({"a": "text", "b": -1})");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->at("missing").at("deeper").natural(7), 7U);
  EXPECT_EQ(value->at("a").natural(7), 7U);
  EXPECT_EQ(value->at("b").natural(7), 7U);
  EXPECT_EQ(value->at("b").real(), -1.0);
  EXPECT_TRUE(value->at("a").list().empty());
}

TEST(Json, escapes_are_decoded) {
  const auto value = Value::parse(R"("\u00e9\ud83d\ude00\/\b")");
  ASSERT_TRUE(value) << value.error().text;
  EXPECT_EQ(value->text(), "\xc3\xa9\xf0\x9f\x98\x80/\b");
}

TEST(Json, what_a_terminal_would_obey_is_escaped) {
  const std::string text = "\x1b[31m\x7f\xc2\x9b\u202e\u00e9\U0001f600\n";
  Value value;
  value[text] = text;
  for (const int indent : {-1, 2}) {
    const std::string dumped = value.dump(indent);
    EXPECT_EQ(printable_lines(dumped), dumped);
    EXPECT_NE(dumped.find("\\u001b[31m\\u007f\\u009b\\u202e\u00e9\U0001f600\\n"), std::string::npos)
        << dumped;
    EXPECT_EQ(Value::parse(dumped)->at(text).text(), text);
  }
}

TEST(Json, whole_numbers_may_be_negative) {
  const auto integer = [](const char* text) { return Value::parse(text)->integer(); };
  EXPECT_EQ(integer("-1"), -1);
  EXPECT_EQ(integer("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(integer("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  for (const char* const other : {"9223372036854775808", "1.5", "\"1\"", "null"})
    EXPECT_EQ(integer(other), std::nullopt) << other;
}

TEST(Json, text_that_is_not_utf_8_is_still_json) {
  const std::string replaced = "\xef\xbf\xbd";
  const std::string good = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
  EXPECT_EQ(Value(good).dump(), "\"" + good + "\"");
  for (const char* bad : {"\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc0\xaf", "\xe0\x80\x80",
                          "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\x80"}) {
    const auto read = Value::parse(Value(good + bad + "z").dump());
    ASSERT_TRUE(read) << read.error().text;
    EXPECT_TRUE(read->text().starts_with(good + replaced)) << read->text();
    EXPECT_TRUE(read->text().ends_with(replaced + "z")) << read->text();
  }
  Random random(7);
  for (int round = 0; round < 1000; ++round) {
    std::string text(random.below(12), ' ');
    for (char& c : text) c = static_cast<char>(random.next());
    const auto read = Value::parse(Value(text).dump());
    ASSERT_TRUE(read) << read.error().text;
    EXPECT_EQ(Value(*read).dump(), Value(read->text()).dump());
  }
}

TEST(Json, what_is_not_json_is_an_error) {
  for (const char* text : {"", "{", "[1,", "[1 2]", "{\"a\"}", "{\"a\":}", "nul", "1 2", "\"open",
                           "\"\\x\"", "\"\\ud800\"", "-", "+", "1e999", "{a:1}"}) {
    const auto value = Value::parse(text);
    ASSERT_FALSE(value) << text;
    EXPECT_EQ(value.error().kind, ErrorKind::malformed);
  }
  EXPECT_FALSE(Value::parse(std::string(1000, '[')));
}

TEST(Json, numbers_that_json_does_not_have_become_null) {
  EXPECT_EQ(Value(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
  EXPECT_EQ(Value(std::numeric_limits<double>::infinity()).dump(), "null");
}

} // namespace
} // namespace fanin::json
