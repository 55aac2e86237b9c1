/// Which experts of a mixture a rank has.
#pragma once

#include <string>

namespace spillway {

/// Of a tensor whose first dimension counts experts: it holds those from `first` on.
struct ExpertSlice {
  int first = 0;
  int count = 0;  ///< 0: the tensor is no experts'.

  [[nodiscard]] bool any() const noexcept { return count > 0; }
  bool operator==(const ExpertSlice&) const = default;
};

/// A module all of whose parameters have one row for each of its experts. Its gradients are summed
/// over the ranks that have the same experts only.
class HoldsExperts {
 public:
  virtual ~HoldsExperts() = default;
  [[nodiscard]] virtual ExpertSlice experts() const = 0;
};

}  // namespace spillway
