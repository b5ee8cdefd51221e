// Files of a run with filter units: rejected events, streams, masks, and results of the filter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/storage/inspect.hpp"
#include "fanin/storage/run_file_reader.hpp"
#include "fanin/storage/run_file_writer.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/storage/verify.hpp"

namespace fanin::storage {
namespace {

using testing::BatchMaker;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryDirectory;

class FilteredFile : public ::testing::Test {
protected:
  FilteredFile() {
    options_.directory = directory_.path();
    options_.run = 3;
    options_.node = "bu0";
    options_.sources = testing::make_sources(3);
    options_.streams = {{"physics", 1, {}}, {"monitoring", 100, {10, 30}}};
  }

  // Events 0 to 3, of which source 20 lacks the last, with these streams. Of each event only the
  // sources that `keeps` says are left.
  VerifyResult write(std::vector<std::uint32_t> streams,
                     const std::function<bool(EventNumber event, SourceId source)>& keeps) {
    BuiltBatch batch;
    batch.ticket = 1;
    batch.range = {0, 4};
    batch.streams = std::move(streams);
    batch.missing.push_back({{3, 4}, 20, wire::MissingReason::deadline});
    for (EventNumber event = 0; event < 4; ++event) {
      auto one = maker_.make(event, {event, event + 1}, [](EventNumber number, SourceId source) {
        const bool absent = number == 3 && source == 20;
        return testing::FragmentPlan{.absent = absent, .size = absent ? 0U : 100U};
      });
      for (auto& piece : one.pieces) {
        if (keeps(event, piece.source)) batch.pieces.push_back(std::move(piece));
      }
    }
    auto writer = RunFileWriter::create(options_, 1);
    EXPECT_TRUE(writer);
    path_ = (*writer)->path();
    const BuiltBatch* const group = &batch;
    EXPECT_TRUE((*writer)->append({&group, 1}));
    EXPECT_TRUE((*writer)->close());
    return verify(std::vector{path_}, {}).value();
  }
  static bool all(EventNumber, SourceId) { return true; }

  TemporaryDirectory directory_;
  RunFileOptions options_;
  BatchMaker maker_{testing::make_sources(3)};
  std::string path_;
};

TEST_F(FilteredFile, of_rejected_and_masked_events_is_good) {
  const auto found = write({1, 0, 2, 0}, [](EventNumber event, SourceId source) {
    return event == 0 || (event == 2 && source != 20);
  });
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.events, 4U);
  EXPECT_EQ(found.rejected, 2U);
  EXPECT_EQ(found.incomplete, 1U); // it was incomplete before it was rejected
  EXPECT_THAT(found.missing, ElementsAre(HasSubstr("source-20), silent at the deadline")));
  const auto file = RunFileReader::open(path_).value();
  ASSERT_EQ(file->info().streams.size(), 2U);
  EXPECT_EQ(file->info().streams[1].name, "monitoring");
  EXPECT_EQ(file->info().streams[1].prescale, 100U);
  EXPECT_THAT(file->info().streams[1].sources, ElementsAre(10U, 30U));
  const auto text = inspect_file(path_).value();
  EXPECT_THAT(text,
              HasSubstr("filter: 2 rejected; 1 in physics; 1 in monitoring (1 of 100); 0 und"));
  EXPECT_THAT(inspect_event(path_, 2, {}).value(), HasSubstr("in monitoring\n"));
  EXPECT_THAT(inspect_event(path_, 3, {}).value(), HasSubstr("incomplete, rejected by the filter"));
}

TEST_F(FilteredFile, has_all_of_what_no_filter_unit_could_decide) {
  const auto found = write({error_stream, 1, 3, error_stream}, all);
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.rejected, 0U);
  EXPECT_THAT(inspect_event(path_, 0, {}).value(), HasSubstr("in error\n"));
}

TEST_F(FilteredFile, that_lacks_what_its_streams_carry_is_found_out) {
  const auto found = write(
      {1, 1, 2, 1}, [](EventNumber event, SourceId source) { return event != 1 || source != 30; });
  EXPECT_THAT(found.problems,
              ElementsAre(HasSubstr("event 1: of 3 required sources it has 2, lacks 0, and the "
                                    "filter left out 0"),
                          HasSubstr("event 2: of 3 required sources it has 3, lacks 0, and the "
                                    "filter left out 1")));
}

TEST_F(FilteredFile, with_streams_that_it_does_not_have_is_found_out) {
  const auto found = write({1, 4 + 1, 1, 1}, all);
  EXPECT_THAT(found.problems, ElementsAre(HasSubstr("event 1: its streams are 0x5")));
}

TEST_F(FilteredFile, without_streams_has_no_dataset_of_them) {
  options_.streams.clear();
  const auto found = write({}, all);
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_THAT(RunFileReader::open(path_).value()->info().streams, IsEmpty());
}

} // namespace
} // namespace fanin::storage
