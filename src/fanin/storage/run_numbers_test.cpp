// A number is given once: whatever becomes of the files, and however many ask at once.
#include "fanin/storage/run_numbers.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/storage/testing/no_room.hpp"

namespace fanin::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RunNumbersTest : public ::testing::Test {
protected:
  static void put(const std::string& path, const std::string& text) {
    std::filesystem::remove(path);
    std::ofstream(path) << text;
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  RunNumber reserve(std::optional<RunNumber> wanted = {}) const {
    const auto number = RunNumbers({folder}).reserve(wanted);
    EXPECT_TRUE(number) << number.error().text;
    return number.value_or(0);
  }
  // Of a reservation; the same as next() says.
  Error error(std::optional<RunNumber> wanted = {}) const {
    const auto next = RunNumbers({folder}).next(wanted);
    const auto number = RunNumbers({folder}).reserve(wanted);
    EXPECT_FALSE(next);
    EXPECT_FALSE(number);
    if (next || number) return {};
    EXPECT_EQ(next.error().text, number.error().text);
    return number.error();
  }

  testing::TemporaryDirectory directory;
  std::string folder = directory.path() + "/deep/out";
  std::string file = folder + "/last_run_number";
};

TEST_F(RunNumbersTest, begin_above_the_run_files_and_manifests_of_a_folder_without_a_file) {
  EXPECT_EQ(RunNumbers({folder}).next({}).value_or(0), 1U);
  EXPECT_FALSE(std::filesystem::exists(folder)) << "next() makes nothing";
  std::filesystem::create_directories(folder);
  put(folder + "/run4294967295_x.h5", " ");
  put(folder + "/run000700", " ");
  EXPECT_EQ(RunNumbers({folder}).next({}).value_or(0), 1U);
  put(folder + "/run000007_bu0_i1_0001.h5", " ");
  EXPECT_EQ(RunNumbers({folder}).next({}).value_or(0), 8U);
  put(folder + "/run000009.manifest.json", " ");
  EXPECT_EQ(reserve(), 10U);
}

TEST_F(RunNumbersTest, are_not_given_again_when_run_files_are_gone) {
  EXPECT_EQ(reserve(), 1U);
  EXPECT_EQ(reserve(), 2U);
  EXPECT_THAT(content(file), ::testing::StartsWith("2\n"));
  put(folder + "/run000050_bu0_i1_0001.h5", " "); // from elsewhere
  EXPECT_EQ(reserve(), 51U);
  std::filesystem::remove(folder + "/run000050_bu0_i1_0001.h5");
  EXPECT_EQ(reserve(), 52U);
  EXPECT_EQ(RunNumbers({folder}).next({}).value_or(0), 53U);
  EXPECT_EQ(reserve(), 53U) << "next() has taken none";
}

TEST_F(RunNumbersTest, that_are_asked_for_are_above_all_that_were_given) {
  EXPECT_EQ(reserve(12), 12U);
  for (const RunNumber wanted : {5U, 12U}) {
    const Error refused = error(wanted);
    EXPECT_EQ(refused.kind, ErrorKind::usage);
    EXPECT_EQ(refused.text, "run number " + std::to_string(wanted) +
                                " is not free: 12 is the highest one given in " + folder +
                                "; set a higher one, or leave run.number out");
  }
  EXPECT_EQ(reserve(), 13U);
}

TEST_F(RunNumbersTest, of_several_folders_are_above_the_highest_of_all_and_written_to_all) {
  const std::string other = directory.path() + "/other";
  reserve(12);
  const RunNumbers both({other, folder, other + "/"});
  EXPECT_EQ(both.reserve({}).value_or(0), 13U);
  EXPECT_EQ(content(other + "/last_run_number"), content(file));
  EXPECT_EQ(RunNumbers({other}).reserve(20).value_or(0), 20U);
  EXPECT_THAT(both.reserve(15).error().text, HasSubstr("20 is the highest one given in " + other));
  EXPECT_EQ(both.reserve({}).value_or(0), 21U);
  EXPECT_EQ(reserve(), 22U);
}

TEST_F(RunNumbersTest, of_no_folder_are_what_is_asked_for) {
  EXPECT_EQ(RunNumbers({}).reserve({}).value_or(0), 1U);
  EXPECT_EQ(RunNumbers({}).reserve(7).value_or(0), 7U);
}

TEST_F(RunNumbersTest, are_not_given_twice_to_those_who_ask_at_once) {
  const std::string other = directory.path() + "/other";
  std::vector<RunNumber> given(120);
  {
    std::vector<std::jthread> threads;
    for (std::size_t first = 0; first < 6; ++first) {
      threads.emplace_back([&, first] {
        const auto numbers =
            first % 2 == 0 ? RunNumbers({folder, other}) : RunNumbers({other, folder});
        for (std::size_t i = first; i < given.size(); i += 6)
          given[i] = numbers.reserve({}).value_or(0);
      });
    }
  }
  std::ranges::sort(given);
  for (std::size_t i = 0; i < given.size(); ++i) EXPECT_EQ(given[i], i + 1);
}

TEST_F(RunNumbersTest, are_not_guessed_where_the_file_is_damaged) {
  reserve();
  const std::map<std::string, std::string> wrong{
      {"", "is empty"},
      {"\n", "does not begin with a number"},
      {"seven\n", "does not begin with a number"},
      {"-7\n", "does not begin with a number"},
      {" 7\n", "does not begin with a number"},
      {"7", "ends within its first line"},
      {"7 8\n", "has more than a number in its first line"},
      {"7\r\n", "has more than a number in its first line"},
      {"4294967296\n", "begins with a number above 4294967295"},
      {std::string(100, '9'), "begins with a number above 4294967295"}};
  for (const auto& [text, what] : wrong) {
    put(file, text);
    const Error damaged = error();
    EXPECT_EQ(damaged.kind, ErrorKind::malformed) << text;
    EXPECT_THAT(damaged.text, HasSubstr(file + " " + what + ": write the highest run number"));
    EXPECT_EQ(content(file), text) << "it stays as it is";
  }
  put(file, "41\n");
  EXPECT_EQ(reserve(), 42U) << "the remedy";
  std::filesystem::remove(file);
  EXPECT_EQ(reserve(), 1U) << "the other one";
}

TEST_F(RunNumbersTest, are_not_given_where_the_file_cannot_be_read_or_written) {
  std::filesystem::create_directories(file);
  EXPECT_THAT(error().text, HasSubstr(file + " cannot be read: Is a directory: "));
  std::filesystem::remove(file);
  {
    const testing::NoRoom no_room;
    const auto number = RunNumbers({folder}).reserve({});
    ASSERT_FALSE(number);
    EXPECT_EQ(number.error().kind, ErrorKind::exhausted);
    EXPECT_THAT(number.error().text, AllOf(HasSubstr(file + " cannot be written: File too large: "),
                                           HasSubstr("set run.output to another folder")));
  }
  EXPECT_EQ(reserve(), 1U);
  put(folder + "/not_a_folder", "");
  const auto number = RunNumbers({folder + "/not_a_folder"}).reserve({});
  ASSERT_FALSE(number);
  EXPECT_THAT(number.error().text, HasSubstr("not_a_folder cannot be made: "));
}

TEST_F(RunNumbersTest, are_not_given_where_the_folder_cannot_be_synchronized) {
  reserve();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const auto allow = [&](int descriptors) {
    const rlimit limit{static_cast<rlim_t>(descriptors), before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  };
  const auto open_null = [] { return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); };
  const int for_file = [&] {
    const Descriptor for_lock = open_null();
    return open_null().get();
  }();
  allow(for_file + 1); // none is left for the folder
  const auto number = RunNumbers({folder}).reserve({});
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(number);
  EXPECT_EQ(number.error().kind, ErrorKind::refused);
  EXPECT_EQ(number.error().text,
            folder + " cannot be synchronized: Too many open files: a run needs it for its number; "
                     "correct this, or set run.output to another folder");
}

TEST_F(RunNumbersTest, are_waited_for_where_another_process_takes_one_which_is_said_once) {
  reserve();
  const std::string path = folder + "/.last_run_number.lock";
  Descriptor other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  std::vector<std::string> said;
  const RunNumbers numbers({folder}, [&](LogLevel, std::string_view text) {
    said.emplace_back(text);
    other = {}; // it has its number now
  });
  EXPECT_EQ(numbers.reserve({}).value_or(0), 2U);
  EXPECT_EQ(numbers.reserve({}).value_or(0), 3U);
  EXPECT_THAT(said, ::testing::ElementsAre("waits for another process that takes a run number: it "
                                           "has locked " +
                                           path + " (fuser shows which one)"));
}

TEST_F(RunNumbersTest, are_not_waited_for_when_the_process_is_to_end) {
  reserve();
  const Descriptor other(::open((folder + "/.last_run_number.lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const auto number = RunNumbers({folder}, {}, [] { return true; }).reserve({});
  ASSERT_FALSE(number);
  EXPECT_THAT(number.error().text, HasSubstr("stopped while another process had locked"));
}

TEST_F(RunNumbersTest, are_given_where_a_process_was_killed_while_it_reserved) {
  std::filesystem::create_directories(folder);
  put(folder + "/.last_run_number.new", "1234567890 and more than is written there\n");
  EXPECT_EQ(reserve(), 1U);
  EXPECT_THAT(content(file), ::testing::StartsWith("1\nThe highest run number"));
}

TEST_F(RunNumbersTest, end_with_the_last_one) {
  reserve(run_number_max);
  const Error none = error();
  EXPECT_EQ(none.kind, ErrorKind::exhausted);
  EXPECT_THAT(none.text, HasSubstr("set run.output to another folder"));
}

} // namespace
} // namespace fanin::storage
