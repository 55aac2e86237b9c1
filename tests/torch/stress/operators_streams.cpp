// Operators on two streams.
#include <ATen/ATen.h>

#include "device.hpp"
#include "operators.hpp"

namespace spillway::testing {
namespace {

using at::Tensor;

bool is_slow(std::uint32_t draw) { return draw % 4 != 0; }

/// All of it on the other stream.
Tensor beside(Machine& machine, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  return on_another_stream(is_slow(draw), {a, b}, [&]() -> Tensor {
    switch (draw / 4 % 3) {
      case 0:
        return a.sin() * b;
      case 1:
        return at::linear(a, machine.square(draw >> 4U)).tanh() + b;
      default:
        return at::gelu(a * 1.25 + b);
    }
  });
}

/// One value that both streams save, and that is freed while the other one still reads it.
Tensor read_by_both(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  Tensor made = a + b * 0.5;
  Tensor here;
  if (draw / 4 % 2 == 0) here = made.square();
  const Tensor there =
      on_another_stream(is_slow(draw), {made}, [&]() -> Tensor { return made.sin(); });
  if (!here.defined()) here = at::silu(made);
  made.reset();
  return here + there;
}

/// Made and saved on the other stream, saved here, too.
Tensor made_beside(Machine&, std::uint32_t draw, const Tensor& a, const Tensor& b) {
  Tensor square;
  Tensor made = on_another_stream(is_slow(draw), {a, b}, [&]() -> Tensor {
    Tensor value = a * 0.75 - b;
    square = value.square();
    return value;
  });
  const Tensor result = made.tanh() * made;
  made.reset();
  return result + on_another_stream(false, {square}, [&]() -> Tensor { return square * 0.5; });
}

}  // namespace

std::vector<OperatorRow> stream_operators() {
  using enum Feature;
  return {{"beside", kStreams, beside},
          {"read_by_both", kStreams, read_by_both},
          {"made_beside", kStreams, made_beside}};
}

}  // namespace spillway::testing
