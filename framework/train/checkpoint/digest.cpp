#include "train/checkpoint/digest.hpp"

#include <algorithm>
#include <bit>

#include "spillway/core/error.hpp"
#include "util/digest.hpp"

namespace spillway::app {

std::uint64_t combined_digest(std::vector<NamedDigest> parameters) {
  std::sort(parameters.begin(), parameters.end(),
            [](const NamedDigest& a, const NamedDigest& b) { return a.name < b.name; });
  Digest hash;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (i > 0 && parameters[i].name == parameters[i - 1].name) {
      if (parameters[i].digest == parameters[i - 1].digest) continue;
      throw InvalidArgument("digest", "copies of " + parameters[i].name +
                                          " differ between ranks, which should be equal");
    }
    hash.add(parameters[i].digest);
  }
  return hash.value();
}

void LossDigest::add(std::int64_t step, double loss) noexcept {
  Digest hash;
  hash.add(value_);
  hash.add(static_cast<std::uint64_t>(step));
  hash.add(std::bit_cast<std::uint64_t>(loss));
  value_ = hash.value();
}

std::string digest_line(std::uint64_t parameters, std::uint64_t losses) {
  return "digest: parameters " + digest_text(parameters) + " losses " + digest_text(losses);
}

}  // namespace spillway::app
