#include "train/checkpoint/parameter_pieces.hpp"

#include <string>
#include <string_view>

#include "spillway/core/error.hpp"

namespace spillway::app {

std::vector<std::string> piece_names(const StageParameter& parameter) {
  if (!parameter.experts.any()) return {parameter.name};
  constexpr std::string_view kWord = ".experts.";
  const auto word = parameter.name.find(kWord);
  if (word == std::string::npos) {
    throw InvalidArgument("train", "the parameter " + parameter.name +
                                       " of experts has no part \"experts\" in its name");
  }
  const std::string start = parameter.name.substr(0, word + kWord.size());
  const std::string end = parameter.name.substr(word + kWord.size());
  std::vector<std::string> names;
  for (int i = 0; i < parameter.experts.count; ++i) {
    names.push_back(start);
    names.back().append(std::to_string(parameter.experts.first + i)).append(".").append(end);
  }
  return names;
}

std::optional<Shard> piece_shard(const StageParameter& parameter) {
  std::optional<Shard> shard = parameter.shard;
  if (shard && parameter.experts.any()) --shard->dimension;  // The first one counts experts.
  return shard;
}

std::vector<NamedTensor> pieces_of(const StageParameter& parameter) {
  if (!parameter.experts.any()) return {{parameter.name, parameter.value}};
  std::vector<NamedTensor> pieces;
  std::int64_t next = 0;
  for (const std::string& name : piece_names(parameter)) {
    at::Tensor piece = parameter.value.detach().select(0, next);
    piece.mutable_grad() = parameter.value.grad().select(0, next++);
    pieces.push_back({name, piece});
  }
  return pieces;
}

}  // namespace spillway::app
