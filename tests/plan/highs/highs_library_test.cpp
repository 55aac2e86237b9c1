#include "plan/highs/highs_library.hpp"

#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The error text for paths without a usable HiGHS.
std::string refusal(const std::vector<std::string>& paths) {
  try {
    (void)load_highs(paths);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(HighsLibraryTest, IsThereWhereItWasWhenThisWasBuilt) {
  const HighsFunctions functions = load_highs({highs_paths().back()});
  EXPECT_EQ(functions.version_major(), 1);
}

TEST(HighsLibraryTest, NamesEveryPathThatHasNone) {
  EXPECT_THAT(refusal({"/nowhere/libhighs.so", "libm.so.6"}),
              AllOf(HasSubstr("[solve] the planner needs the HiGHS solver, version 1.15"),
                    HasSubstr("/nowhere/libhighs.so (/nowhere/libhighs.so: cannot open"),
                    HasSubstr("libm.so.6 (it has no function Highs_create)"),
                    HasSubstr("install the Python package highsbox, or set SPILLWAY_HIGHS")));
}

TEST(HighsLibraryTest, IsNotTakenInAnotherVersion) {
  EXPECT_THAT(refusal({SPILLWAY_OLDER_HIGHS}), HasSubstr("older_highs.so (it is version 1.2)"));
}

TEST(HighsLibraryTest, IsTakenFromTheNextPathIfTheFirstHasAnotherVersion) {
  EXPECT_EQ(load_highs({SPILLWAY_OLDER_HIGHS, highs_paths().back()}).version_minor(), 15);
}

TEST(HighsLibraryTest, IsLookedForOnlyWhereTheEnvironmentSays) {
  ASSERT_EQ(::setenv("SPILLWAY_HIGHS", "/elsewhere/libhighs.so", 1), 0);
  EXPECT_EQ(highs_paths(), std::vector<std::string>{"/elsewhere/libhighs.so"});
  ASSERT_EQ(::unsetenv("SPILLWAY_HIGHS"), 0);
  EXPECT_EQ(highs_paths().size(), 2U);
}

TEST(HighsLibraryTest, OffersNothingToTheProgram) {
  (void)highs();
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "Highs_create"), nullptr);
}

}  // namespace
}  // namespace spillway
