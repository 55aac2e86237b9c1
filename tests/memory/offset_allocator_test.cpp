#include "spillway/memory/offset_allocator.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace spillway::literals;

TEST(OffsetAllocator, HandsOutExactSizesRoundedToTheAlignment) {
  OffsetAllocator allocator(64_KiB);
  EXPECT_EQ(allocator.allocate(1000_B), (Extent{0, 1024}));
  EXPECT_EQ(allocator.allocate(512_B), (Extent{1024, 512}));
  EXPECT_EQ(allocator.allocate(0_B), (Extent{1536, 512}));
  EXPECT_EQ(allocator.used(), 2_KiB);
  EXPECT_EQ(allocator.footprint(), 2_KiB);
}

TEST(OffsetAllocator, TakesTheSmallestHoleThatFits) {
  OffsetAllocator allocator(64_KiB);
  std::vector<Extent> blocks;
  for (const Bytes size : {4_KiB, 512_B, 2_KiB, 512_B, 3_KiB, 512_B}) {
    blocks.push_back(*allocator.allocate(size));
  }
  allocator.free(blocks[0]);
  allocator.free(blocks[2]);
  allocator.free(blocks[4]);
  EXPECT_EQ(allocator.allocate(2_KiB), blocks[2]);
  EXPECT_EQ(allocator.allocate(2560_B), (Extent{blocks[4].offset, 2560}));
  EXPECT_EQ(allocator.allocate(4_KiB), blocks[0]);
  EXPECT_EQ(allocator.holes(), 1U);
}

TEST(OffsetAllocator, JoinsFreeNeighboursOnBothSides) {
  OffsetAllocator allocator(64_KiB);
  std::vector<Extent> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(*allocator.allocate(1_KiB));
  allocator.free(blocks[1]);
  allocator.free(blocks[3]);
  EXPECT_EQ(allocator.holes(), 2U);
  allocator.free(blocks[2]);
  EXPECT_EQ(allocator.holes(), 1U);
  EXPECT_EQ(allocator.allocate(3_KiB), (Extent{1024, 3072}));
}

TEST(OffsetAllocator, LowersTheFrontierWhenTheEndIsFree) {
  OffsetAllocator allocator(64_KiB);
  const Extent first = *allocator.allocate(1_KiB);
  const Extent second = *allocator.allocate(1_KiB);
  const Extent third = *allocator.allocate(1_KiB);
  allocator.free(second);
  allocator.free(third);
  EXPECT_EQ(allocator.frontier(), 1_KiB);
  EXPECT_EQ(allocator.footprint(), 3_KiB);
  EXPECT_EQ(allocator.holes(), 0U);
  EXPECT_EQ(allocator.allocate(8_KiB), (Extent{1024, 8192}));
  allocator.free(first);
  EXPECT_EQ(allocator.holes(), 1U);
}

TEST(OffsetAllocator, AnswersNothingWhenThereIsNoRoom) {
  OffsetAllocator allocator(4_KiB);
  EXPECT_FALSE(allocator.allocate(5_KiB));
  EXPECT_FALSE(allocator.allocate(Bytes(~std::uint64_t{0})));
  const Extent all = *allocator.allocate(4_KiB);
  EXPECT_FALSE(allocator.allocate(1_B));
  allocator.free(all);
  EXPECT_TRUE(allocator.allocate(4_KiB));
}

TEST(OffsetAllocator, HandsOutNothingBeyondAShorterEnd) {
  OffsetAllocator allocator(16_KiB);
  const Extent low = *allocator.allocate(4_KiB);
  const Extent high = *allocator.allocate(4_KiB);
  const Extent top = *allocator.allocate(4_KiB);
  allocator.set_capacity(6_KiB);
  allocator.free(high);
  EXPECT_FALSE(allocator.allocate(3_KiB));
  EXPECT_EQ(allocator.allocate(2_KiB), (Extent{4096, 2048}));
  EXPECT_FALSE(allocator.allocate(512_B));
  allocator.free(top);
  allocator.free(low);
  EXPECT_EQ(allocator.allocate(4_KiB), low);
}

}  // namespace
}  // namespace spillway
