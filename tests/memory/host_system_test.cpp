#include "spillway/memory/host_system.hpp"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "spillway/memory/address_range.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;

TEST(HostSystem, AvailableMemoryIsPartOfTheTotal) {
  EXPECT_GT(available_host_memory(), 16_MiB);
  EXPECT_LE(available_host_memory(), total_host_memory());
  EXPECT_LT(total_host_memory(), 1_GiB * (1U << 20U));
}

TEST(HostSystem, CachedFilesDoNotCountAsUsed) {
  EXPECT_EQ(available_in_group(100_GiB, 30_GiB, 10_GiB), 80_GiB);
  EXPECT_EQ(available_in_group(100_GiB, 30_GiB, 31_GiB), 100_GiB);
  EXPECT_EQ(available_in_group(100_GiB, 130_GiB, 10_GiB), 0_B);
}

TEST(HostSystem, TheLockLimitIsThatOfTheProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit lower{std::min<rlim_t>(before.rlim_cur, 64 << 10), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &lower), 0);
  EXPECT_EQ(lock_limit(), Bytes(lower.rlim_cur));
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST(HostSystem, KnowsTheModeOfHugePages) {
  EXPECT_THAT(huge_page_mode(), ::testing::AnyOf("always", "madvise", "never", "unavailable"));
}

TEST(HostSystem, BindingToANodeIsHarmlessOnAnyMachine) {
  EXPECT_GE(numa_nodes(), 1);
  AddressRange range(2_MiB);
  const auto memory = range.commit(0_B, 2_MiB, 0);
  memory.back() = std::byte{1};
  const auto odd = range.commit(0_B, 2_MiB, 4711);
  EXPECT_EQ(odd.size(), (2_MiB).count());
}

TEST(AddressRange, CommitsPartsAndGivesThemBackEmpty) {
  AddressRange range(5_MiB);
  EXPECT_EQ(range.size(), 6_MiB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range.data()) % kHugePage.count(), 0U);
  auto memory = range.commit(2_MiB, 4_MiB, std::nullopt);
  EXPECT_EQ(memory.data(), range.data() + (2_MiB).count());
  memory[5] = std::byte{7};
  range.decommit(2_MiB, 4_MiB);
  memory = range.commit(2_MiB, 4_MiB, std::nullopt);
  EXPECT_EQ(memory[5], std::byte{0});
}

}  // namespace
}  // namespace spillway
