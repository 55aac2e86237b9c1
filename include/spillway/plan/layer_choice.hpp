/// Which layers of a model are of a kind, as configs say it: "every 2", "1,3,5", "1..-1".
#pragma once

#include <string_view>

namespace spillway {

/// Whether `layer`, counted from 0, of so many `layers` is meant. "every N": the last of every N
/// layers, so that "every 2" is the second, the fourth and so on. Else as LayerSet reads it.
/// Errors: InvalidArgument with the text and what is accepted.
[[nodiscard]] bool is_chosen_layer(std::string_view text, int layer, int layers);

}  // namespace spillway
