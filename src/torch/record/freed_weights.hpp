/// Which operators read weights that their owners free between forward and backward, as those of
/// FSDP and ZeRO-3; internal. Under the session's lock.
///
/// The owner gathers such a weight again before the backward of the layer that reads it. Before
/// that, for another layer, it is there by accident: because something else that may be absent from
/// the next step needed it, or because it is being gathered and is not complete.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torch/graph/recipe_book.hpp"
#include "torch/record/pass_profiler.hpp"
#include "torch/record/session_mutex.hpp"

namespace spillway {

inline constexpr std::string_view kReadsFreedWeight =
    "its recipe reads a weight that its owner frees, which only backward of its own layer finds";

/// Whether two scopes are in one layer: "layers.0.norm" and "layers.0.mlp.up" are, "layers.0" and
/// "layers.1" are not, nor are scopes without numbers.
[[nodiscard]] bool in_one_layer(std::string_view a, std::string_view b);

class FreedWeights {
 public:
  /// When a pass is looked at.
  enum class At {
    kBackwardBegins,
    kStepEnds,  ///< Weights that a graph made are gone then, which says nothing.
  };

  /// Notes the calls of a pass that read a weight which has no memory now. `locations`: by call, in
  /// a recording step; else empty.
  void look(const RecipeBook& book, int pass, At at, const std::vector<CallLocation>& locations,
            SessionMutex& mutex);

  /// Whether calls with this signature read such a weight.
  [[nodiscard]] bool contains(Signature call) const { return scopes_.contains(call); }
  /// Whether backward of operators in all of these scopes finds what such a call reads: they are in
  /// its layer.
  [[nodiscard]] bool are_there(Signature call, const std::vector<std::string>& scopes) const;

 private:
  // By signature of the call, where it ran; empty: in several layers, or unknown.
  std::unordered_map<Signature, std::optional<std::string>> scopes_;
};

}  // namespace spillway
