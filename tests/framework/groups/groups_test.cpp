// The groups of MPI, by themselves and found by their names. Runs as several ranks.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/Functional.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unistd.h>

#include "conformance/group_conformance.hpp"
#include "support/error_text.hpp"
#include "support/ranks.hpp"

namespace spillway::testing {
namespace {

using ::testing::HasSubstr;
using Lists = std::vector<std::vector<int>>;

std::vector<int> everyone() {
  std::vector<int> all(static_cast<std::size_t>(ranks().size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Group mpi_group(const std::string& name, const Lists& partition) {
  return ranks().group(name, partition);
}

/// As Python would do it: every rank makes every group, and gives the name that c10d knows it by.
Group torch_group(const std::string& name, const Lists& partition) {
  static std::vector<Group> held;
  const auto world = make_torch_world(
      ranks().rank(), ranks().size(), [&](const std::vector<int>& members) -> std::string {
        Lists lists{members};
        for (const int rank : everyone()) {
          if (std::find(members.begin(), members.end(), rank) == members.end()) {
            lists.push_back({rank});
          }
        }
        held.push_back(ranks().group("of torch", lists));
        if (held.back().size() == 1) return "no member";
        return held.back().process_group()->getGroupName();
      });
  EXPECT_EQ(world->rank(), ranks().rank());
  return world->group(name, partition);
}

INSTANTIATE_TEST_SUITE_P(Groups, GroupConformance,
                         ::testing::Values(GroupCase{"mpi", mpi_group},
                                           GroupCase{"torch", torch_group}),
                         group_case_name);

/// The bits of random numbers summed from the first rank to the last in `sum` type.
at::Tensor sum_in_order(const at::Tensor& gathered, at::ScalarType sum) {
  at::Tensor total = gathered[0].to(sum);
  for (std::int64_t rank = 1; rank < gathered.size(0); ++rank) total += gathered[rank].to(sum);
  return total.to(gathered.scalar_type());
}

TEST(MpiGroup, SumsInTheOrderOfTheRanksWithOneRounding) {
  const Group all = ranks().everyone();
  at::manual_seed(static_cast<std::uint64_t>(7 + all.rank()));
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t count : {5, 40000}) {
      const at::Tensor mine = at::randn({count}).to(type);
      const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
      const at::Tensor expected = sum_in_order(all.all_gather(mine), wide);
      at::Tensor whole = mine.clone();
      all.all_reduce(whole);
      EXPECT_TRUE(at::equal(whole, expected));
      // In pieces of other sizes the bits are the same.
      at::Tensor pieces = mine.clone();
      for (std::int64_t begin = 0; begin < count; begin += 7001) {
        at::Tensor piece = pieces.narrow(0, begin, std::min<std::int64_t>(7001, count - begin));
        all.all_reduce(piece);
      }
      EXPECT_TRUE(at::equal(pieces, expected));
      const at::Tensor rows = mine.expand({all.size(), count}).contiguous();
      EXPECT_TRUE(at::equal(all.reduce_scatter(rows), expected));
    }
  }
}

TEST(MpiGroup, KeepsWhatIsNoNumber) {
  const Group all = ranks().everyone();
  at::Tensor tensor = at::full({3}, all.rank() == all.size() - 1 ? NAN : 1.0, at::kFloat);
  all.all_reduce(tensor, Reduce::kMax);
  EXPECT_TRUE(tensor.isnan().all().item<bool>());
}

TEST(MpiGroup, OrdersMembersAsTheListDoes) {
  std::vector<int> backwards = everyone();
  std::reverse(backwards.begin(), backwards.end());
  const Group group = ranks().group("backwards", {backwards});
  EXPECT_EQ(group.rank(), ranks().size() - 1 - ranks().rank());
  const at::Tensor gathered = group.all_gather(at::full({1}, ranks().rank(), at::kInt));
  EXPECT_EQ(gathered[0].item<int>(), ranks().size() - 1);
}

TEST(MpiGroup, ServesFunctionalCollectivesByItsName) {
  const Group all = ranks().everyone();
  if (all.size() == 1) GTEST_SKIP() << "skipped: one rank";
  const std::string name = all.process_group()->getGroupName();
  const at::Tensor ones = at::full({4}, all.rank() + 1, at::kFloat);
  const int sum = all.size() * (all.size() + 1) / 2;
  const auto wait = [](const at::Tensor& tensor) { return c10d::wait_tensor(tensor); };
  EXPECT_TRUE(at::equal(wait(c10d::all_reduce(ones, "sum", name)), at::full({4}, sum, at::kFloat)));
  EXPECT_EQ(wait(c10d::all_reduce(ones, "avg", name))[0].item<float>(),
            static_cast<float>(sum) / static_cast<float>(all.size()));
  const at::Tensor gathered = wait(c10d::all_gather_into_tensor(ones, all.size(), name));
  EXPECT_EQ(gathered[4 * all.size() - 1].item<int>(), all.size());
  std::vector<at::Tensor> two = c10d::all_reduce_coalesced({ones, ones * 2}, "sum", name);
  EXPECT_EQ(wait(two[0])[0].item<int>(), sum);
  EXPECT_EQ(wait(two[1])[0].item<int>(), 2 * sum);
  const at::Tensor row = wait(c10d::reduce_scatter_tensor(
      at::full({2 * all.size()}, all.rank() + 1, at::kFloat), "sum", all.size(), name));
  EXPECT_TRUE(at::equal(row, at::full({2}, sum, at::kFloat)));
}

TEST(MpiGroup, CompletesWithoutWaiting) {
  const Group all = ranks().everyone();
  at::Tensor tensor = at::full({30000}, 1, at::kFloat);
  Pending pending = all.all_reduce_async(tensor);
  // Only looked at, by ranks that never wait.
  while (!pending.done()) std::this_thread::yield();
  EXPECT_EQ(tensor[29999].item<int>(), all.size());
  all.barrier();
}

/// A file that all members see, for what must not go through MPI.
class SharedFile {
 public:
  explicit SharedFile(const Group& group) : rank_(group.rank()) {
    if (rank_ == 0) ::close(::mkstemp(name_.data()));
    at::Tensor text = at::from_blob(name_.data(), {static_cast<std::int64_t>(name_.size())},
                                    at::TensorOptions(at::kByte));
    group.broadcast(text, 0);
    file_ = ::open(name_.data(), O_WRONLY | O_APPEND);
  }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  ~SharedFile() {
    ::close(file_);
    if (rank_ == 0) std::filesystem::remove(name_.data());
  }

  void add_a_byte() const { ASSERT_EQ(::write(file_, "x", 1), 1); }
  [[nodiscard]] int bytes() const {
    return static_cast<int>(std::filesystem::file_size(name_.data()));
  }

 private:
  int rank_;
  std::array<char, 40> name_{"/tmp/spillway_groups_test_XXXXXX"};
  int file_ = -1;
};

TEST(MpiGroup, GoesOnBesideComputation) {
  const Group all = ranks().everyone();
  const SharedFile file(all);
  at::Tensor tensor = at::full({30000}, 1, at::kFloat);
  if (all.rank() == 0) {
    // Does nothing for its all-reduce until those of all others are through.
    Pending pending = all.all_reduce_async(tensor);
    while (file.bytes() < all.size() - 1) std::this_thread::yield();
    pending.wait();
  } else {
    all.all_reduce(tensor);
    file.add_a_byte();
  }
  EXPECT_EQ(tensor[0].item<int>(), all.size());
  all.barrier();
}

TEST(MpiGroup, BarrierWaitsForEveryone) {
  const Group all = ranks().everyone();
  const SharedFile file(all);
  for (int round = 1; round <= 20; ++round) {
    file.add_a_byte();
    all.barrier();
    EXPECT_GE(file.bytes(), round * all.size());
  }
  all.barrier();
}

TEST(MpiGroup, NamesTheRankThatDoesNotAnswer) {
  const Group all = ranks().everyone();
  if (all.size() == 1) GTEST_SKIP() << "skipped: one rank";
  const Group hasty(all.process_group(), all.ranks(), "hasty", std::chrono::milliseconds(50));
  at::Tensor tensor = at::zeros({4});
  if (all.rank() == 0) {
    const std::string text =
        error_text<CommunicationError>([&] { hasty.receive(tensor, 1, 77).wait(); });
    EXPECT_THAT(text, HasSubstr("[receive with tag 77] group world (ranks 0 1"));
    EXPECT_THAT(text, HasSubstr("nothing came from rank 1 within 0.1 s; it hangs, has ended"));
  }
  all.barrier();
  if (all.rank() == 1) all.send(at::ones({4}), 0, 77).wait();  // So that nothing is left over.
  all.barrier();
}

TEST(MpiGroup, NamesTheRanksThatDoNotComeToACollective) {
  const Group all = ranks().everyone();
  if (all.size() == 1) GTEST_SKIP() << "skipped: one rank";
  const Group hasty(all.process_group(), all.ranks(), "hasty", std::chrono::milliseconds(50));
  at::Tensor go = at::zeros({1});
  if (all.rank() == 0) {
    const std::string text = error_text<CommunicationError>([&] { hasty.barrier(); });
    EXPECT_THAT(text, HasSubstr("[barrier] group world (ranks 0 1"));
    EXPECT_THAT(text, HasSubstr(all.size() == 2 ? "nothing came from rank 1 within"
                                                : "nothing came from ranks 1 2"));
    // The others come now, so that nothing is left over.
    for (int peer = 1; peer < all.size(); ++peer) all.send(go, peer, 78).wait();
  } else {
    all.receive(go, 0, 78).wait();
    all.barrier();
  }
  all.barrier();
}

TEST(MpiGroup, SaysWhoPassedAnotherShape) {
  if (ranks().size() == 1) GTEST_SKIP() << "skipped: one rank";
  const Group broken = ranks().group("broken", {everyone()});
  at::Tensor tensor = at::zeros({broken.rank() == 0 ? 3 : 2});
  const std::string text = error_text<CommunicationError>([&] { (void)broken.all_gather(tensor); });
  EXPECT_THAT(text, ::testing::StartsWith("[all_gather] group broken (ranks 0 1"));
  EXPECT_THAT(text, ::testing::ContainsRegex(broken.rank() == 0
                                                 ? "8 bytes came from rank [1-9], 12 were expected"
                                                 : "more than 8 bytes came from rank 0; all"));
  ranks().everyone().barrier();
}

TEST(MpiWorld, RefusesListsThatAreNoPartition) {
  const auto text = [](const Lists& partition) {
    return error_text<InvalidArgument>([&] { (void)ranks().group("g", partition); });
  };
  const std::string all = "each of the " + std::to_string(ranks().size()) + " ranks belongs into";
  EXPECT_THAT(text({}), HasSubstr("[group g] rank 0 is in no list; " + all));
  EXPECT_THAT(text({everyone(), {0}}), HasSubstr("rank 0 is in more than one list"));
  EXPECT_THAT(text({everyone(), {99}}), HasSubstr("there is no rank 99"));
}

TEST(MpiWorld, SaysWhoAsksForAnotherGroup) {
  if (ranks().size() == 1) GTEST_SKIP() << "skipped: one rank";
  const std::string mine = ranks().rank() == 1 ? "tensor" : "data";
  const std::string text =
      error_text<CommunicationError>([&] { (void)ranks().group(mine, {everyone()}); });
  EXPECT_THAT(text, HasSubstr(ranks().rank() == 1 ? "asked for the group data or"
                                                  : "rank 1 asked for the group tensor or"));
}

}  // namespace
}  // namespace spillway::testing
