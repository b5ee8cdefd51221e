#include "fanin/settings/reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"

namespace fanin::settings {
namespace {

class PipeTest : public ::testing::Test {
protected:
  PipeTest() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
    read_end = Descriptor(ends[0]);
    write_end = Descriptor(ends[1]);
  }
  [[nodiscard]] std::string path() const { return fmt::format("/proc/self/fd/{}", read_end.get()); }

  Descriptor read_end;
  Descriptor write_end;
};

TEST_F(PipeTest, is_read_to_its_end) { // as of a shell: fanin check <(make-configuration)
  ASSERT_EQ(::write(write_end.get(), "a = 1\n", 6), 6);
  write_end.reset();
  EXPECT_EQ(read_text(path()), "a = 1\n");
}

TEST_F(PipeTest, is_waited_for_while_somebody_writes) {
  const std::string text(1U << 20, '#'); // more than a pipe holds
  std::jthread writer([&] {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t wrote = ::write(write_end.get(), text.data() + done, text.size() - done);
      if (wrote <= 0) break;
      done += static_cast<std::size_t>(wrote);
    }
    write_end.reset();
  });
  EXPECT_EQ(read_text(path()), text);
}

TEST_F(PipeTest, that_nobody_writes_is_an_error_and_not_waited_for) {
  std::string folder = "/tmp/fanin-settings-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string name = folder + "/run.toml";
  ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);
  const auto text = read_text(name);
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().kind, ErrorKind::usage);
  EXPECT_EQ(text.error().text, name + ": is a pipe into which nobody writes; start its writer "
                                      "before, or name a file");
}

TEST(TomlText, of_a_configuration_says_the_same_with_the_overrides) {
  Value root =
      parse_toml(
          "a = 1 # one\nb = 2.0\nc = -0.5\nd = \"x\\\"\\\\\\n\\u00e9\"\ne = [1, [\"2\", 3]]\n"
          "f = {g = true, \"h i\" = false}\nempty = []\n"
          "[t.u]\nv = 1e300\n[[r]]\nn = 1\n[[r.s]]\nid = 1\n[[r.s]]\nid = 2\n"
          "[[r]]\nn = 2\n[e2]\n",
          "run.toml")
          .value();
  ASSERT_TRUE(override_value(root, "r.1.s=[{id=3}]", 1));
  ASSERT_TRUE(override_value(root, "t.time=5s", 2));
  const std::string text = to_toml(root);
  const auto again = parse_toml(text, "again");
  ASSERT_TRUE(again) << again.error().text << "\n" << text;
  EXPECT_EQ(to_toml(*again), text);
  for (const auto& [key, kind, value] : {std::tuple{"a", Value::Kind::integer, "1"},
                                         {"b", Value::Kind::real, "2"},
                                         {"c", Value::Kind::real, "-0.5"},
                                         {"d", Value::Kind::text, "x\"\\\n\u00e9"},
                                         {"e.1.0", Value::Kind::text, "2"},
                                         {"f.g", Value::Kind::boolean, "true"},
                                         {"t.u.v", Value::Kind::real, "1e+300"},
                                         {"r.0.s.1.id", Value::Kind::integer, "2"},
                                         {"r.1.s.0.id", Value::Kind::integer, "3"},
                                         {"t.time", Value::Kind::text, "5s"}}) {
    const Value* const found = find_path(*again, key);
    ASSERT_NE(found, nullptr) << key << "\n" << text;
    EXPECT_EQ(found->kind, kind) << key;
    EXPECT_EQ(found->text, value) << key;
  }
  EXPECT_NE(find_path(*again, "e2"), nullptr);
  EXPECT_EQ(find_path(*again, "empty")->kind, Value::Kind::list);
}

TEST(Nearest, finds_slips_of_the_finger_and_nothing_far_away) {
  const std::vector<std::string> known{"duration", "events", "number"};
  EXPECT_EQ(nearest("durtion", known), "duration");
  EXPECT_EQ(nearest("event", known), "events");
  EXPECT_EQ(nearest("tpye", {"type"}), "type"); // two letters have changed places
  EXPECT_EQ(nearest("zzz", known), "");
}

} // namespace
} // namespace fanin::settings
