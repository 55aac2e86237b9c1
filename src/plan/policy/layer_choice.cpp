#include "spillway/plan/layer_choice.hpp"

#include <charconv>
#include <string>

#include "spillway/core/error.hpp"
#include "spillway/plan/layer_set.hpp"

namespace spillway {

bool is_chosen_layer(std::string_view text, int layer, int layers) {
  constexpr std::string_view kEvery = "every ";
  if (!text.starts_with(kEvery)) return parse_layers(text).contains(layer, layers);
  int interval = 0;
  const char* end = text.data() + text.size();
  const auto [parsed_to, error] = std::from_chars(text.data() + kEvery.size(), end, interval);
  if (error != std::errc() || parsed_to != end || interval < 1) {
    throw InvalidArgument("layers", "cannot read \"" + std::string(text) +
                                        "\" as layers: write a whole number from 1 on after "
                                        "\"every\", such as \"every 2\"");
  }
  return layer % interval == interval - 1;
}

}  // namespace spillway
