// Worlds that one process can have by itself, and what is said when one cannot be had.
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "spillway/comm/world.hpp"
#include "support/error_text.hpp"

namespace spillway::testing {
namespace {

using ::testing::HasSubstr;

/// Sets variables of the environment until it is destroyed; an empty value unsets one.
class Environment {
 public:
  explicit Environment(std::initializer_list<std::pair<std::string, std::string>> values) {
    for (const auto& [name, value] : values) {
      const char* before = std::getenv(name.c_str());
      before_[name] = before == nullptr ? std::nullopt : std::optional<std::string>(before);
      set(name, value.empty() ? std::nullopt : std::optional(value));
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) set(name, value);
  }

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }
  std::map<std::string, std::optional<std::string>> before_;
};

TEST(SingleWorld, IsAloneInAllGroups) {
  const auto world = make_single_world();
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->group("data", {{0}}).size(), 1);
  EXPECT_EQ(world->everyone().size(), 1);
  EXPECT_EQ(error_text<InvalidArgument>([&] {
              (void)world->group("data", {{0, 1}});
            }),
            "[group data] there is no rank 1; each of the 1 ranks belongs into exactly one list");
}

TEST(SingleWorld, PassesExceptionsOn) {
  const auto world = make_single_world();
  EXPECT_EQ(error_text<InvalidArgument>(
                [&] { run_guarded(*world, [] { throw InvalidArgument("step", "no"); }); }),
            "[step] no");
}

TEST(SingleWorldDeathTest, EndsWithItsReason) {
  EXPECT_EXIT(make_single_world()->abort("the disk is full"), ::testing::ExitedWithCode(1),
              "spillway: rank 0 of 1 ends the job: the disk is full");
}

TEST(DetectWorld, IsOneRankWhereNobodyStartedMore) {
  const Environment environment{{"OMPI_COMM_WORLD_SIZE", ""},
                                {"PMI_SIZE", ""},
                                {"SLURM_STEP_NUM_TASKS", ""},
                                {"WORLD_SIZE", ""}};
  EXPECT_EQ(detect_world()->size(), 1);
  const Environment alone{{"OMPI_COMM_WORLD_SIZE", "1"}};
  EXPECT_EQ(detect_world()->size(), 1);
}

TEST(DetectWorld, RefusesToRunAsManySingleRanks) {
  const Environment environment{
      {"OMPI_COMM_WORLD_SIZE", ""}, {"PMI_SIZE", ""}, {"SLURM_STEP_NUM_TASKS", ""},
      {"WORLD_SIZE", "4"},          {"RANK", "1"},    {"MASTER_ADDR", "localhost"}};
  EXPECT_THAT(error_text<InvalidArgument>([] { (void)detect_world(); }),
              HasSubstr("[world] torchrun started 4 ranks of this program, which uses MPI; start "
                        "it with mpirun -n 4"));
}

TEST(MpiPlugin, SaysWhereItWasLookedFor) {
  const Environment environment(
      {{"SPILLWAY_MPI_PLUGIN", "/nowhere/libspillway_mpi.so"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  const std::string text = error_text<CommunicationError>([] { (void)detect_world(); });
  EXPECT_THAT(text, HasSubstr("[mpi] libspillway_mpi.so was not found:\n"
                              "  /nowhere/libspillway_mpi.so: no such file\n"));
  EXPECT_THAT(text, HasSubstr("libopenmpi-dev"));
}

TEST(MpiPlugin, RefusesOtherFiles) {
  const Environment text_file{{"SPILLWAY_MPI_PLUGIN", "/etc/hostname"}};
  EXPECT_THAT(error_text<CommunicationError>([] { (void)make_mpi_world(); }),
              HasSubstr("[mpi] the plugin could not be loaded: /etc/hostname: "));
  const Environment other_library{{"SPILLWAY_MPI_PLUGIN", SPILLWAY_SOME_LIBRARY}};
  EXPECT_THAT(error_text<CommunicationError>([] { (void)make_mpi_world(); }),
              HasSubstr("is no plugin of Spillway: it has no spillway_start_mpi"));
}

TEST(TorchWorld, FindsGroupsByTheirNames) {
  const auto pair = c10::make_intrusive<c10d::ProcessGroup>(1, 2);
  c10d::register_process_group("pair of torch", pair);
  std::vector<std::vector<int>> made;
  const auto world = make_torch_world(3, 4, [&](const std::vector<int>& ranks) -> std::string {
    made.push_back(ranks);
    return ranks.back() == 3 ? "pair of torch" : "pair of others";
  });
  const Group group = world->group("data", {{0, 2}, {1, 3}});
  EXPECT_EQ(group.ranks(), (std::vector<int>{1, 3}));
  EXPECT_EQ(group.rank(), 1);
  EXPECT_EQ(group.process_group(), pair);
  // torch.distributed requires that every rank makes every group.
  EXPECT_EQ(made, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(world->group("alone", {{0}, {1}, {2}, {3}}).ranks(), std::vector<int>{3});
  EXPECT_THAT(error_text<CommunicationError>([&] {
                (void)world->group("data", {{0, 2}, {3, 1}});
              }),
              HasSubstr("torch.distributed has no group named 'pair of others'"));
  EXPECT_THAT(error_text<CommunicationError>([&] {
                (void)world->group("data", {{3, 0}, {2, 1}});
              }),
              HasSubstr("torch.distributed has no group named"));
  c10d::unregister_process_group("pair of torch");
}

TEST(TorchWorld, NoticesAnotherOrderOfTheMembers) {
  const auto pair = c10::make_intrusive<c10d::ProcessGroup>(1, 2);
  c10d::register_process_group("sorted pair", pair);
  const auto world =
      make_torch_world(3, 4, [](const std::vector<int>&) { return std::string("sorted pair"); });
  EXPECT_THAT(error_text<CommunicationError>([&] {
                (void)world->group("data", {{0, 2}, {3, 1}});
              }),
              HasSubstr("rank 3 is number 1 of the group 'sorted pair', but 0 of the list; "
                        "torch.distributed sorts ranks, so sort the list"));
  c10d::unregister_process_group("sorted pair");
}

TEST(TorchWorldDeathTest, NotifiesTheCallerBeforeItEnds) {
  const auto end = [](const TorchAbort& abort) {
    make_torch_world(
        1, 2, [](const std::vector<int>&) { return std::string(); }, abort)
        ->abort("out of memory");
  };
  EXPECT_EXIT(
      end([](const std::string& why) { std::fprintf(stderr, "reported: %s\n", why.c_str()); }),
      ::testing::ExitedWithCode(1),
      "reported: out of memory\nspillway: rank 1 of 2 ends the job: out of memory");
}

TEST(NcclAddress, ComesFromTheVariablesOfTorchrun) {
  const Environment environment{{"MASTER_ADDR", "node7"},
                                {"MASTER_PORT", "29500"},
                                {"RANK", "5"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"}};
  const NcclAddress address = NcclAddress::from_environment();
  EXPECT_EQ(address.host, "node7");
  EXPECT_EQ(address.port, 29500);
  EXPECT_EQ(address.rank, 5);
  EXPECT_EQ(address.size, 8);
  EXPECT_EQ(address.local_rank, 1);
  {
    const Environment none{{"MASTER_PORT", ""}};
    EXPECT_THAT(error_text<InvalidArgument>([] { (void)NcclAddress::from_environment(); }),
                HasSubstr("[nccl] the variable MASTER_PORT is not set; start the program with"));
  }
  const Environment wrong{{"RANK", "5x"}};
  EXPECT_THAT(error_text<InvalidArgument>([] { (void)NcclAddress::from_environment(); }),
              HasSubstr("the variable RANK is '5x'; it must be a number"));
}

}  // namespace
}  // namespace spillway::testing
