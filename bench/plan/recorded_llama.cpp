#include "recorded_llama.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/support/synthetic_timeline.hpp"

namespace spillway::bench {
namespace {

constexpr std::int64_t kTokens = 8192;
constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kKeyValue = 1024;
constexpr std::int64_t kFfn = 14336;
constexpr std::int64_t kVocabulary = 32000;
constexpr std::int64_t kElement = 2;  // bf16
constexpr std::int64_t kFloat = 4;
constexpr std::int64_t kSmall = 64 << 10;

// What operators reach of the device, in units of a nanosecond.
constexpr std::int64_t kFlops = 700'000;
constexpr std::int64_t kBytes = 3'800;

class LlamaRecorder {
 public:
  explicit LlamaRecorder(ChunkProfile& chunk) : chunk_(chunk) {}

  void record(int layers) {
    const int tokens = persistent(kTokens * 8);
    int stream = make("aten::embedding", "embedding", {persistent(1 << 28), tokens}, wide(kHidden));
    cos_ = persistent(kTokens * 64 * kElement);
    sin_ = persistent(kTokens * 64 * kElement);
    for (layer_ = 0; layer_ < layers; ++layer_) stream = layer(stream);
    layer_ = -1;
    head(stream, tokens);
    finish();
  }

 private:
  using Ids = std::vector<int>;

  [[nodiscard]] static constexpr std::int64_t wide(std::int64_t width) {
    return kTokens * width * kElement;
  }

  int persistent(std::int64_t bytes) {
    const int id = add_value(bytes, -1);
    chunk_.values[static_cast<std::size_t>(id)].persistent = true;
    return id;
  }

  int add_value(std::int64_t bytes, int call) {
    chunk_.values.push_back({.size = Bytes(static_cast<std::uint64_t>(bytes)), .call = call});
    return static_cast<int>(chunk_.values.size()) - 1;
  }

  [[nodiscard]] std::int64_t bytes_of(int value) const {
    return static_cast<std::int64_t>(chunk_.values[static_cast<std::size_t>(value)].size.count());
  }

  /// A composite or a view: the recorder sees a call that makes nothing.
  void see(const std::string& name, const std::string& scope, const Ids& reads) {
    OperatorProfile call;
    call.name = name;
    call.scope = scope;
    call.layer = layer_;
    call.reads = reads;
    call.saves = static_cast<int>(chunk_.sites.size());
    call.ordinal = ordinals_[scope]++;
    chunk_.operators.push_back(std::move(call));
  }

  void see_all(std::initializer_list<const char*> names, const std::string& scope,
               const Ids& reads) {
    for (const char* const name : names) see(name, scope, reads);
  }

  /// An operator that moves as many bytes as it reads and makes.
  int make(const std::string& name, const std::string& scope, const Ids& reads,
           std::int64_t bytes) {
    see(name, scope, reads);
    const int made = also(bytes);
    std::int64_t moved = bytes;
    for (const int id : reads) moved += bytes_of(id);
    chunk_.operators.back().device_ns = 2000 + moved / kBytes;
    return made;
  }

  /// Another result of the last call.
  int also(std::int64_t bytes) {
    const int made = add_value(bytes, static_cast<int>(chunk_.operators.size()) - 1);
    chunk_.operators.back().makes.push_back(made);
    return made;
  }

  void computes(std::int64_t flops) { chunk_.operators.back().device_ns += flops / kFlops; }

  void save(int value, const std::string& saver, const std::string& scope) {
    int& id = chunk_.values[static_cast<std::size_t>(value)].buffer;
    if (id < 0) id = add_buffer(value, saver, scope);
    BufferProfile& buffer = chunk_.buffers[static_cast<std::size_t>(id)];
    if (buffer.saves.back() != Save{saver, scope}) buffer.saves.push_back({saver, scope});
    chunk_.sites.push_back({id, "BFloat16", {bytes_of(value) / kElement}, {1}, 0});
  }

  int add_buffer(int value, const std::string& saver, const std::string& scope) {
    const int call = chunk_.values[static_cast<std::size_t>(value)].call;
    BufferProfile buffer;
    buffer.id = static_cast<int>(chunk_.buffers.size());
    buffer.size = chunk_.values[static_cast<std::size_t>(value)].size;
    buffer.position = {scope, saver, saver_ordinals_[{scope, saver}]++};
    buffer.layer = layer_;
    buffer.saves = {{saver, scope}};
    buffer.value = value;
    if (call < 0) {
      buffer.fixed = FixedReason::kParameter;
      buffer.recipe.reason = "its producer is unknown";
    } else {
      const OperatorProfile& maker = chunk_.operators[static_cast<std::size_t>(call)];
      buffer.producer = {maker.name, maker.scope, maker.layer, call};
      buffer.recipe.usable = true;
      if (bytes_of(value) < kSmall) buffer.fixed = FixedReason::kSmall;
    }
    chunk_.buffers.push_back(buffer);
    return buffer.id;
  }

  int linear(int input, std::int64_t from, std::int64_t to, const std::string& scope) {
    const int weight = persistent(from * to * kElement);
    see("aten::linear", scope, {input, weight});
    see("aten::t", scope, {weight});
    see("aten::matmul", scope, {input, weight});
    see_all({"aten::reshape", "aten::view"}, scope, {input});
    const int output = make("aten::mm", scope, {input, weight}, wide(to));
    computes(2 * kTokens * from * to);
    save(weight, "aten::mm", scope);
    save(input, "aten::mm", scope);
    see("aten::_unsafe_view", scope, {output});
    return output;
  }

  int norm(int input, const std::string& scope) {
    const int weight = persistent(kHidden * kElement);
    see("aten::rms_norm", scope, {input, weight});
    const int output = make("aten::_fused_rms_norm", scope, {input, weight}, wide(kHidden));
    const int scale = also(kTokens * kFloat);
    for (const int each : {input, weight, scale}) save(each, "aten::_fused_rms_norm", scope);
    return output;
  }

  int rotate(int source, std::int64_t width, const std::string& scope) {
    see_all({"aten::view", "aten::transpose", "aten::chunk", "aten::split"}, scope, {source});
    const auto half = [&](int with) {
      const int made = make("aten::mul", scope, {with}, wide(width / 2));
      chunk_.operators.back().reads.push_back(source);
      chunk_.operators.back().device_ns += wide(width / 2) / kBytes;
      save(with, "aten::mul", scope);
      return made;
    };
    const int a = half(cos_);
    const int b = half(sin_);
    const int left = make("aten::sub", scope, {a, b}, wide(width / 2));
    const int c = half(cos_);
    const int d = half(sin_);
    const int right = make("aten::add", scope, {c, d}, wide(width / 2));
    return make("aten::cat", scope, {left, right}, wide(width));
  }

  int attention(int input, const std::string& scope) {
    const int qkv =
        linear(norm(input, scope + ".norm"), kHidden, kHidden + 2 * kKeyValue, scope + ".qkv");
    const std::string core = scope + ".core";
    see("aten::split_with_sizes", scope + ".qkv", {qkv});
    const int q = rotate(qkv, kHidden, core);
    const int k = rotate(qkv, kKeyValue, core);
    see_all({"aten::view", "aten::transpose"}, core, {qkv});
    see("aten::scaled_dot_product_attention", core, {q, k, qkv});
    const std::string flash = "aten::_scaled_dot_product_flash_attention";
    const int output = make(flash, core, {q, k, qkv}, wide(kHidden));
    computes(2 * kTokens * kTokens * kHidden);
    const Ids others = {also(kTokens * kHeads * kFloat), also(8), also(8)};
    for (const int each : {q, k, qkv, output}) save(each, flash, core);
    for (const int each : others) save(each, flash, core);
    see_all({"aten::transpose", "aten::reshape", "aten::view"}, core, {output});
    const int projected = linear(output, kHidden, kHidden, scope + ".proj");
    return make("aten::add", scope + ".proj", {input, projected}, wide(kHidden));
  }

  int mlp(int input, const std::string& scope) {
    const int normed = norm(input, scope + ".norm");
    const int gate = linear(normed, kHidden, kFfn, scope + ".fc1");
    const int up = linear(normed, kHidden, kFfn, scope + ".fc1");
    const int active = make("aten::silu", scope + ".act", {gate}, wide(kFfn));
    save(gate, "aten::silu", scope + ".act");
    const int product = make("aten::mul", scope + ".act", {active, up}, wide(kFfn));
    for (const int each : {up, active}) save(each, "aten::mul", scope + ".act");
    const int output = linear(product, kFfn, kHidden, scope + ".fc2");
    return make("aten::add", scope + ".fc2", {input, output}, wide(kHidden));
  }

  int layer(int input) {
    const std::string scope = "layers." + std::to_string(layer_);
    return mlp(attention(input, scope + ".attention"), scope + ".mlp");
  }

  void head(int input, int tokens) {
    const int logits = linear(norm(input, "norm"), kHidden, kVocabulary, "head");
    see("aten::cross_entropy_loss", "head", {logits, tokens});
    const int shares = make("aten::_log_softmax", "head", {logits}, wide(kVocabulary));
    save(shares, "aten::_log_softmax", "head");
    const int loss = make("aten::nll_loss_forward", "head", {shares, tokens}, kElement);
    const int weight = also(kElement);
    for (const int each : {shares, tokens, weight}) save(each, "aten::nll_loss_forward", "head");
    see("aten::mean", "head", {loss});
  }

  void finish() {
    for (std::size_t site = chunk_.sites.size(); site-- > 0;) {
      chunk_.unpack_order.push_back(chunk_.sites[site].buffer);
    }
    for (const BufferProfile& buffer : chunk_.buffers) {
      if (buffer.fixed == FixedReason::kNone) chunk_.theoretical_peak += buffer.size;
    }
    chunk_.measured_peak = chunk_.theoretical_peak;
  }

  ChunkProfile& chunk_;
  int layer_ = -1;
  int cos_ = -1;
  int sin_ = -1;
  std::map<std::string, int> ordinals_;
  std::map<std::pair<std::string, std::string>, int> saver_ordinals_;
};

}  // namespace

Profile recorded_llama(int layers) {
  Profile profile;
  profile.device = "NVIDIA H200";
  profile.link = {55.3e9, 55.5e9, 50.8e9, 50.8e9};
  profile.link.slows_out = 0.007;
  profile.link.slows_back = 0.0125;
  profile.layers = layers;
  profile.layer_scope = "layers";
  profile.granularity = Bytes(512);
  ChunkProfile& chunk = profile.chunks.emplace_back();
  chunk.layers = layers;
  LlamaRecorder(chunk).record(layers);
  testing::add_timelines(profile);
  return profile;
}

}  // namespace spillway::bench
