#include "spillway/groups/group.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "support/error_text.hpp"

namespace spillway::testing {
namespace {

using ::testing::HasSubstr;

TEST(GroupOfOne, DoesEverythingAtOnce) {
  const Group group(3);
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.ranks(), std::vector<int>{3});
  EXPECT_EQ(group.process_group(), nullptr);
  const at::Tensor numbers = at::arange(6).view({1, 6});
  at::Tensor tensor = numbers.clone();
  group.all_reduce(tensor);
  group.broadcast(tensor, 0);
  EXPECT_TRUE(at::equal(tensor, numbers));
  EXPECT_TRUE(at::equal(group.all_gather(tensor), numbers.unsqueeze(0)));
  EXPECT_TRUE(at::equal(group.reduce_scatter(tensor), numbers[0]));
  EXPECT_TRUE(at::equal(group.all_to_all(tensor, {1}, {1}), numbers));
  Pending pending = group.all_reduce_async(tensor);
  EXPECT_TRUE(pending.done());
  pending.wait();
  group.barrier();
}

TEST(GroupOfOne, GivesNewTensorsThatShareNothing) {
  const Group group;
  at::Tensor tensor = at::zeros({1, 2});
  at::Tensor gathered = group.all_gather(tensor);
  at::Tensor moved = group.all_to_all(tensor, {1}, {1});
  tensor.fill_(1);
  EXPECT_TRUE(at::equal(gathered, at::zeros({1, 1, 2})));
  EXPECT_TRUE(at::equal(moved, at::zeros({1, 2})));
}

TEST(GroupOfOne, HasNoRankToSendTo) {
  const Group group;
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)group.send(at::zeros({1}), 0, 0); }),
            "[send] group of one (ranks 0): a rank cannot send to itself, nor receive from itself");
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)group.receive(at::zeros({1}), 1, 0); }),
            "[receive] group of one (ranks 0): there is no group rank 1; they are 0 to 0");
}

TEST(Group, NeedsAProcessGroupOfItsSize) {
  EXPECT_THAT(error_text<InvalidArgument>([] {
                Group(nullptr, {0, 1}, "data");
              }),
              HasSubstr("[group] group data (ranks 0 1): there is no process group"));
  const auto three = c10::make_intrusive<c10d::ProcessGroup>(0, 3);
  EXPECT_THAT(error_text<InvalidArgument>([&] {
                Group(three, {0, 1}, "data");
              }),
              HasSubstr("the process group has 3 members"));
}

TEST(Pending, OfNothingIsDone) {
  Pending pending;
  EXPECT_TRUE(pending.done());
  pending.wait();
  Pending moved = std::move(pending);
  moved.wait();
}

}  // namespace
}  // namespace spillway::testing
