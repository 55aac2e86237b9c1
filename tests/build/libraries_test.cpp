// Every library that Spillway pins is compiled, linked and run here, in the pinned version.
#include <array>
#include <fstream>
#include <memory>
#include <regex>
#include <string>

#include <CLI/CLI.hpp>
#include <benchmark/benchmark.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>
#include <xxhash.h>

#ifdef SPILLWAY_HAS_HIGHS
#include <interfaces/highs_c_api.h>
#endif
#ifdef SPILLWAY_HAS_MPI
#include <mpi.h>
#endif

namespace {

using testing::StartsWith;

/// The version that follows `name` in a file of scripts/, without a Debian epoch.
std::string pinned(const std::string& file, const std::string& name) {
  std::ifstream lines(std::string(SPILLWAY_SCRIPTS "/") + file);
  const std::regex pattern("^" + name + "(?:==| +(?:[0-9]+:)?)([0-9.]+).*");
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, pattern)) return match[1];
  }
  ADD_FAILURE() << name << " is not pinned in " << file;
  return "no version";
}

std::string pinned_by_debian(const std::string& name) {
  return pinned("debian-packages.txt", name);
}

std::string pinned_for_development(const std::string& name) {
  return pinned("debian-packages-develop.txt", name);
}

std::string dotted(int major, int minor, int patch) {
  return std::to_string(major) + '.' + std::to_string(minor) + '.' + std::to_string(patch);
}

TEST(Libraries, TomlPlusPlusParses) {
  EXPECT_THAT(dotted(TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH),
              StartsWith(pinned_by_debian("libtomlplusplus-dev")));
  const toml::table table = toml::parse("[host]\nlimit = '8 GiB'");
  EXPECT_EQ(table["host"]["limit"].value<std::string>(), "8 GiB");
}

TEST(Libraries, Cli11Parses) {
  EXPECT_THAT(CLI11_VERSION, StartsWith(pinned_by_debian("libcli11-dev")));
  CLI::App app;
  int count = 0;
  app.add_option("--count", count);
  app.parse("--count 3");
  EXPECT_EQ(count, 3);
}

TEST(Libraries, NlohmannJsonParsesAndWrites) {
  EXPECT_THAT(
      dotted(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH),
      StartsWith(pinned_by_debian("nlohmann-json3-dev")));
  EXPECT_EQ(nlohmann::json::parse(R"({ "bytes": [1, 2] })").dump(), R"({"bytes":[1,2]})");
}

TEST(Libraries, XxHashIsThePinnedOne) {
  EXPECT_THAT(dotted(XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE),
              StartsWith(pinned_by_debian("libxxhash-dev")));
}

TEST(Libraries, GoogleTestIsThePinnedOne) {
  EXPECT_THAT(SPILLWAY_GTEST_VERSION, StartsWith(pinned_by_debian("libgtest-dev")));
  EXPECT_THAT(SPILLWAY_GTEST_VERSION, StartsWith(pinned_by_debian("libgmock-dev")));
}

TEST(Libraries, GoogleBenchmarkRuns) {
  EXPECT_THAT(SPILLWAY_BENCHMARK_VERSION, StartsWith(pinned_by_debian("libbenchmark-dev")));
  int rounds = 0;
  benchmark::RegisterBenchmark("count", [&rounds](benchmark::State& state) {
    for ([[maybe_unused]] auto round : state) ++rounds;
  })->Iterations(5);
  EXPECT_EQ(benchmark::RunSpecifiedBenchmarks(), 1U);
  EXPECT_EQ(rounds, 5);
}

#ifdef SPILLWAY_HAS_MPI
TEST(Libraries, OpenMpiSaysItsVersion) {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  ASSERT_EQ(MPI_Get_library_version(text.data(), &length), MPI_SUCCESS);
  EXPECT_THAT(text.data(), StartsWith("Open MPI v" + pinned_for_development("libopenmpi-dev")));
}
#endif

#ifdef SPILLWAY_HAS_HIGHS
TEST(Libraries, HighsSolvesAProgramme) {
  EXPECT_EQ(Highs_version(), pinned("requirements.txt", "highsbox"));
  const std::unique_ptr<void, decltype(&Highs_destroy)> highs(Highs_create(), Highs_destroy);
  Highs_setBoolOptionValue(highs.get(), "output_flag", 0);
  // Maximise x + 2y with x + y <= 4 and y <= 3.
  Highs_addVar(highs.get(), 0, 4);
  Highs_addVar(highs.get(), 0, 3);
  Highs_changeColCost(highs.get(), 0, 1);
  Highs_changeColCost(highs.get(), 1, 2);
  Highs_changeObjectiveSense(highs.get(), kHighsObjSenseMaximize);
  const std::array<HighsInt, 2> columns{0, 1};
  const std::array<double, 2> factors{1, 1};
  Highs_addRow(highs.get(), -Highs_getInfinity(highs.get()), 4, 2, columns.data(), factors.data());
  ASSERT_EQ(Highs_run(highs.get()), kHighsStatusOk);
  EXPECT_EQ(Highs_getModelStatus(highs.get()), kHighsModelStatusOptimal);
  EXPECT_DOUBLE_EQ(Highs_getObjectiveValue(highs.get()), 7);
}
#endif

}  // namespace
