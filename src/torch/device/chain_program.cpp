#include "torch/device/chain_program.hpp"

#include <sstream>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

using Access = ChainProgram::Access;
using Operation = ChainProgram::Operation;

constexpr const char* kPrelude = R"(
typedef unsigned short half_word;
struct alignas(16) Words { half_word v[8]; };
struct alignas(16) Floats { float v[8]; };
#define DEVICE __device__ __forceinline__
DEVICE float from_float(float x) { return x; }
DEVICE float to_float(float x) { return x; }
DEVICE float from_bfloat16(half_word x) { return __uint_as_float(unsigned(x) << 16); }
DEVICE half_word to_bfloat16(float x) {
  half_word bits; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); return bits;
}
DEVICE float from_half(half_word x) {
  float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y;
}
DEVICE half_word to_half(float x) {
  half_word bits; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); return bits;
}
)";

std::string name_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) return "float";
  if (dtype == at::kBFloat16) return "bfloat16";
  if (dtype == at::kHalf) return "half";
  throw InvalidArgument("chain",
                        std::string("float, bfloat16 or half wanted, not ") + at::toString(dtype));
}

std::string element_of(at::ScalarType dtype) { return dtype == at::kFloat ? "float" : "half_word"; }
std::string vector_of(at::ScalarType dtype) { return dtype == at::kFloat ? "Floats" : "Words"; }

/// As torch's kernels compute it, in float.
std::string expression(Operation operation, const std::string& a, const std::string& b) {
  switch (operation) {
    case Operation::kAdd:
      return a + " + " + b;
    case Operation::kSub:
      return a + " - " + b;
    case Operation::kMul:
      return a + " * " + b;
    case Operation::kNegate:
      return "-" + a;
    case Operation::kSquare:
      return a + " * " + a;
    case Operation::kSilu:
      return a + " / (1.0f + expf(-" + a + "))";
    case Operation::kCast:
      return a;
  }
  return {};
}

}  // namespace

bool ChainProgram::supports(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

std::string ChainProgram::source() const {
  std::ostringstream parameters;
  std::ostringstream loads;
  std::ostringstream body;
  std::ostringstream stores;
  parameters << "long long vectors, long long row";
  // A thread loads a vector of each input, or one element where a row shares it.
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs[i];
    const bool vector = input.access != Access::kRow;
    const std::string type = vector ? vector_of(input.dtype) : element_of(input.dtype);
    const char* const element =
        input.access == Access::kFull ? "i" : (vector ? "i % row" : "i / row");
    parameters << ", const " << type << "* in" << i;
    loads << "    const " << type << " x" << i << " = in" << i << "[" << element << "];\n";
    body << "      const float v" << i << " = from_" << name_of(input.dtype) << "(x" << i
         << (vector ? ".v[e]" : "") << ");\n";
  }
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const Node& node = nodes[n];
    const auto operand = [&](std::size_t which) {
      return node.operands[which] < 0 ? std::string() : "v" + std::to_string(node.operands[which]);
    };
    const std::string type = name_of(node.dtype);
    body << "      const " << element_of(node.dtype) << " r" << n << " = to_" << type << "("
         << expression(node.operation, operand(0), operand(1)) << ");\n"
         << "      const float v" << inputs.size() + n << " = from_" << type << "(r" << n << ");\n";
    if (!node.stored) continue;
    parameters << ", " << vector_of(node.dtype) << "* out" << n;
    loads << "    " << vector_of(node.dtype) << " y" << n << ";\n";
    body << "      y" << n << ".v[e] = r" << n << ";\n";
    stores << "    out" << n << "[i] = y" << n << ";\n";
  }
  std::ostringstream source;
  source << kPrelude << "extern \"C\" __global__ void __launch_bounds__(256) chain("
         << parameters.str() << ") {\n"
         << "  const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
         << "  for (long long i = first; i < vectors; i += (long long)gridDim.x * blockDim.x) {\n"
         << loads.str() << "#pragma unroll\n"
         << "    for (int e = 0; e < 8; ++e) {\n"
         << body.str() << "    }\n"
         << stores.str() << "  }\n}\n";
  return source.str();
}

}  // namespace spillway
