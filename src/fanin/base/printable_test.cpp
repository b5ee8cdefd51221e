#include "fanin/base/printable.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "fanin/base/json.hpp"
#include "fanin/base/random.hpp"

namespace fanin {
namespace {

TEST(Printable, text_stays_as_it_is) {
  for (const std::string text :
       {"", "run.toml:3: no such key", "G\u00f6ttingen \u20ac \U0001f600 \u0e01", "a  b?"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(printable_lines(text), text);
  }
}

TEST(Printable, a_terminal_obeys_nothing_of_it) {
  EXPECT_EQ(printable("\x1b[31mred\x07\x08\x7f"), "?[31mred???");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "?31m"); // the same as ESC [
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "?31m"); // of Latin-1
  EXPECT_EQ(printable("\u202etxt.exe\u2066"), "?txt.exe?"); // from right to left
}

TEST(Printable, a_line_stays_one_line) {
  EXPECT_EQ(printable("good\nbad\r\nworse\tand\u2028more\xc2\x85"), "good bad  worse and?more?");
  EXPECT_EQ(printable_lines("good\nbad\r\n"), "good\nbad \n");
}

TEST(Printable, what_is_not_utf_8_is_a_question_mark_for_each_byte) {
  EXPECT_EQ(printable("a\xff"), "a?");
  EXPECT_EQ(printable("\xc3"), "?");
  EXPECT_EQ(printable("\xc3("), "?(");
  EXPECT_EQ(printable("\xe2\x82"), "??");
  EXPECT_EQ(printable("\xc0\xaf"), "??"); // overlong
  EXPECT_EQ(printable("\xe0\x80\x80"), "???");
  EXPECT_EQ(printable("\xf0\x80\x80\x80"), "????");
  EXPECT_EQ(printable("\xed\xa0\x80"), "???"); // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????"); // above U+10FFFF
  EXPECT_EQ(printable("\xf8\x88\x80\x80\x80"), "?????");
}

TEST(Printable, a_bound_cuts_no_character) {
  EXPECT_EQ(printable("abc", 2), "ab");
  EXPECT_EQ(printable("a\u20ac", 3), "a");
  EXPECT_EQ(printable("a\u20ac", 4), "a\u20ac");
  EXPECT_EQ(printable("\x1b\x1b\x1b", 2), "??");
}

// Bytes of all kinds, most of them parts of characters.
TEST(Printable, random_bytes_become_text_that_stays_as_it_is) {
  Random random(11);
  constexpr std::string_view parts = "a \n\x1b\x7f\xc2\x9b\xe2\x80\xae\xf0\x9f\x98\x80\xed\xf4\xff";
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random.below(16), ' ');
    for (char& c : text) {
      c = random.below(4) == 0 ? static_cast<char>(random.next())
                               : parts[static_cast<std::size_t>(random.below(parts.size()))];
    }
    const std::string shown = printable(text);
    ASSERT_LE(shown.size(), text.size()) << round;
    ASSERT_TRUE(std::ranges::none_of(shown, [](char c) {
      return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    })) << round;
    ASSERT_EQ(printable(shown), shown) << round;
    ASSERT_EQ(json::Value::parse(json::Value(shown).dump())->text(), shown) << round; // is UTF-8
    ASSERT_LE(printable(text, 5).size(), 5U) << round;
    ASSERT_TRUE(shown.starts_with(printable(text, 5))) << round;
    const std::string lines = printable_lines(text);
    ASSERT_EQ(std::ranges::count(lines, '\n'), std::ranges::count(text, '\n')) << round;
  }
}

} // namespace
} // namespace fanin
