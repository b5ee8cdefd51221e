#include "fanin/builder/manager/builder_choice.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "fanin/builder/manager/assignment_policies.hpp"

namespace fanin::builder {
namespace {

using Answer = BuilderChoice::Answer;

class Choice : public ::testing::Test {
protected:
  std::optional<NodeId> give(EventNumber first, std::uint64_t bytes, Attempt attempt = 0,
                             std::optional<NodeId> handed_back = {}) {
    const AssignmentRequest request{{first, first + 1}, bytes, attempt};
    const auto node =
        choice_.choose(request, handed_back, [this](NodeId one) { return answers_[one]; });
    if (node) choice_.assigned(*node, request);
    return node;
  }
  std::vector<Answer> answers_{3, Answer::has_room};
  BuilderChoice choice_{std::make_unique<RoundRobin>(3), 3, 16, 100};
};

TEST_F(Choice, whole_batches_go_round) {
  std::vector<NodeId> nodes;
  for (EventNumber i = 0; i < 7; ++i) nodes.push_back(give(16 * i, 10).value());
  EXPECT_EQ(nodes, (std::vector<NodeId>{0, 1, 2, 0, 1, 2, 0}));
}

TEST_F(Choice, parts_stay_together_until_they_are_a_batch) {
  EXPECT_EQ(give(0, 40), 0U);
  EXPECT_EQ(give(1, 40), 0U);
  EXPECT_EQ(give(2, 40), 0U); // 80 bytes before: not a batch yet
  EXPECT_EQ(give(3, 40), 1U);
  EXPECT_EQ(give(4, 40), 1U);
  EXPECT_EQ(give(16, 40), 2U); // a new batch
}

TEST_F(Choice, parts_move_on_where_there_is_no_room) {
  EXPECT_EQ(give(0, 10), 0U);
  answers_[0] = Answer::no_room;
  EXPECT_EQ(give(1, 10), 1U);
  answers_[1] = answers_[2] = Answer::unusable;
  EXPECT_FALSE(give(2, 10));
  answers_[0] = Answer::has_room;
  EXPECT_EQ(give(2, 10), 0U);
}

TEST_F(Choice, batch_that_was_handed_back_goes_elsewhere_if_it_can) {
  EXPECT_EQ(give(0, 10, 1, NodeId{0}), 1U);
  answers_[2] = Answer::no_room;
  answers_[1] = Answer::no_room;
  EXPECT_FALSE(give(16, 10, 1, NodeId{0})); // another one may have room soon
  answers_[1] = answers_[2] = Answer::unusable;
  EXPECT_EQ(give(16, 10, 1, NodeId{0}), 0U); // there is no other
}

TEST_F(Choice, batch_that_is_assigned_again_follows_the_policy_and_not_its_neighbour) {
  EXPECT_EQ(give(0, 10), 0U);
  EXPECT_EQ(give(1, 10, 1), 1U);
}

TEST(Assigner, parts_after_a_gap_go_where_their_numbers_say) {
  BuilderChoice choice{std::make_unique<ByNumber>(3, 16), 3, 16, 100};
  const auto give = [&](EventNumber first) {
    const AssignmentRequest request{{first, first + 1}, 10, 0};
    const auto node = choice.choose(request, {}, [](NodeId) { return Answer::has_room; });
    choice.assigned(node.value(), request);
    return *node;
  };
  EXPECT_EQ(give(3), 0U);
  EXPECT_EQ(give(5), 0U);
  EXPECT_EQ(give(21), 1U); // not with the part before
  EXPECT_EQ(give(23), 1U);
}

// Always the same order, without the first builder unit.
class Fixed final : public Assigner {
public:
  std::span<const NodeId> preference(const AssignmentRequest&) override { return order_; }
  void assigned(NodeId, const AssignmentRequest&) override {}

private:
  std::vector<NodeId> order_{2, 1};
};

TEST(Assigner, builder_units_that_a_policy_leaves_out_get_nothing) {
  BuilderChoice choice{std::make_unique<Fixed>(), 3, 16, 100};
  bool second = false;
  const auto ask = [&](NodeId node) {
    return node == 0 || (second && node == 1) ? Answer::has_room : Answer::no_room;
  };
  EXPECT_FALSE(choice.choose({{0, 16}, 10, 0}, {}, ask));
  second = true;
  EXPECT_EQ(choice.choose({{0, 16}, 10, 0}, {}, ask), 1U);
}

} // namespace
} // namespace fanin::builder
