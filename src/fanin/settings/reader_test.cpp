#include "fanin/settings/reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

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

TEST(Nearest, finds_slips_of_the_finger_and_nothing_far_away) {
  const std::vector<std::string> known{"duration", "events", "number"};
  EXPECT_EQ(nearest("durtion", known), "duration");
  EXPECT_EQ(nearest("event", known), "events");
  EXPECT_EQ(nearest("tpye", {"type"}), "type"); // two letters have changed places
  EXPECT_EQ(nearest("zzz", known), "");
}

} // namespace
} // namespace fanin::settings
