/// What random programs may do, by name, so that each can be switched off.
///
///   SPILLWAY_TEST_WITHOUT=resize,regrow stress_test      all features but these
///   SPILLWAY_TEST_ONLY=resize stress_test                common operators and this feature
#pragma once

#include <bitset>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::testing {

enum class Feature {
  // Operators.
  kCommon,
  kDropout,
  kGenerator,
  kViews,
  kAttention,
  kBatchNorm,
  kConvolution,
  kInPlace,
  kDetachWrite,
  kDataWriteBefore,
  kDataWriteAfter,
  kDataWriteLate,
  kNoGrad,
  kUnused,
  kSavingFunction,
  kContextFunction,
  kCheckpoint,
  kGradInForward,
  kResize,
  kResizeByHook,
  kRegrow,
  kGathered,
  kStreams,
  // Models.
  kLowPrecision,
  kDoublePrecision,
  kTied,
  kUnregistered,
  kBranches,
  kHeld,
  // Steps.
  kLengths,
  kSwap,
  kSkip,
  kMicroBatches,
  kPasses,
  kSchedule,
  kRetain,
  kThread,
  kNoBackward,
  kEarlyEnd,
  kLateBackward,
  kFailInForward,
  kFailInBackward,
  kSetDataBetween,
  kSetDataInside,
  // Sessions.
  kVerify,
  kTrace,
  kFullHost,
  kRegions,
  kBackgroundPlan,
  kCount
};

/// As in the environment variables.
[[nodiscard]] std::string_view name_of(Feature feature);
/// One line about it.
[[nodiscard]] std::string_view meaning_of(Feature feature);

class Features {
 public:
  /// Those that the device has.
  [[nodiscard]] static Features all();
  [[nodiscard]] static Features none() { return {}; }
  /// All, or as the environment says.
  /// Errors: InvalidArgument for a name that does not exist.
  [[nodiscard]] static Features from_environment();

  [[nodiscard]] bool has(Feature feature) const { return bits_[index(feature)]; }
  [[nodiscard]] Features with(Feature feature) const;
  [[nodiscard]] Features without(Feature feature) const;
  /// Names, separated by commas.
  [[nodiscard]] std::string to_string() const;

 private:
  [[nodiscard]] static std::size_t index(Feature feature) {
    return static_cast<std::size_t>(feature);
  }

  std::bitset<static_cast<std::size_t>(Feature::kCount)> bits_;
};

}  // namespace spillway::testing
