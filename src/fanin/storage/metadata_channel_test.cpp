// HDF5 never learns that a write has failed; the file gets everything, or nothing more.
#include <cerrno>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fanin/storage/detail/append_table.hpp"
#include "fanin/storage/detail/metadata_channel.hpp"
#include "fanin/storage/detail/read_table.hpp"
#include "fanin/storage/testing/batch_maker.hpp"

namespace fanin::storage::detail {
namespace {

class MetadataChannelTest : public ::testing::Test {
protected:
  void SetUp() override {
    const Hdf5Guard guard;
    descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    writable = ::dup(descriptor);
    read_only = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const Handle access{H5Pcreate(H5P_FILE_ACCESS), H5Pclose};
    ASSERT_TRUE(channel.emplace(descriptor).attach(access.get()));
    ASSERT_GE(H5Pset_libver_bounds(access.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST), 0);
    file = Handle{H5Fcreate("any name", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose};
    auto made = AppendTable::create(
        file.get(), H5T_STD_U32LE,
        {.name = "/numbers", .label = "numbers", .chunk_rows = 16, .direct = false});
    ASSERT_TRUE(made) << made.error().text;
    table = std::move(*made);
    ASSERT_GE(H5Fstart_swmr_write(file.get()), 0);
    ASSERT_EQ(channel->drain(), 0);
  }
  void TearDown() override {
    static_cast<void>(table.close());
    static_cast<void>(file.close());
    for (const int open : {descriptor, writable, read_only}) ::close(open);
  }
  void add(std::uint32_t count) {
    std::vector<std::uint32_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(table.rows()));
    const iovec extent{.iov_base = numbers.data(), .iov_len = 4 * numbers.size()};
    const auto written = table.write(descriptor, {&extent, 1}, count, false);
    ASSERT_TRUE(written) << written.error().text;
    const auto flushed = table.flush();
    ASSERT_TRUE(flushed) << flushed.error().text;
    table.commit(count);
  }
  // As another process would.
  void expect_numbers(std::uint64_t count) const {
    const Hdf5Guard guard;
    const Handle again{H5Fopen(path.c_str(), H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, H5P_DEFAULT),
                       H5Fclose};
    ASSERT_TRUE(again) << hdf5_error();
    auto reader = ReadTable::open(again.get(), "/numbers", Handle{H5Tcopy(H5T_STD_U32LE), H5Tclose},
                                  "numbers", read_only);
    ASSERT_TRUE(reader) << reader.error().text;
    ASSERT_EQ(reader->rows(), count);
    std::vector<std::uint32_t> numbers(count);
    const auto read = reader->read(0, std::as_writable_bytes(std::span(numbers)));
    ASSERT_TRUE(read) << read.error().text;
    for (std::uint32_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i);
  }
  void fail_writes() const { ASSERT_GE(::dup2(read_only, descriptor), 0); }
  void allow_writes() const { ASSERT_GE(::dup2(writable, descriptor), 0); }

  storage::testing::TemporaryDirectory directory;
  std::string path = directory.path() + "/file.h5";
  int descriptor = -1;
  int writable = -1;
  int read_only = -1;
  std::optional<MetadataChannel> channel;
  Handle file;
  AppendTable table;
};

TEST_F(MetadataChannelTest, holds_back_what_the_system_refuses_and_writes_it_later) {
  add(100);
  ASSERT_EQ(channel->drain(), 0);
  expect_numbers(100);
  fail_writes();
  for (int i = 0; i < 20; ++i) add(100);
  EXPECT_EQ(channel->drain(), EBADF);
  expect_numbers(100);
  allow_writes();
  EXPECT_EQ(channel->drain(), 0);
  expect_numbers(2100);
  add(10);
  ASSERT_TRUE(table.close());
  ASSERT_TRUE(file.close());
  EXPECT_EQ(channel->drain(), 0);
  expect_numbers(2110);
}

TEST_F(MetadataChannelTest, lets_hdf5_close_a_file_that_is_out_of_reach) {
  add(100);
  fail_writes();
  add(1000);
  EXPECT_TRUE(table.close());
  EXPECT_TRUE(file.close());
  expect_numbers(100);
}

TEST_F(MetadataChannelTest, keeps_a_file_as_it_is_once_it_is_cut_off) {
  add(100);
  channel->cut();
  add(1000);
  EXPECT_TRUE(table.close());
  EXPECT_TRUE(file.close());
  EXPECT_EQ(channel->drain(), 0);
  expect_numbers(100);
}

} // namespace
} // namespace fanin::storage::detail
