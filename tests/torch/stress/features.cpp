#include "features.hpp"

#include <array>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "device.hpp"
#include "spillway/core/error.hpp"

namespace spillway::testing {
namespace {

struct Row {
  Feature feature;
  std::string_view name;
  std::string_view meaning;
};

constexpr auto kFeatures = std::to_array<Row>({
    {Feature::kCommon, "common", "operators without side effects"},
    {Feature::kDropout, "dropout", "random operators that draw from the process's generator"},
    {Feature::kGenerator, "generator", "random operators that draw from a generator of their own"},
    {Feature::kViews, "views", "several views of one storage are saved"},
    {Feature::kAttention, "attention", "scaled_dot_product_attention"},
    {Feature::kBatchNorm, "batch_norm", "batch_norm that updates registered statistics"},
    {Feature::kConvolution, "conv1d", "conv1d"},
    {Feature::kInPlace, "in_place", "operators in place, also on views, before the value is saved"},
    {Feature::kDetachWrite, "detach_write", "a write through detach() before the value is saved"},
    {Feature::kDataWriteBefore, "data_write_before", "a write through .data before the save"},
    {Feature::kDataWriteAfter, "data_write_after", "a write through .data after the save"},
    {Feature::kDataWriteLate, "data_write_late",
     "a write through .data after the save, in later steps only"},
    {Feature::kNoGrad, "no_grad", "regions without gradients"},
    {Feature::kUnused, "unused", "results that nothing uses"},
    {Feature::kSavingFunction, "saving_function", "an autograd::Function with saved tensors"},
    {Feature::kContextFunction, "context_function",
     "an autograd::Function that holds tensors in its context"},
    {Feature::kCheckpoint, "checkpoint", "a function that runs its forward again in backward"},
    {Feature::kGradInForward, "grad_in_forward", "gradients taken within forward"},
    {Feature::kResize, "resize",
     "storages resized to 0 after the save, refilled before the step's backward"},
    {Feature::kResizeByHook, "resize_by_hook",
     "the same, refilled by a hook just before their reader (Megatron's CheckpointWithoutOutput)"},
    {Feature::kRegrow, "regrow",
     "storages of a library's own memory, freed and regrown, with other data there in between"},
    {Feature::kGathered, "gathered", "a weight that exists only around its uses (FSDP2)"},
    {Feature::kStreams, "streams", "operators on another stream (CUDA)"},
    {Feature::kLowPrecision, "bfloat16", "models in bfloat16"},
    {Feature::kDoublePrecision, "float64", "models in float64"},
    {Feature::kTied, "tied", "the output layer uses the embedding's weight"},
    {Feature::kUnregistered, "unregistered", "weights that the session does not know"},
    {Feature::kBranches, "branches", "blocks of two branches"},
    {Feature::kHeld, "held", "values that the program holds until the step ends"},
    {Feature::kLengths, "lengths", "steps with another number of rows"},
    {Feature::kSwap, "swap", "steps that run a block's branches in another order"},
    {Feature::kSkip, "skip", "steps without one of the blocks"},
    {Feature::kMicroBatches, "micro_batches", "steps of several micro-batches"},
    {Feature::kPasses, "passes", "several passes in flight, named by pass()"},
    {Feature::kSchedule, "schedule", "steps that announce the order of their passes"},
    {Feature::kRetain, "retain", "two backwards through one graph"},
    {Feature::kThread, "thread", "backward on another thread"},
    {Feature::kNoBackward, "no_backward", "steps without backward"},
    {Feature::kEarlyEnd, "early_end", "steps ended before their backward"},
    {Feature::kLateBackward, "late_backward", "a backward in the next step"},
    {Feature::kFailInForward, "fail_in_forward", "exceptions in the middle of forward"},
    {Feature::kFailInBackward, "fail_in_backward", "exceptions in the middle of backward"},
    {Feature::kSetDataBetween, "set_data_between", "weights replaced by set_data between steps"},
    {Feature::kSetDataInside, "set_data_inside",
     "weights replaced by set_data between forward and backward, with the same content"},
    {Feature::kVerify, "verify", "sessions that verify every few steps"},
    {Feature::kTrace, "trace", "steps that are traced"},
    {Feature::kFullHost, "full_host", "sessions with little host memory"},
    {Feature::kRegions, "regions", "sessions with little memory on the device and on the host"},
    {Feature::kBackgroundPlan, "background_plan", "plans made on a thread while steps go on"},
});
static_assert(kFeatures.size() == static_cast<std::size_t>(Feature::kCount));

const Row& row_of(Feature feature) { return kFeatures[static_cast<std::size_t>(feature)]; }

/// Empty if the variable is not set.
std::vector<Feature> listed(const char* variable) {
  std::vector<Feature> found;
  const char* const text = std::getenv(variable);
  std::istringstream names(text != nullptr ? text : "");
  for (std::string name; std::getline(names, name, ',');) {
    std::optional<Feature> feature;
    for (const Row& row : kFeatures) {
      if (row.name == name) feature = row.feature;
    }
    if (!feature) {
      throw InvalidArgument("stress", std::string(variable) + " names \"" + name +
                                          "\"; known are: " + Features::all().to_string());
    }
    found.push_back(*feature);
  }
  return found;
}

}  // namespace

std::string_view name_of(Feature feature) { return row_of(feature).name; }
std::string_view meaning_of(Feature feature) { return row_of(feature).meaning; }

Features Features::all() {
  Features features;
  features.bits_.set();
  return on_cuda() ? features : features.without(Feature::kStreams);
}

Features Features::from_environment() {
  Features features = all();
  if (const std::vector<Feature> only = listed("SPILLWAY_TEST_ONLY"); !only.empty()) {
    features = none().with(Feature::kCommon);
    for (const Feature each : only) features = features.with(each);
  }
  for (const Feature each : listed("SPILLWAY_TEST_WITHOUT")) features = features.without(each);
  return features;
}

Features Features::with(Feature feature) const {
  Features changed = *this;
  changed.bits_[index(feature)] = true;
  return changed;
}

Features Features::without(Feature feature) const {
  Features changed = *this;
  changed.bits_[index(feature)] = false;
  return changed;
}

std::string Features::to_string() const {
  std::string text;
  for (const Row& row : kFeatures) {
    if (has(row.feature)) text += (text.empty() ? "" : ",") + std::string(row.name);
  }
  return text;
}

}  // namespace spillway::testing
