#include "fanin/memory/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace fanin::memory {
namespace {

TEST(Arena, what_is_shared_can_be_mapped_by_others_to_read_and_not_be_changed_in_size) {
  const auto arena = Arena::make(1U << 20, {.huge_pages = HugePages::off, .shared = true});
  ASSERT_TRUE(arena) << arena.error().text;
  (*arena)->data()[4097] = std::byte{42};
  const auto* const read = static_cast<const std::byte*>(
      mmap(nullptr, (*arena)->size(), PROT_READ, MAP_SHARED, (*arena)->descriptor(), 0));
  ASSERT_NE(read, MAP_FAILED);
  EXPECT_EQ(read[4097], std::byte{42});
  munmap(const_cast<std::byte*>(read), (*arena)->size());
  EXPECT_NE(ftruncate((*arena)->descriptor(), 0), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, (*arena)->descriptor(), 0),
            MAP_FAILED);
}

TEST(Arena, no_two_have_the_same_number) {
  const auto first = Arena::make(4096, {.shared = true});
  const auto second = Arena::make(4096, {});
  EXPECT_NE((*first)->id(), (*second)->id());
  EXPECT_EQ((*second)->descriptor(), -1);
}

// In a process of its own, since the limit cannot be raised again.
template <class Limit>
std::string error_with(Limit set_limit, std::size_t size, const ArenaOptions& options) {
  int pipes[2];
  EXPECT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    set_limit();
    const auto arena = Arena::make(size, options);
    const std::string text = arena ? "made" : arena.error().text;
    _exit(write(pipes[1], text.data(), text.size()) < 0);
  }
  close(pipes[1]);
  std::string text(1000, ' ');
  const ssize_t got = read(pipes[0], text.data(), text.size());
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  close(pipes[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "ended by a signal";
  return text;
}

void limit(int what, rlim_t bytes) {
  const rlimit value{bytes, bytes};
  if (setrlimit(what, &value) != 0) _exit(9);
}

TEST(Arena, a_limit_of_the_process_is_an_error_and_no_signal) {
  const std::string files = error_with([] { limit(RLIMIT_FSIZE, 1U << 20); }, 4U << 20,
                                       {.huge_pages = HugePages::off, .shared = true});
  EXPECT_NE(files.find("ulimit -f"), std::string::npos) << files;
}

TEST(Arena, huge_pages_that_are_not_there_are_an_error) {
  for (const bool shared : {false, true}) {
    const auto arena =
        Arena::make(std::size_t{1} << 44, {.huge_pages = HugePages::required, .shared = shared});
    ASSERT_FALSE(arena);
    EXPECT_NE(arena.error().text.find("vm.nr_hugepages"), std::string::npos) << arena.error().text;
  }
}

TEST(Arena, more_than_the_host_has_is_an_error) {
  for (const bool shared : {false, true}) {
    const auto arena = Arena::make(std::size_t{1} << 44, {.shared = shared});
    ASSERT_FALSE(arena);
    EXPECT_EQ(arena.error().kind, ErrorKind::exhausted);
  }
}

// A control group of its own with a limit of 16 MiB, of either version, where this may make one.
class Group {
public:
  Group() {
    std::ifstream own("/proc/self/cgroup");
    for (std::string line; !usable_ && std::getline(own, line);) {
      if (const auto at = line.find(":memory:"); at != std::string::npos)
        make("/sys/fs/cgroup/memory" + line.substr(at + 8), "memory.limit_in_bytes");
      if (line.starts_with("0::")) make("/sys/fs/cgroup" + line.substr(3), "memory.max");
    }
  }
  ~Group() {
    if (usable_) (void)rmdir(folder_.c_str());
  }
  [[nodiscard]] bool usable() const { return usable_; }
  void enter() const { std::ofstream(folder_ / "cgroup.procs") << getpid(); }

private:
  void make(const std::string& parent, const char* limit) {
    folder_ = parent + "/fanin-arena-test-" + std::to_string(getpid());
    if (mkdir(folder_.c_str(), 0755) != 0) return;
    usable_ = std::filesystem::exists(folder_ / limit) &&
              (std::ofstream(folder_ / limit) << (16U << 20)).flush().good();
    if (!usable_) (void)rmdir(folder_.c_str());
  }
  std::filesystem::path folder_;
  bool usable_ = false;
};

TEST(Arena, the_limit_of_a_control_group_is_an_error) {
  const Group group;
  if (!group.usable()) GTEST_SKIP() << "no control group with a memory limit can be made here";
  for (const bool shared : {false, true}) {
    const std::string text = error_with([&] { group.enter(); }, 64U << 20,
                                        {.huge_pages = HugePages::off, .shared = shared});
    EXPECT_NE(text.find("memory.max"), std::string::npos) << text;
  }
}

} // namespace
} // namespace fanin::memory
