#include "spillway/memory/host_system.hpp"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "spillway/core/error.hpp"
#include "spillway/memory/address_range.hpp"
#include "support/error_text.hpp"
#include "support/temporary_folder.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;

TEST(HostSystem, AvailableMemoryIsPartOfTheTotal) {
  EXPECT_GT(available_host_memory(), 16_MiB);
  EXPECT_LE(available_host_memory(), total_host_memory());
  EXPECT_LT(total_host_memory(), 1_GiB * (1U << 20U));
}

/// A machine of 100 GiB, of which 60 are available, with the files of control groups.
class HostSystemOf : public ::testing::Test {
 protected:
  HostSystemOf() {
    write("proc/meminfo", "MemTotal: 104857600 kB\nMemFree: 1 kB\nMemAvailable: 62914560 kB\n");
    view_.root = folder_.path();
    view_.environment = [this](const char* name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      if (found == environment_.end()) return std::nullopt;
      return found->second;
    };
  }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    (void)folder_.write(name, text);
  }
  static std::string gibibytes(int count) {
    return std::to_string((1_GiB * static_cast<std::uint64_t>(count)).count());
  }
  /// A group of version 2 that uses 30 GiB, 12 of them cached files.
  void write_group(const std::string& folder, const std::string& limits) const {
    write(folder + "/memory.max", limits + "\n");
    write(folder + "/memory.current", gibibytes(30) + "\n");
    write(folder + "/memory.stat", "anon 5\nfile " + gibibytes(20) + "\ninactive_file " +
                                       gibibytes(8) + "\nactive_file " + gibibytes(4) + "\n");
  }

  const testing::TemporaryFolder folder_;
  std::map<std::string, std::string> environment_;
  HostView view_;
};

TEST_F(HostSystemOf, AMachineWithoutGroupsIsThatOfMeminfo) {
  EXPECT_EQ(total_host_memory(view_), 100_GiB);
  EXPECT_EQ(available_host_memory(view_), 60_GiB);
  EXPECT_EQ(host_reserve(view_), 3200_MiB);
  write("proc/meminfo", "MemTotal: 2147483648 kB\nMemAvailable: 1 kB\n");
  EXPECT_EQ(host_reserve(view_), 4_GiB);
}

TEST_F(HostSystemOf, AGroupOfVersion2LimitsWhatIsFreeAndCachedFilesDoNotCountAsUsed) {
  write("proc/self/cgroup", "0::/user/job\n");
  write_group("sys/fs/cgroup/user/job", gibibytes(40));
  EXPECT_EQ(total_host_memory(view_), 40_GiB);
  EXPECT_EQ(available_host_memory(view_), 22_GiB);
  write("sys/fs/cgroup/user/job/memory.high", gibibytes(35));
  EXPECT_EQ(total_host_memory(view_), 35_GiB);
  EXPECT_EQ(available_host_memory(view_), 17_GiB);
  write("sys/fs/cgroup/user/job/memory.stat", "inactive_file " + gibibytes(31) + "\n");
  EXPECT_EQ(available_host_memory(view_), 35_GiB) << "counted apart, so they may be more";
  write("sys/fs/cgroup/user/job/memory.current", gibibytes(90));
  EXPECT_EQ(available_host_memory(view_), 0_B);
}

TEST_F(HostSystemOf, EveryGroupAboveLimitsToo) {
  write("proc/self/cgroup", "0::/user/job\n");
  write_group("sys/fs/cgroup/user/job", "max");
  EXPECT_EQ(available_host_memory(view_), 60_GiB);
  write_group("sys/fs/cgroup/user", gibibytes(50));
  EXPECT_EQ(total_host_memory(view_), 50_GiB);
  EXPECT_EQ(available_host_memory(view_), 32_GiB);
}

TEST_F(HostSystemOf, AContainerHasItsGroupAtTheMountWhateverItsPathOnTheHost) {
  write("proc/self/cgroup", "0::/docker/0123\n");
  write_group("sys/fs/cgroup", gibibytes(40));
  EXPECT_EQ(available_host_memory(view_), 22_GiB);
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(available_host_memory(view_), 22_GiB);
}

TEST_F(HostSystemOf, AGroupOfVersion1LimitsAsOneOfVersion2) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:blkio,memory:/slurm/job\n0::/\n");
  const std::string group = "sys/fs/cgroup/memory/slurm/job";
  write(group + "/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(total_host_memory(view_), 100_GiB);
  EXPECT_EQ(available_host_memory(view_), 60_GiB);
  write(group + "/memory.limit_in_bytes", gibibytes(40) + "\n");
  write(group + "/memory.usage_in_bytes", gibibytes(30) + "\n");
  write(group + "/memory.stat", "inactive_file 1\ntotal_inactive_file " + gibibytes(8) +
                                    "\ntotal_active_file " + gibibytes(4) + "\n");
  EXPECT_EQ(total_host_memory(view_), 40_GiB);
  EXPECT_EQ(available_host_memory(view_), 22_GiB);
}

TEST_F(HostSystemOf, TheRanksOfANodeDivideHalfOfWhatIsFree) {
  EXPECT_EQ(ranks_on_node(view_), 1);
  EXPECT_EQ(host_memory_for_rank(view_), 30_GiB);
  environment_["SLURM_NTASKS_PER_NODE"] = "3";
  EXPECT_EQ(host_memory_for_rank(view_), 10_GiB);
  environment_["SLURM_STEP_TASKS_PER_NODE"] = "2(x3),6";
  EXPECT_EQ(ranks_on_node(view_), 6);
  environment_["OMPI_COMM_WORLD_LOCAL_SIZE"] = "5";
  EXPECT_EQ(ranks_on_node(view_), 5);
  environment_["LOCAL_SIZE"] = "7";
  EXPECT_EQ(ranks_on_node(view_), 7) << "DeepSpeed's launcher, which may run within MPI";
  environment_.erase("LOCAL_SIZE");
  environment_["LOCAL_WORLD_SIZE"] = "8";
  EXPECT_EQ(ranks_on_node(view_), 8);
  for (const char* const wrong : {"", "0", "-1", "many"}) {
    environment_["LOCAL_WORLD_SIZE"] = wrong;
    EXPECT_EQ(ranks_on_node(view_), 5) << wrong;
  }
}

TEST_F(HostSystemOf, TheRanksOfANodeDivideWhatIsFreeBesidesTheReserve) {
  EXPECT_EQ(host_room_for_rank(view_), 60_GiB - 3200_MiB);
  environment_["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(host_room_for_rank(view_), 15_GiB - 800_MiB);
  write("proc/meminfo", "MemTotal: 104857600 kB\nMemAvailable: 1024 kB\n");
  EXPECT_EQ(host_room_for_rank(view_), 0_B);
}

TEST_F(HostSystemOf, TheReserveIsNotCommitted) {
  AddressRange range(8_MiB);
  const auto available = [&](Bytes besides) {
    write("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: " +
                              std::to_string((host_reserve(view_) + besides).count() / 1024) +
                              " kB\n");
  };
  write("proc/meminfo", "MemTotal: 1048576 kB\n");
  ASSERT_EQ(host_reserve(view_), 32_MiB);
  available(4_MiB - 1_KiB);
  EXPECT_EQ(testing::error_text<OutOfMemory>(
                [&] { (void)range.commit(0_B, 4_MiB, std::nullopt, view_); }),
            "[slab] 4.0 MiB more host memory wanted, 36.0 MiB is free, of which 32.0 MiB is left "
            "to others; lower the host limit or close other programs");
  available(4_MiB);
  EXPECT_EQ(range.commit(0_B, 4_MiB, std::nullopt, view_).size(), (4_MiB).count());
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
