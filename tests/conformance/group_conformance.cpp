#include "conformance/group_conformance.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include <ATen/ATen.h>

#include "support/error_text.hpp"
#include "support/ranks.hpp"

namespace spillway::testing {
namespace {

using Splits = std::vector<std::int64_t>;

/// Sums of such numbers are exact in any order.
at::Tensor whole_numbers(at::IntArrayRef sizes, at::ScalarType type, int rank) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return ((at::arange(count) * 7 + rank * 3) % 5 + rank % 2).view(sizes).to(type);
}

at::Tensor sum_of_whole_numbers(at::IntArrayRef sizes, at::ScalarType type, int size) {
  at::Tensor sum = at::zeros(sizes, at::kDouble);
  for (int rank = 0; rank < size; ++rank) sum += whole_numbers(sizes, at::kDouble, rank);
  return sum.to(type);
}

at::Tensor random_numbers(std::int64_t count, int seed) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  return at::randn({count}, generator, at::kFloat);
}

bool same_bits(const at::Tensor& left, const at::Tensor& right) {
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() &&
         std::memcmp(left.contiguous().data_ptr(), right.contiguous().data_ptr(), left.nbytes()) ==
             0;
}

}  // namespace

void GroupConformance::SetUp() {
  std::vector<int> everyone(static_cast<std::size_t>(ranks().size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  all_ = GetParam().make("all", {everyone});
}

TEST_P(GroupConformance, KnowsItsMembers) {
  EXPECT_EQ(all_.rank(), ranks().rank());
  EXPECT_EQ(all_.size(), ranks().size());
  EXPECT_EQ(all_.name(), all_.size() == 1 ? "of one" : "all");
  // Pairs, and one left over where the number is odd.
  std::vector<std::vector<int>> pairs;
  for (int rank = 0; rank < ranks().size(); rank += 2) {
    pairs.push_back({rank});
    if (rank + 1 < ranks().size()) pairs.back().push_back(rank + 1);
  }
  const Group pair = GetParam().make("pair", pairs);
  EXPECT_EQ(pair.ranks(), pairs[static_cast<std::size_t>(ranks().rank() / 2)]);
  EXPECT_EQ(pair.rank(), ranks().rank() % 2);
  at::Tensor sum = at::full({3}, ranks().rank(), at::kFloat);
  pair.all_reduce(sum);
  EXPECT_EQ(sum[2].item<int>(), std::accumulate(pair.ranks().begin(), pair.ranks().end(), 0));
}

TEST_P(GroupConformance, AllReduceSumsEveryTypeAndSize) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt,
                                    at::kLong, at::kByte, at::kChar}) {
    for (const std::int64_t count : {0, 1, 3, 1000, 20011}) {
      at::Tensor tensor = whole_numbers({count}, type, all_.rank());
      all_.all_reduce(tensor);
      EXPECT_TRUE(same_bits(tensor, sum_of_whole_numbers({count}, type, all_.size())))
          << type << ' ' << count;
    }
  }
}

TEST_P(GroupConformance, AllReduceGivesTheSameBitsEverywhereAndAgain) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t count : {17, 30001}) {
      const at::Tensor mine = random_numbers(count, 100 + all_.rank()).to(type);
      at::Tensor first = mine.clone();
      all_.all_reduce(first);
      at::Tensor second = mine.clone();
      all_.all_reduce(second);
      EXPECT_TRUE(same_bits(first, second));
      const at::Tensor everyone = all_.all_gather(first);
      for (int rank = 0; rank < all_.size(); ++rank) EXPECT_TRUE(same_bits(everyone[rank], first));
    }
  }
}

TEST_P(GroupConformance, AllReduceKnowsOtherReductions) {
  const auto reduced = [&](Reduce reduce, int value) {
    at::Tensor tensor = at::full({5}, value, at::kFloat);
    all_.all_reduce(tensor, reduce);
    return tensor[4].item<int>();
  };
  EXPECT_EQ(reduced(Reduce::kMax, all_.rank() + 3), all_.size() + 2);
  EXPECT_EQ(reduced(Reduce::kMin, all_.rank() + 3), 3);
  EXPECT_EQ(reduced(Reduce::kProduct, all_.rank() % 2 + 1), 1 << (all_.size() / 2));
}

TEST_P(GroupConformance, BroadcastComesFromEveryRoot) {
  for (int root = 0; root < all_.size(); ++root) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kBool, at::kLong}) {
      at::Tensor tensor = whole_numbers({3, 71}, type, all_.rank());
      all_.broadcast(tensor, root);
      EXPECT_TRUE(same_bits(tensor, whole_numbers({3, 71}, type, root)));
    }
  }
}

TEST_P(GroupConformance, AllGatherStacksByRank) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kByte}) {
    // Not contiguous, which is fine for what is only read.
    const at::Tensor gathered = all_.all_gather(whole_numbers({8, 5}, type, all_.rank()).t());
    ASSERT_EQ(gathered.sizes(), (at::IntArrayRef{all_.size(), 5, 8}));
    for (int rank = 0; rank < all_.size(); ++rank) {
      EXPECT_TRUE(same_bits(gathered[rank], whole_numbers({8, 5}, type, rank).t()));
    }
  }
}

TEST_P(GroupConformance, ReduceScatterGivesEachItsRow) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
    const std::vector<std::int64_t> sizes{all_.size(), 3, 7};
    const at::Tensor row = all_.reduce_scatter(whole_numbers(sizes, type, all_.rank()));
    EXPECT_TRUE(same_bits(row, sum_of_whole_numbers(sizes, type, all_.size())[all_.rank()]));
  }
}

TEST_P(GroupConformance, AllToAllMovesUnevenRows) {
  // From rank s to rank d go (s + 2 d + round) % 4 rows, none sometimes, that hold 100 s + d.
  for (int round = 0; round < 4; ++round) {
    const auto rows = [&](int from, int to) { return (from + 2 * to + round) % 4; };
    Splits in;
    Splits out;
    std::vector<at::Tensor> sent;
    std::vector<at::Tensor> expected;
    for (int other = 0; other < all_.size(); ++other) {
      in.push_back(rows(all_.rank(), other));
      out.push_back(rows(other, all_.rank()));
      sent.push_back(at::full({in.back(), 3}, 100 * all_.rank() + other, at::kFloat));
      expected.push_back(at::full({out.back(), 3}, 100 * other + all_.rank(), at::kFloat));
    }
    EXPECT_TRUE(same_bits(all_.all_to_all(at::cat(sent), in, out), at::cat(expected)));
  }
}

TEST_P(GroupConformance, AllToAllOfNothing) {
  const Splits none(static_cast<std::size_t>(all_.size()), 0);
  EXPECT_EQ(all_.all_to_all(at::empty({0, 4}), none, none).sizes(), (at::IntArrayRef{0, 4}));
}

TEST_P(GroupConformance, SendsAndReceivesInBothDirectionsAtOnce) {
  if (all_.size() == 1) GTEST_SKIP() << "skipped: one rank";
  const int next = (all_.rank() + 1) % all_.size();
  const int before = (all_.rank() + all_.size() - 1) % all_.size();
  for (const std::int64_t count : {1, 4096, 300000}) {
    for (const bool receives_first : {false, true}) {
      // Up with tag 1 and down with tag 2: with two ranks both go between the same two.
      Pending up = all_.send(at::full({count}, all_.rank(), at::kFloat), next, 1);
      Pending down = all_.send(at::full({count}, -all_.rank(), at::kBFloat16), before, 2);
      at::Tensor from_before = at::empty({count}, at::kFloat);
      at::Tensor from_next = at::empty({count}, at::kBFloat16);
      Pending up_here = all_.receive(from_before, before, 1);
      Pending down_here = all_.receive(from_next, next, 2);
      if (receives_first) {
        down_here.wait();
        up_here.wait();
        down.wait();
        up.wait();
      } else {
        up.wait();
        down.wait();
        up_here.wait();
        down_here.wait();
      }
      EXPECT_TRUE(same_bits(from_before, at::full({count}, before, at::kFloat)));
      EXPECT_TRUE(same_bits(from_next, at::full({count}, -next, at::kBFloat16)));
    }
  }
}

TEST_P(GroupConformance, MatchesByTagAndKeepsTheOrderOfATag) {
  if (all_.size() == 1) GTEST_SKIP() << "skipped: one rank";
  if (all_.rank() == 0) {
    for (const int value : {10, 20, 11, 21}) {
      (void)all_.send(at::full({300}, value, at::kInt), 1, value / 10);
    }
  } else if (all_.rank() == 1) {
    for (const int value : {20, 10, 11, 21}) {
      at::Tensor tensor = at::empty({300}, at::kInt);
      all_.receive(tensor, 0, value / 10).wait();
      EXPECT_EQ(tensor[299].item<int>(), value);
    }
  }
  all_.barrier();
}

TEST_P(GroupConformance, DroppedSendsArrive) {
  if (all_.size() == 1) GTEST_SKIP() << "skipped: one rank";
  const int next = (all_.rank() + 1) % all_.size();
  const int before = (all_.rank() + all_.size() - 1) % all_.size();
  constexpr int kCount = 6;
  for (int i = 0; i < kCount; ++i) {
    // Neither the Pending nor the tensor is referenced here.
    (void)all_.send(at::full({200000}, 10 * all_.rank() + i, at::kFloat), next, 5);
  }
  for (int i = 0; i < kCount; ++i) {
    at::Tensor tensor = at::empty({200000}, at::kFloat);
    all_.receive(tensor, before, 5).wait();
    EXPECT_TRUE(same_bits(tensor, at::full({200000}, 10 * before + i, at::kFloat)));
  }
  all_.barrier();
}

TEST_P(GroupConformance, ManyCollectivesMayBeUnderWay) {
  std::vector<at::Tensor> tensors;
  std::vector<Pending> pending;
  for (int i = 0; i < 12; ++i) {
    tensors.push_back(at::full({100 + 3000 * (i % 3)}, all_.rank() + i, at::kFloat));
    pending.push_back(all_.all_reduce_async(tensors.back()));
  }
  for (int i = 11; i >= 0; --i) {
    const auto index = static_cast<std::size_t>(i);
    pending[index].wait();
    pending[index].wait();  // Nothing more happens.
    EXPECT_TRUE(pending[index].done());
    const int expected = all_.size() * (all_.size() - 1) / 2 + i * all_.size();
    EXPECT_TRUE(same_bits(tensors[index], at::full_like(tensors[index], expected)));
  }
}

TEST_P(GroupConformance, TwoGroupsWorkFromTwoThreads) {
  const Group other = GetParam().make("other", {all_.ranks()});
  std::atomic<int> wrong = 0;
  const auto work = [&wrong](const Group& group, int salt) {
    for (int i = 0; i < 60; ++i) {
      at::Tensor tensor = at::full({64 + 1500 * (i % 4)}, group.rank() + i + salt, at::kFloat);
      group.all_reduce(tensor);
      const int expected = group.size() * (group.size() - 1) / 2 + (i + salt) * group.size();
      if (!same_bits(tensor, at::full_like(tensor, expected))) ++wrong;
      group.barrier();
    }
  };
  std::thread thread([&] { work(other, 1000); });
  work(all_, 0);
  thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(GroupConformance, SendsBesideCollectives) {
  if (all_.size() == 1) GTEST_SKIP() << "skipped: one rank";
  // As in pipelines: another thread sends while this one sums.
  const int next = (all_.rank() + 1) % all_.size();
  const int before = (all_.rank() + all_.size() - 1) % all_.size();
  std::atomic<int> wrong = 0;
  std::thread thread([&] {
    for (int i = 0; i < 40; ++i) {
      at::Tensor tensor = at::empty({5000}, at::kFloat);
      Pending sent = all_.send(at::full({5000}, all_.rank() + i, at::kFloat), next, 3);
      all_.receive(tensor, before, 3).wait();
      sent.wait();
      if (!same_bits(tensor, at::full({5000}, before + i, at::kFloat))) ++wrong;
    }
  });
  for (int i = 0; i < 40; ++i) {
    at::Tensor tensor = at::full({3000}, i, at::kFloat);
    all_.all_reduce(tensor);
    if (!same_bits(tensor, at::full({3000}, i * all_.size(), at::kFloat))) ++wrong;
  }
  thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(GroupConformance, RefusesWhatHasNoMeaningBeforeAnyoneWaits) {
  at::Tensor across = at::zeros({4, 6}).t();
  const std::string here = "group " + all_.name() + " (ranks";
  const auto text = [](const auto& call) { return error_text<InvalidArgument>(call); };
  EXPECT_NE(text([&] { all_.all_reduce(across); }).find("is not contiguous"), std::string::npos);
  at::Tensor tensor = at::zeros({4});
  EXPECT_NE(text([&] { all_.broadcast(tensor, all_.size()); }).find(here), std::string::npos);
  EXPECT_NE(text([&] { (void)all_.send(tensor, all_.rank(), 0); }).find("to itself"),
            std::string::npos);
  const int peer = (all_.rank() + 1) % all_.size();
  if (all_.size() > 1) {
    EXPECT_NE(text([&] { (void)all_.send(tensor, peer, -1); }).find("the tag is -1"),
              std::string::npos);
  }
  EXPECT_NE(text([&] { (void)all_.all_to_all(tensor, {4}, {}); }).find("splits"),
            std::string::npos);
  at::Tensor small = at::zeros({3});
  EXPECT_NE(text([&] { (void)all_.all_gather_async(small, at::zeros({7})); }).find("elements"),
            std::string::npos);
  EXPECT_NE(text([&] {
              (void)all_.reduce_scatter(at::zeros({all_.size() + 1, 2}));
            }).find("rows"),
            std::string::npos);
}

}  // namespace spillway::testing
