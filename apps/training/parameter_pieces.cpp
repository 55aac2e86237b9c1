#include "training/parameter_pieces.hpp"

#include <string>
#include <string_view>

#include "spillway/core/error.hpp"

namespace spillway::app {

std::vector<NamedTensor> pieces_of(const StageParameter& parameter) {
  if (!parameter.experts.any()) return {{parameter.name, parameter.value}};
  constexpr std::string_view kWord = ".experts.";
  const auto word = parameter.name.find(kWord);
  if (word == std::string::npos) {
    throw InvalidArgument("train", "the parameter " + parameter.name +
                                       " of experts has no part \"experts\" in its name");
  }
  const std::string start = parameter.name.substr(0, word + kWord.size());
  const std::string end = parameter.name.substr(word + kWord.size());
  std::vector<NamedTensor> pieces;
  for (int i = 0; i < parameter.experts.count; ++i) {
    at::Tensor piece = parameter.value.detach().select(0, i);
    piece.mutable_grad() = parameter.value.grad().select(0, i);
    pieces.push_back({start + std::to_string(parameter.experts.first + i) + "." + end, piece});
  }
  return pieces;
}

}  // namespace spillway::app
