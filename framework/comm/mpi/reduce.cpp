#include "comm/mpi/reduce.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "spillway/core/error.hpp"

namespace spillway::mpi {
namespace {

using How = c10d::ReduceOp::RedOpType;

/// What elements are combined in.
template <typename T>
using Wide =
    std::conditional_t<std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, c10::Half>, float, T>;

template <typename T>
T least(T left, T right) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(left) || std::isnan(right)) return left + right;  // As in torch.
  }
  return std::min(left, right);
}

template <typename T>
T most(T left, T right) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(left) || std::isnan(right)) return left + right;
  }
  return std::max(left, right);
}

template <typename T, typename Combine>
void combine_rows(const std::vector<const void*>& rows, void* out, std::int64_t count,
                  Wide<T> divisor, const Combine& combine) {
  using Sum = Wide<T>;
  constexpr std::int64_t kBlock = 1024;
  std::array<Sum, kBlock> block;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const auto length = static_cast<std::size_t>(std::min(kBlock, count - begin));
    const T* const first = static_cast<const T*>(rows[0]) + begin;
    for (std::size_t i = 0; i < length; ++i) block[i] = static_cast<Sum>(first[i]);
    for (std::size_t row = 1; row < rows.size(); ++row) {
      const T* const next = static_cast<const T*>(rows[row]) + begin;
      for (std::size_t i = 0; i < length; ++i) {
        block[i] = static_cast<Sum>(combine(block[i], static_cast<Sum>(next[i])));
      }
    }
    if (divisor != Sum{1}) {
      for (std::size_t i = 0; i < length; ++i) block[i] = static_cast<Sum>(block[i] / divisor);
    }
    T* const result = static_cast<T*>(out) + begin;
    for (std::size_t i = 0; i < length; ++i) result[i] = static_cast<T>(block[i]);
  }
}

template <typename T>
void reduce_typed(How how, const std::vector<const void*>& rows, void* out, std::int64_t count) {
  using Sum = Wide<T>;
  if (how == How::PRODUCT) return combine_rows<T>(rows, out, count, 1, std::multiplies<>());
  if (how == How::MIN) return combine_rows<T>(rows, out, count, 1, least<Sum>);
  if (how == How::MAX) return combine_rows<T>(rows, out, count, 1, most<Sum>);
  const auto members = how == How::AVG ? static_cast<Sum>(rows.size()) : Sum{1};
  combine_rows<T>(rows, out, count, members, std::plus<>());
}

}  // namespace

void check_reduction(const char* operation, c10::ScalarType type, How how) {
  const bool known_type = type == c10::kFloat || type == c10::kDouble || type == c10::kBFloat16 ||
                          type == c10::kHalf || type == c10::kLong || type == c10::kInt ||
                          type == c10::kShort || type == c10::kChar || type == c10::kByte ||
                          type == c10::kBool;
  if (!known_type) {
    throw InvalidArgument(operation, std::string("MPI cannot reduce elements of ") +
                                         c10::toString(type) + "; convert the tensor first");
  }
  if (how != How::SUM && how != How::AVG && how != How::PRODUCT && how != How::MIN &&
      how != How::MAX) {
    throw InvalidArgument(operation, "reduction number " + std::to_string(static_cast<int>(how)) +
                                         " of c10d is not known here; use a sum, average, "
                                         "product, minimum or maximum");
  }
}

void reduce_rows(c10::ScalarType type, How how, const std::vector<const void*>& rows, void* out,
                 std::int64_t count) {
  switch (type) {
    case c10::kFloat:
      return reduce_typed<float>(how, rows, out, count);
    case c10::kDouble:
      return reduce_typed<double>(how, rows, out, count);
    case c10::kBFloat16:
      return reduce_typed<c10::BFloat16>(how, rows, out, count);
    case c10::kHalf:
      return reduce_typed<c10::Half>(how, rows, out, count);
    case c10::kLong:
      return reduce_typed<std::int64_t>(how, rows, out, count);
    case c10::kInt:
      return reduce_typed<std::int32_t>(how, rows, out, count);
    case c10::kShort:
      return reduce_typed<std::int16_t>(how, rows, out, count);
    case c10::kChar:
      return reduce_typed<std::int8_t>(how, rows, out, count);
    case c10::kByte:
      return reduce_typed<std::uint8_t>(how, rows, out, count);
    case c10::kBool: {
      // Of truths the sum is "any" and the product "all".
      const How as = how == How::SUM || how == How::AVG ? How::MAX
                     : how == How::PRODUCT              ? How::MIN
                                                        : how;
      return reduce_typed<std::uint8_t>(as, rows, out, count);
    }
    default:
      check_reduction("reduce", type, how);  // Throws.
  }
}

}  // namespace spillway::mpi
