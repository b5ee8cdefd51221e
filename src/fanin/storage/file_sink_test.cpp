// FileSink: what it says is committed is in the file, whatever happens to the process or the disk.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/storage/file_sink.hpp"
#include "fanin/storage/run_file_reader.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/storage/testing/seeds.hpp"

namespace fanin::storage {
namespace {

using testing::BatchMaker;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::make_sources;
using ::testing::Pair;
using testing::payload_of;
using testing::TemporaryDirectory;
using testing::varied_plan;

// Does what the loop does with a service, until `done`; waits on the descriptor in between.
void drive(EventSink& sink, const std::function<bool()>& done) {
  while (!done()) {
    if (sink.poll() || !sink.arm()) continue;
    pollfd waiting{.fd = sink.descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, -1);
  }
}

// The events of a file, each checked against what BatchMaker had put into it.
std::set<EventNumber> good_events(const std::string& path) {
  std::set<EventNumber> good;
  const auto reader = RunFileReader::open(path);
  if (!reader) {
    ADD_FAILURE() << reader.error().text;
    return good;
  }
  const auto read = (*reader)->for_each_event([&](std::uint64_t index, const EventRow& row) {
    SCOPED_TRACE(fmt::format("{}: row {} of {}", path, index, (*reader)->events()));
    const auto fragments = (*reader)->fragments_of(row);
    EXPECT_TRUE(fragments) << fragments.error().text;
    EXPECT_EQ(fragments->size(), (*reader)->info().sources.size());
    for (const auto& fragment : *fragments) {
      const auto bytes = (*reader)->bytes_of(fragment);
      EXPECT_TRUE(bytes) << bytes.error().text;
      EXPECT_TRUE(*bytes == payload_of(row.event, fragment.source,
                                       varied_plan(row.event, fragment.source).size))
          << path << ": event " << row.event << ", source " << fragment.source;
    }
    EXPECT_TRUE(good.insert(row.event).second) << path << ": event " << row.event << " twice";
    return !::testing::Test::HasFailure();
  });
  EXPECT_TRUE(read) << read.error().text;
  return good;
}

std::set<EventNumber> good_events(const std::vector<std::string>& files) {
  std::set<EventNumber> all;
  for (const auto& file : files) {
    for (const auto event : good_events(file)) {
      EXPECT_TRUE(all.insert(event).second) << "event " << event << " is in two files";
    }
  }
  return all;
}

class FileSinkTest : public ::testing::Test {
protected:
  FileSinkOptions options() { return options_in(directory.path()); }
  FileSinkOptions options_in(const std::string& place) {
    FileSinkOptions chosen;
    chosen.file = {.directory = place,
                   .run = 1,
                   .node = "bu0",
                   .sources = maker.sources(),
                   .bytes_chunk = 65536,
                   .rows_chunk = 256};
    chosen.depth = 8;
    chosen.retry_interval = std::chrono::milliseconds{1};
    chosen.on_gone = [this](const std::string& path, std::uint64_t events) { gone[path] = events; };
    return chosen;
  }
  std::unique_ptr<FileSink> start(const FileSinkOptions& chosen) {
    auto sink = FileSink::make(chosen);
    if (!sink) throw std::runtime_error(sink.error().text);
    (*sink)->on_commit([this](const Committed& done) { committed.push_back(done.ticket); });
    (*sink)->on_failure([this](const Error& error, bool fatal) {
      failures.push_back(fmt::format("{}: {}", fatal ? "fatal" : "waits", error.text));
    });
    const auto started = (*sink)->start();
    EXPECT_TRUE(started) << started.error().text;
    return std::move(*sink);
  }
  // Batch n holds events [20 n, 20 n + 20).
  BuiltBatch batch(std::uint64_t n) { return maker.make(n, {20 * n, 20 * n + 20}); }
  void submit(FileSink& sink, std::uint64_t n) {
    auto next = batch(n);
    drive(sink, [&] { return sink.submit(next) == SubmitOutcome::accepted; });
  }
  // Batches from `n` on, until the sink has reported a failure; how many were taken in all.
  std::uint64_t submit_until_failure(FileSink& sink, std::uint64_t n) {
    auto next = batch(n);
    drive(sink, [&] {
      while (failures.empty() && sink.submit(next) == SubmitOutcome::accepted) next = batch(++n);
      return !failures.empty();
    });
    return n;
  }
  static void finish(FileSink& sink) {
    sink.finish();
    drive(sink, [&] { return sink.finished(); });
  }

  TemporaryDirectory directory;
  BatchMaker maker{make_sources(3), 128};
  std::vector<std::uint64_t> committed;
  std::vector<std::string> failures;
  std::map<std::string, std::uint64_t> gone; // events, by path
};

TEST_F(FileSinkTest, of_no_depth_is_refused) {
  auto none = options();
  none.depth = 0;
  const auto made = FileSink::make(std::move(none));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::usage);
}

TEST_F(FileSinkTest, commits_all_batches_in_order_and_gives_the_pages_back) {
  const auto sink = start(options());
  std::vector<std::uint64_t> tickets;
  for (std::uint64_t n = 0; n < 200; ++n) {
    submit(*sink, n);
    tickets.push_back(n);
  }
  finish(*sink);
  EXPECT_EQ(committed, tickets);
  EXPECT_TRUE(maker.all_home());
  EXPECT_TRUE(failures.empty());
  EXPECT_THAT(sink->files(), ElementsAre(directory.path() + "/run000001_bu0_i1_0001.h5"));
  EXPECT_EQ(good_events(sink->files()).size(), 4000U);
  EXPECT_GT(sink->bytes_written(), 0U);
}

TEST_F(FileSinkTest, commits_a_single_batch_without_waiting_for_more) {
  const auto sink = start(options());
  submit(*sink, 0);
  drive(*sink, [&] { return committed.size() == 1; });
  EXPECT_EQ(good_events(sink->files()).size(), 20U);
  submit(*sink, 1);
  drive(*sink, [&] { return committed.size() == 2; });
  EXPECT_EQ(good_events(sink->files()).size(), 40U);
  EXPECT_EQ(sink->commits(), 2U);
}

TEST_F(FileSinkTest, groups_what_is_queued_into_one_commit) {
  auto sink = FileSink::make(options());
  ASSERT_TRUE(sink);
  (*sink)->on_commit([this](const Committed& done) { committed.push_back(done.ticket); });
  for (std::uint64_t n = 0; n < 8; ++n) {
    auto next = batch(n);
    ASSERT_EQ((*sink)->submit(next), SubmitOutcome::accepted);
  }
  auto surplus = batch(8);
  EXPECT_EQ((*sink)->submit(surplus), SubmitOutcome::busy);
  EXPECT_FALSE(surplus.pieces.empty()) << "a refused batch was taken";
  ASSERT_TRUE((*sink)->start());
  drive(**sink, [&] { return committed.size() == 8; });
  EXPECT_EQ((*sink)->commits(), 1U);
}

TEST_F(FileSinkTest, commits_to_the_disk_as_well) {
  auto chosen = options();
  chosen.file.commit = CommitMode::synced;
  const auto sink = start(chosen);
  for (std::uint64_t n = 0; n < 20; ++n) submit(*sink, n);
  finish(*sink);
  EXPECT_EQ(good_events(sink->files()).size(), 400U);
}

TEST_F(FileSinkTest, begins_a_new_part_at_the_size_given) {
  auto chosen = options();
  chosen.file.max_file = 100'000;
  const auto sink = start(chosen);
  for (std::uint64_t n = 0; n < 100; ++n) submit(*sink, n);
  finish(*sink);
  const auto files = sink->files();
  EXPECT_GT(files.size(), 5U);
  EXPECT_EQ(files.back(),
            fmt::format("{}/run000001_bu0_i1_{:04}.h5", directory.path(), files.size()));
  for (const auto& file : files) {
    EXPECT_EQ(good_events(file).size() % 20, 0U) << "a batch was cut in two";
  }
  EXPECT_EQ(good_events(files).size(), 2000U);
}

TEST_F(FileSinkTest, a_batch_above_the_size_given_has_a_part_of_its_own) {
  auto chosen = options();
  chosen.file.max_file = 10;
  const auto sink = start(chosen);
  for (std::uint64_t n = 0; n < 3; ++n) submit(*sink, n);
  finish(*sink);
  EXPECT_EQ(sink->files().size(), 3U);
  EXPECT_EQ(good_events(sink->files()).size(), 60U);
}

TEST_F(FileSinkTest, says_at_once_that_a_directory_does_not_exist) {
  const auto sink = FileSink::make(options_in(directory.path() + "/nowhere"));
  ASSERT_FALSE(sink);
  EXPECT_EQ(sink.error().kind, ErrorKind::not_found);
}

TEST_F(FileSinkTest, ends_with_batches_still_queued) {
  auto sink = FileSink::make(options());
  ASSERT_TRUE(sink);
  for (std::uint64_t n = 0; n < 5; ++n) {
    auto next = batch(n);
    ASSERT_EQ((*sink)->submit(next), SubmitOutcome::accepted);
  }
  sink->reset();
  EXPECT_TRUE(maker.all_home());
}

TEST_F(FileSinkTest, a_file_that_is_removed_is_said_and_nothing_more_goes_into_it) {
  const auto sink = start(options());
  submit(*sink, 0);
  drive(*sink, [&] { return committed.size() == 1; });
  const auto first = sink->files()[0];
  std::filesystem::remove(first);
  for (std::uint64_t n = 1; n < 10; ++n) submit(*sink, n);
  drive(*sink, [&] { return !gone.empty(); }); // before the end
  finish(*sink);
  EXPECT_THAT(gone, ElementsAre(Pair(first, 20)));
  ASSERT_EQ(sink->files().size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(first));
  EXPECT_EQ(good_events(sink->files()[1]).size(), 180U);
}

TEST_F(FileSinkTest, a_file_that_is_renamed_or_replaced_stays_as_it_is) {
  const auto sink = start(options());
  submit(*sink, 0);
  drive(*sink, [&] { return committed.size() == 1; });
  const auto first = sink->files()[0];
  std::filesystem::rename(first, directory.path() + "/moved.h5");
  std::ofstream(first) << "of somebody else";
  submit(*sink, 1);
  finish(*sink);
  EXPECT_THAT(gone, ElementsAre(Pair(first, 20)));
  EXPECT_EQ(good_events(directory.path() + "/moved.h5").size(), 20U);
  EXPECT_EQ(good_events(sink->files()[1]).size(), 20U);
  EXPECT_EQ(std::filesystem::file_size(first), 16U);
}

TEST_F(FileSinkTest, a_folder_that_is_removed_is_made_again) {
  const auto place = directory.path() + "/here";
  std::filesystem::create_directory(place);
  const auto sink = start(options_in(place));
  submit(*sink, 0);
  drive(*sink, [&] { return committed.size() == 1; });
  std::filesystem::remove_all(place);
  submit(*sink, 1);
  finish(*sink);
  EXPECT_TRUE(failures.empty());
  EXPECT_EQ(good_events(sink->files()[1]).size(), 20U);
}

TEST_F(FileSinkTest, a_file_that_is_removed_when_nothing_more_comes_is_found_at_the_end) {
  const auto sink = start(options());
  submit(*sink, 0);
  drive(*sink, [&] { return committed.size() == 1; });
  std::filesystem::remove(sink->files()[0]);
  finish(*sink);
  EXPECT_THAT(gone, ElementsAre(Pair(sink->files()[0], 20)));
  EXPECT_EQ(sink->files().size(), 1U);
}

TEST_F(FileSinkTest, a_part_that_is_removed_after_its_end_is_found_at_the_end) {
  auto chosen = options();
  chosen.file.max_file = 20'000; // one batch
  const auto sink = start(chosen);
  for (std::uint64_t n = 0; n < 3; ++n) submit(*sink, n);
  drive(*sink, [&] { return committed.size() == 3; });
  std::filesystem::remove(sink->files()[0]);
  finish(*sink);
  EXPECT_THAT(gone, ElementsAre(Pair(sink->files()[0], 20)));
}

TEST_F(FileSinkTest, a_file_that_is_emptied_or_cut_is_said_and_the_next_group_is_whole) {
  for (const unsigned divisor : {0U, 2U}) {
    gone.clear();
    committed.clear();
    auto chosen = options();
    chosen.file.run = 1 + divisor;
    const auto sink = start(chosen);
    submit(*sink, 0);
    drive(*sink, [&] { return committed.size() == 1; });
    const auto first = sink->files()[0];
    std::filesystem::resize_file(first, divisor == 0 ? 0 : std::filesystem::file_size(first) / 2);
    submit(*sink, 1);
    finish(*sink);
    EXPECT_THAT(gone, ElementsAre(Pair(first, 20)));
    ASSERT_EQ(sink->files().size(), 2U);
    EXPECT_EQ(good_events(sink->files()[1]).size(), 20U);
    EXPECT_TRUE(failures.empty());
  }
}

// At any instant, also while the file is written: what is not there is said.
class FileSinkDamage : public FileSinkTest {
protected:
  std::string any_file(Random& random) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
      const std::string name = entry.path().filename();
      if (name.starts_with(fmt::format("run{:06}", run_)) && name.ends_with(".h5")) {
        files.push_back(entry.path());
      }
    }
    std::ranges::sort(files);
    return files[random.below(files.size())];
  }

  // False: perhaps nothing that the file needs.
  static bool damage(const std::string& file, Random& random) {
    std::error_code ignored; // it may have been removed
    const auto size = std::filesystem::file_size(file, ignored);
    switch (random.below(5)) {
    case 0: std::filesystem::remove(file, ignored); return true;
    case 1:
      std::filesystem::rename(file, file + ".moved", ignored);
      std::ofstream(file) << "of somebody else";
      return true;
    case 2: std::ofstream(file) << std::string(random.below(2000), 'x'); return true;
    case 3: std::filesystem::resize_file(file, size / 2, ignored); return true;
    default: std::filesystem::resize_file(file, random.below(size), ignored); return false;
    }
  }

  void run(Random random) {
    gone.clear();
    committed.clear();
    auto chosen = options();
    ++run_;
    chosen.file.run = run_;
    chosen.file.max_file = random.chance(1, 2) ? 60'000 : 1U << 20; // some batches, or all
    const auto sink = start(chosen);
    const std::uint64_t batches = 4 + random.below(20);
    const std::uint64_t when = random.below(batches);
    std::string damaged;
    bool surely = false;
    for (std::uint64_t n = 0; n < batches; ++n) {
      submit(*sink, n);
      if (n == when) surely = damage(damaged = any_file(random), random);
    }
    finish(*sink);
    EXPECT_EQ(committed.size(), batches);
    EXPECT_TRUE(failures.empty()) << failures[0];
    std::vector<std::string> whole = sink->files();
    if (surely && std::ranges::find(whole, damaged) != whole.end()) {
      EXPECT_TRUE(gone.contains(damaged)) << damaged;
    }
    std::erase_if(whole, [&](const std::string& file) { return gone.contains(file); });
    std::uint64_t said = 0;
    for (const auto& [file, events] : gone) said += events;
    EXPECT_GE(good_events(whole).size() + said, 20 * batches);
    EXPECT_LE(gone.size(), 1U);
  }

private:
  RunNumber run_ = 0;
};

TEST_F(FileSinkDamage, at_any_instant_is_said) {
  testing::for_each_seed([this](Random random) { run(std::move(random)); });
}

TEST_F(FileSinkTest, a_file_without_events_that_was_replaced_costs_the_other_nothing) {
  auto sink = start(options());
  const auto path = directory.path() + "/" + run_file_name(1, "bu0", 1, 1);
  std::filesystem::remove(path);
  std::ofstream(path) << "of somebody else";
  finish(*sink);
  EXPECT_TRUE(gone.empty());
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(FileSinkTest, waits_while_the_directory_is_away_and_goes_on_when_it_is_back) {
  const auto place = directory.path() + "/here";
  const auto away = directory.path() + "/away";
  std::filesystem::create_directory(place);
  auto chosen = options_in(place);
  chosen.file.max_file = 20'000;
  const auto sink = start(chosen);
  submit(*sink, 0);
  drive(*sink, [&] { return committed.size() == 1; });
  std::filesystem::rename(place, away);
  std::ofstream(place) << "so that it cannot be made again";
  auto n = submit_until_failure(*sink, 1);
  EXPECT_EQ(failures.size(), 1U);
  EXPECT_THAT(failures[0], HasSubstr("waits: create " + place));
  // At once: the sink would make the directory again where there is nothing.
  ASSERT_EQ(::renameat2(AT_FDCWD, away.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE), 0);
  submit(*sink, n++);
  finish(*sink);
  EXPECT_EQ(failures.size(), 1U);
  EXPECT_EQ(committed.size(), n);
  EXPECT_EQ(good_events(sink->files()).size(), 20 * n);
}

// The descriptor that this process has of a file; -1: none.
int descriptor_of(const std::string& path) {
  struct stat file{};
  EXPECT_EQ(::stat(path.c_str(), &file), 0);
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    struct stat own{};
    if (::fstat(descriptor, &own) == 0 && own.st_dev == file.st_dev && own.st_ino == file.st_ino) {
      return descriptor;
    }
  }
  return -1;
}

TEST_F(FileSinkTest, goes_on_in_a_new_part_when_a_file_cannot_be_written_any_more) {
  const auto sink = start(options());
  submit(*sink, 0);
  drive(*sink, [&] { return committed.size() == 1; });
  const int read_only = ::open(sink->files()[0].c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(::dup2(read_only, descriptor_of(sink->files()[0])), 0); // as a disk with a fault
  ::close(read_only);
  for (std::uint64_t n = 1; n < 50; ++n) submit(*sink, n);
  finish(*sink);
  EXPECT_THAT(failures, ElementsAre(HasSubstr("waits: write " + sink->files()[0])));
  EXPECT_EQ(committed.size(), 50U);
  const auto files = sink->files();
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(good_events(files[0]).size(), 20U);
  EXPECT_EQ(good_events(files).size(), 1000U);
}

// --- a full disk: a small file system of our own, in a mount namespace of this process ---

bool mount_small_disk(const std::string& place, std::size_t size) {
  static const bool own_namespace = [] {
    const bool made = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    return made && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }();
  return own_namespace &&
         ::mount("tmpfs", place.c_str(), "tmpfs", 0, fmt::format("size={}", size).c_str()) == 0;
}

// The parameter: is space taken from the disk ahead of need? Where a file system cannot do that,
// HDF5 itself meets the full disk, and the part is given up for a new one.
class FullDisk : public FileSinkTest, public ::testing::WithParamInterface<bool> {
protected:
  void SetUp() override {
    disk = directory.path() + "/disk";
    std::filesystem::create_directory(disk);
    if (!mount_small_disk(disk, 6U << 20)) {
      GTEST_SKIP() << "this process may not mount a tmpfs: " << std::strerror(errno);
    }
    mounted = true;
  }
  void TearDown() override {
    if (mounted) ::umount2(disk.c_str(), MNT_DETACH);
  }
  FileSinkOptions full_options(OnFull on_full) {
    auto chosen = options_in(disk);
    chosen.on_full = on_full;
    chosen.file.reserve = GetParam();
    return chosen;
  }
  void put_ballast(std::size_t size) const {
    std::ofstream(disk + "/ballast") << std::string(size, 'x');
  }

  std::string disk;
  bool mounted = false;
};

TEST_P(FullDisk, is_waited_for_and_nothing_is_lost) {
  put_ballast(3U << 20);
  const auto sink = start(full_options(OnFull::wait));
  auto n = submit_until_failure(*sink, 0);
  EXPECT_THAT(failures, ElementsAre(HasSubstr("No space left on device")));
  EXPECT_THAT(failures[0], HasSubstr("waits"));
  EXPECT_THAT(sink->waits_for(), HasSubstr("the disk, which is full (write " + disk));
  // Backpressure meanwhile, and what was committed can be read.
  auto more = batch(n);
  while (sink->submit(more) == SubmitOutcome::accepted) more = batch(++n);
  sink->poll();
  EXPECT_LT(committed.size(), n);
  EXPECT_GE(good_events(sink->files()).size(), 20 * committed.size());
  std::filesystem::remove(disk + "/ballast");
  drive(*sink, [&] { return sink->submit(more) == SubmitOutcome::accepted; });
  ++n;
  finish(*sink);
  EXPECT_EQ(failures.size(), 1U) << failures.back();
  EXPECT_EQ(sink->waits_for(), "");
  EXPECT_EQ(committed.size(), n);
  EXPECT_EQ(good_events(sink->files()).size(), 20 * n);
  EXPECT_TRUE(maker.all_home());
}

TEST_P(FullDisk, stops_the_run_in_good_order) {
  const auto sink = start(full_options(OnFull::stop));
  const auto n = submit_until_failure(*sink, 0);
  EXPECT_THAT(failures, ElementsAre(HasSubstr("No space left on device")));
  EXPECT_THAT(failures[0], HasSubstr("fatal"));
  finish(*sink);
  EXPECT_LT(committed.size(), n);
  EXPECT_GE(good_events(sink->files()).size(), 20 * committed.size());
}

TEST_P(FullDisk, can_be_given_up_while_waiting) {
  auto sink = start(full_options(OnFull::wait));
  static_cast<void>(submit_until_failure(*sink, 0));
  const auto files = sink->files();
  sink.reset();
  EXPECT_TRUE(maker.all_home());
  EXPECT_GE(good_events(files).size(), 20 * committed.size());
}

TEST_P(FullDisk, leaves_no_name_of_a_file_that_it_removed) {
  const auto sink = start(full_options(OnFull::wait));
  {
    std::ofstream ballast(disk + "/ballast");
    while (ballast << std::string(4096, 'x') << std::flush) {
    }
  }
  static_cast<void>(submit_until_failure(*sink, 0));
  EXPECT_TRUE(committed.empty());
  sink->abandon();
  for (const auto& file : sink->files()) EXPECT_TRUE(std::filesystem::exists(file)) << file;
}

// Page by page, so that each of the writer's steps, and HDF5's own, is once the one that finds no
// room.
TEST_P(FullDisk, may_strike_at_any_step) {
  for (std::size_t round = 0; round < 16 && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    committed.clear();
    failures.clear();
    auto chosen = full_options(OnFull::wait);
    chosen.file.run = static_cast<RunNumber>(round);
    chosen.file.bytes_chunk = 4096;
    chosen.file.rows_chunk = 64;
    put_ballast((4U << 20) + 4096 * round);
    const auto sink = start(chosen);
    auto n = submit_until_failure(*sink, 0);
    EXPECT_GE(good_events(sink->files()).size(), 20 * committed.size());
    std::filesystem::remove(disk + "/ballast");
    submit(*sink, n++);
    finish(*sink);
    EXPECT_EQ(committed.size(), n);
    EXPECT_EQ(good_events(sink->files()).size(), 20 * n);
    for (const auto& file : sink->files()) std::filesystem::remove(file);
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, FullDisk, ::testing::Bool(), [](const auto& param_info) {
  return param_info.param ? "with_space_reserved" : "without_reserve";
});

// --- kill -9 ---

// Builds and commits as fast as it can; says each ticket that is committed. Never returns.
[[noreturn]] void write_until_killed(FileSinkOptions options, std::uint64_t seed, int acknowledge) {
  BatchMaker maker(options.file.sources, 128);
  Random random(seed);
  auto made = FileSink::make(std::move(options));
  if (!made || !(*made)->start()) ::_exit(1);
  auto& sink = **made;
  sink.on_commit([&](const Committed& done) {
    if (::write(acknowledge, &done.ticket, sizeof done.ticket) != sizeof done.ticket) ::_exit(1);
  });
  for (std::uint64_t n = 0;; ++n) {
    auto batch = maker.make(n, {20 * n, 20 * n + 20});
    drive(sink, [&] { return sink.submit(batch) == SubmitOutcome::accepted; });
    if (random.chance(1, 4)) drive(sink, [&] { return maker.all_home(); }); // low rate now and then
  }
}

// Everything that is acknowledged before the end of the pipe.
std::vector<std::uint64_t> read_tickets(int descriptor, std::uint64_t enough, pid_t child) {
  std::vector<std::uint64_t> tickets;
  std::uint64_t ticket = 0;
  bool killed = false;
  while (true) {
    if (!killed && tickets.size() >= enough) {
      ::kill(child, SIGKILL);
      killed = true;
    }
    if (::read(descriptor, &ticket, sizeof ticket) != sizeof ticket) return tickets;
    tickets.push_back(ticket);
  }
}

TEST_F(FileSinkTest, has_every_acknowledged_event_after_kill_9) {
  const char* const wanted = std::getenv("FANIN_KILL_ROUNDS");
  const int rounds = wanted != nullptr ? std::atoi(wanted) : 40;
  const char* const given = std::getenv("FANIN_SEED");
  const auto seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 20'261'121ULL;
  Random random(seed);
  std::uint64_t acknowledged = 0;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("seed {}, round {}", seed, round));
    const TemporaryDirectory place;
    auto chosen = options_in(place.path());
    chosen.file.max_file = 200'000 + random.below(2'000'000);
    chosen.file.bytes_chunk = 4096U << random.below(6);
    chosen.file.rows_chunk = 64U << random.below(4);
    if (random.chance(1, 10)) chosen.file.commit = CommitMode::synced;
    const auto child_seed = random.next();
    const auto enough = random.below(300);
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    const auto child = ::fork();
    if (child == 0) write_until_killed(chosen, child_seed, pipe[1]);
    ::close(pipe[1]);
    const auto tickets = read_tickets(pipe[0], enough, child);
    ::close(pipe[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writing process ended by itself";

    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(place.path())) {
      if (entry.path().filename().string().starts_with("run")) files.push_back(entry.path());
    }
    const auto good = good_events(files);
    for (const auto ticket : tickets) {
      for (auto event = 20 * ticket; event < 20 * ticket + 20; ++event) {
        ASSERT_TRUE(good.contains(event)) << "event " << event << " was acknowledged and is gone";
      }
    }
    acknowledged += tickets.size();
  }
  RecordProperty("batches_acknowledged", std::to_string(acknowledged));
}

} // namespace
} // namespace fanin::storage
