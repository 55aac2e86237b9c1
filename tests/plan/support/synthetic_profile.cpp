#include "synthetic_profile.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

namespace spillway::testing {
namespace {

constexpr std::uint64_t kElement = 2;  // bf16
constexpr std::uint64_t kSmall = 64ULL << 10U;

/// The parts of a layer below "<layers>.<number>".
struct Names {
  std::string layers;
  std::string attention;
  std::string attn_norm;
  std::vector<std::string> qkv;
  std::string core;
  std::string proj;
  std::string mlp_norm;
  std::string mlp;
  std::vector<std::string> fc1;
  std::string act;
  std::string gate;  ///< Where the activation is multiplied with the gate.
  std::string fc2;
  std::string router;
  std::string shared;
};

Names names_of(Naming naming) {
  const std::vector<std::string> llama_qkv = {"self_attn.q_proj", "self_attn.k_proj",
                                              "self_attn.v_proj"};
  switch (naming) {
    case Naming::kOwn:
    case Naming::kOwnExperts:
      return {"layers",         "attention",         "attention.norm", {"attention.qkv"},
              "attention.core", "attention.proj",    "mlp.norm",       "mlp",
              {"mlp.fc1"},      "mlp.act",           "mlp.act",        "mlp.fc2",
              "mlp.router",     "mlp.shared_experts"};
    case Naming::kLlama:
      return {"model.layers",
              "self_attn",
              "input_layernorm",
              llama_qkv,
              "self_attn",
              "self_attn.o_proj",
              "post_attention_layernorm",
              "mlp",
              {"mlp.gate_proj", "mlp.up_proj"},
              "mlp.act_fn",
              "mlp",
              "mlp.down_proj",
              "",
              ""};
    case Naming::kGpt2:
      return {"transformer.h",
              "attn",
              "ln_1",
              {"attn.c_attn"},
              "attn",
              "attn.c_proj",
              "ln_2",
              "mlp",
              {"mlp.c_fc"},
              "mlp.act",
              "mlp.act",
              "mlp.c_proj",
              "",
              ""};
    case Naming::kMixtral:
      return {"model.layers",
              "self_attn",
              "input_layernorm",
              llama_qkv,
              "self_attn",
              "self_attn.o_proj",
              "post_attention_layernorm",
              "block_sparse_moe",
              {},
              "",
              "",
              "",
              "block_sparse_moe.gate",
              ""};
    case Naming::kQwenExperts:
      return {"model.layers",
              "self_attn",
              "input_layernorm",
              llama_qkv,
              "self_attn",
              "self_attn.o_proj",
              "post_attention_layernorm",
              "mlp",
              {},
              "",
              "",
              "",
              "mlp.gate",
              "mlp.shared_expert"};
  }
  return {};
}

/// A tensor of the forward pass.
struct Value {
  int id = -1;  // In the graph.
  Producer producer;
  std::vector<std::int64_t> sizes;
  std::uint64_t element = kElement;

  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t bytes = element;
    for (const std::int64_t size : sizes) bytes *= static_cast<std::uint64_t>(size);
    return bytes;
  }
};
using ValueRef = std::shared_ptr<Value>;

/// Simulates a forward pass.
class Recorder {
 public:
  Recorder(ChunkProfile& chunk, bool casting_norms)
      : chunk_(chunk), casting_norms_(casting_norms) {}

  void enter_layer(int layer) { layer_ = layer; }

  [[nodiscard]] ValueRef make(const std::string& op, const std::string& scope,
                              const std::vector<ValueRef>& inputs, std::vector<std::int64_t> sizes,
                              std::uint64_t element = kElement) {
    const std::int64_t elements =
        std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
    OperatorProfile call{op, scope, layer_, 1000 + elements / 1000, Bytes(0), {}, {}, ""};
    for (const ValueRef& input : inputs) call.reads.push_back(input->id);
    call.saves = static_cast<int>(chunk_.sites.size());
    chunk_.operators.push_back(std::move(call));
    return also(std::move(sizes), element);
  }

  /// Another output of the last call.
  [[nodiscard]] ValueRef also(std::vector<std::int64_t> sizes, std::uint64_t element = kElement) {
    OperatorProfile& last = chunk_.operators.back();
    const int call = static_cast<int>(chunk_.operators.size()) - 1;
    ValueRef value =
        add_value({-1, {last.name, last.scope, layer_, call}, std::move(sizes), element});
    last.makes.push_back(value->id);
    return value;
  }

  /// Persistent values: a weight, the batch.
  [[nodiscard]] ValueRef persistent(std::vector<std::int64_t> sizes) {
    ValueRef value = add_value({-1, {}, std::move(sizes), kElement});
    chunk_.values.back().persistent = true;
    return value;
  }

  void save(const ValueRef& value, const std::string& op, const std::string& scope) {
    int& id = chunk_.values[static_cast<std::size_t>(value->id)].buffer;
    if (id < 0) id = add_buffer(*value, op, scope);
    BufferProfile& buffer = chunk_.buffers[static_cast<std::size_t>(id)];
    if (buffer.saves.back() != Save{op, scope}) buffer.saves.push_back({op, scope});
    chunk_.sites.push_back({id, "bfloat16", value->sizes, {value->sizes.back(), 1}, 0});
    order_.push_back(id);
  }

  /// How long the last call took, beyond reading and writing.
  void computes(std::int64_t flops) { chunk_.operators.back().device_ns += flops / 600'000; }

  [[nodiscard]] ValueRef linear(const ValueRef& input, const std::string& scope,
                                std::int64_t width) {
    const ValueRef weight = persistent({input->sizes[1], width});
    ValueRef output = make("aten::mm", scope, {input, weight}, {input->sizes[0], width});
    computes(2 * input->sizes[0] * input->sizes[1] * width);
    save(input, "aten::mm", scope);
    save(weight, "aten::mm", scope);
    return output;
  }

  [[nodiscard]] ValueRef norm(const ValueRef& input, const std::string& scope) {
    if (casting_norms_) return casting_norm(input, scope);
    const std::string op = "aten::_fused_rms_norm";
    ValueRef output = make(op, scope, {input, persistent({1, input->sizes[1]})}, input->sizes);
    const ValueRef scale = also({input->sizes[0], 1});
    save(input, op, scope);
    save(scale, op, scope);
    return output;
  }

  void finish() {
    std::reverse(order_.begin(), order_.end());
    for (const int id : order_) {
      BufferProfile& buffer = chunk_.buffers[static_cast<std::size_t>(id)];
      const int unpack = static_cast<int>(chunk_.unpack_order.size());
      if (buffer.first_unpack < 0) buffer.first_unpack = unpack;
      buffer.last_unpack = unpack;
      chunk_.unpack_order.push_back(id);
    }
    for (const OperatorProfile& call : chunk_.operators) chunk_.forward_ns += call.device_ns;
    for (BufferProfile& buffer : chunk_.buffers) {
      if (buffer.fixed == FixedReason::kNone) chunk_.theoretical_peak += buffer.size;
    }
    chunk_.measured_peak = chunk_.theoretical_peak;
    chunk_.backward_ns = 2 * chunk_.forward_ns;
  }

 private:
  /// As Hugging Face's models write it: what is saved is the copy in fp32, not what came in.
  [[nodiscard]] ValueRef casting_norm(const ValueRef& input, const std::string& scope) {
    constexpr std::uint64_t kFloat = 4;
    const std::vector<std::int64_t> one_each = {input->sizes[0], 1};
    const ValueRef wide = make("aten::_to_copy", scope, {input}, input->sizes, kFloat);
    const ValueRef square = make("aten::pow", scope, {wide}, input->sizes, kFloat);
    save(wide, "aten::pow", scope);
    const ValueRef mean = make("aten::mean", scope, {square}, one_each, kFloat);
    const ValueRef shifted = make("aten::add", scope, {mean}, one_each, kFloat);
    const ValueRef scale = make("aten::rsqrt", scope, {shifted}, one_each, kFloat);
    save(scale, "aten::rsqrt", scope);
    const ValueRef scaled = make("aten::mul", scope, {wide, scale}, input->sizes, kFloat);
    save(wide, "aten::mul", scope);
    save(scale, "aten::mul", scope);
    const ValueRef narrow = make("aten::_to_copy", scope, {scaled}, input->sizes);
    const ValueRef weight = persistent({1, input->sizes[1]});
    ValueRef output = make("aten::mul", scope, {weight, narrow}, input->sizes);
    save(weight, "aten::mul", scope);
    save(narrow, "aten::mul", scope);
    return output;
  }

  ValueRef add_value(Value value) {
    value.id = static_cast<int>(chunk_.values.size());
    chunk_.values.push_back({.size = Bytes(value.bytes()), .call = value.producer.call});
    return std::make_shared<Value>(std::move(value));
  }

  int add_buffer(const Value& value, const std::string& op, const std::string& scope) {
    BufferProfile buffer;
    buffer.id = static_cast<int>(chunk_.buffers.size());
    buffer.size = Bytes(value.bytes());
    buffer.position = {scope, op, ordinals_[{scope, op}]++};
    buffer.layer = layer_;
    buffer.producer = value.producer;
    buffer.saves = {{op, scope}};
    buffer.value = value.id;
    buffer.recipe.usable = value.producer.call >= 0;
    if (!buffer.recipe.usable) {
      buffer.fixed = FixedReason::kParameter;
      buffer.recipe.reason = "it came from outside of the pass";
    } else if (value.bytes() < kSmall) {
      buffer.fixed = FixedReason::kSmall;
    }
    chunk_.buffers.push_back(buffer);
    return buffer.id;
  }

  ChunkProfile& chunk_;
  bool casting_norms_;
  int layer_ = -1;
  std::vector<int> order_;
  std::map<std::pair<std::string, std::string>, int> ordinals_;
};

class Model {
 public:
  Model(const ModelSize& size, Recorder& recorder)
      : size_(size), names_(names_of(size.naming)), recorder_(recorder) {}

  /// What enters the first layer of the model; with rotary positions, which all layers use.
  [[nodiscard]] ValueRef embedding() {
    const std::vector<std::int64_t> sizes = {size_.tokens, size_.hidden};
    const ValueRef tokens = recorder_.persistent({size_.tokens, 1});
    return recorder_.make("aten::embedding", "embedding",
                          {recorder_.persistent({32000, size_.hidden}), tokens}, sizes);
  }

  /// What enters a chunk that is not the first.
  [[nodiscard]] ValueRef received() { return recorder_.persistent({size_.tokens, size_.hidden}); }

  void positions() {
    if (!size_.casting_norms) return;
    const std::vector<std::int64_t> sizes = {size_.tokens, 128};
    const ValueRef angles =
        recorder_.make("aten::bmm", "model.rotary_emb", {recorder_.persistent({1, 64})}, sizes);
    cos_ = recorder_.make("aten::cos", "model.rotary_emb", {angles}, sizes);
    sin_ = recorder_.make("aten::sin", "model.rotary_emb", {angles}, sizes);
  }

  [[nodiscard]] ValueRef layer(int number, const ValueRef& input) {
    recorder_.enter_layer(number);
    layer_ = names_.layers + "." + std::to_string(number);
    const ValueRef middle = residual(input, attention(recorder_.norm(input, in(names_.attn_norm))),
                                     names_.proj, "attn.resid_dropout");
    const ValueRef normed = recorder_.norm(middle, in(names_.mlp_norm));
    const bool dense = !names_.fc1.empty() && size_.naming != Naming::kOwnExperts;
    ValueRef output =
        residual(middle, dense ? mlp(normed) : experts(normed), names_.fc2, "mlp.dropout");
    recorder_.enter_layer(-1);
    return output;
  }

  void head(const ValueRef& input) {
    (void)recorder_.linear(recorder_.norm(input, "norm"), "lm_head", 32000);
  }

 private:
  [[nodiscard]] std::string in(const std::string& part) const {
    return part.empty() ? layer_ : layer_ + "." + part;
  }

  /// Own models add where they project; others in the layer, with dropout in modules of its own.
  [[nodiscard]] ValueRef residual(const ValueRef& stream, ValueRef added, const std::string& part,
                                  const std::string& dropout) {
    const bool own = size_.naming == Naming::kOwn || size_.naming == Naming::kOwnExperts;
    if (size_.dropout) {
      const std::string scope = in(own ? part : dropout);
      const ValueRef dropped = recorder_.make("aten::native_dropout", scope, {added}, added->sizes);
      recorder_.save(recorder_.also(added->sizes, 1), "aten::native_dropout", scope);
      added = dropped;
    }
    return recorder_.make("aten::add", own ? in(part) : layer_, {stream, added}, stream->sizes);
  }

  /// Saves the angles only: they want no gradient.
  [[nodiscard]] ValueRef rotated(const ValueRef& input) {
    if (cos_ == nullptr) return input;
    const std::string scope = in(names_.core);
    const ValueRef straight = recorder_.make("aten::mul", scope, {input, cos_}, input->sizes);
    recorder_.save(cos_, "aten::mul", scope);
    const ValueRef half =
        recorder_.make("aten::neg", scope, {input}, {input->sizes[0], input->sizes[1] / 2});
    const ValueRef turned = recorder_.make("aten::cat", scope, {half, input}, input->sizes);
    const ValueRef crosswise = recorder_.make("aten::mul", scope, {turned, sin_}, input->sizes);
    recorder_.save(sin_, "aten::mul", scope);
    return recorder_.make("aten::add", scope, {straight, crosswise}, input->sizes);
  }

  [[nodiscard]] ValueRef attention(const ValueRef& input) {
    std::vector<ValueRef> qkv;
    for (const std::int64_t width : {size_.hidden, size_.key_value, size_.key_value}) {
      const std::string& name = names_.qkv[std::min(qkv.size(), names_.qkv.size() - 1)];
      qkv.push_back(recorder_.linear(input, in(name), width));
    }
    const std::string op = "aten::_scaled_dot_product_flash_attention";
    for (const std::size_t each : {0U, 1U}) qkv[each] = rotated(qkv[each]);
    const ValueRef output = recorder_.make(op, in(names_.core), qkv, input->sizes);
    recorder_.computes(2 * size_.tokens * size_.tokens * size_.hidden);
    const ValueRef log_sum = recorder_.also({size_.tokens, 32});
    for (const ValueRef& each : qkv) recorder_.save(each, op, in(names_.core));
    recorder_.save(output, op, in(names_.core));
    recorder_.save(log_sum, op, in(names_.core));
    if (!size_.copies) return recorder_.linear(output, in(names_.proj), size_.hidden);
    const ValueRef copy = recorder_.make("aten::clone", in(names_.core), {output}, output->sizes);
    return recorder_.linear(copy, in(names_.proj), size_.hidden);
  }

  [[nodiscard]] ValueRef mlp(const ValueRef& input) {
    const std::vector<std::string>& fc1 = names_.fc1;
    return gated(input, in(fc1.front()), in(fc1.back()), in(names_.act), in(names_.gate),
                 in(names_.fc2));
  }

  [[nodiscard]] ValueRef gated(const ValueRef& input, const std::string& gate_scope,
                               const std::string& up_scope, const std::string& act_scope,
                               const std::string& product_scope, const std::string& down_scope) {
    const ValueRef gate = recorder_.linear(input, gate_scope, size_.ffn);
    const ValueRef up = recorder_.linear(input, up_scope, size_.ffn);
    const ValueRef active = recorder_.make("aten::silu", act_scope, {gate}, gate->sizes);
    recorder_.save(gate, "aten::silu", act_scope);
    const ValueRef product = recorder_.make("aten::mul", product_scope, {active, up}, gate->sizes);
    recorder_.save(active, "aten::mul", product_scope);
    recorder_.save(up, "aten::mul", product_scope);
    return recorder_.linear(product, down_scope, size_.hidden);
  }

  [[nodiscard]] ValueRef experts(const ValueRef& input) {
    const std::string mlp = in(names_.mlp);
    (void)recorder_.linear(input, in(names_.router), 8);
    ValueRef output = input;
    if (size_.naming == Naming::kOwnExperts) {
      const std::string experts = mlp + ".experts.";
      const ValueRef sent = recorder_.make("aten::index", mlp, {input}, input->sizes);
      output = gated(sent, experts + "fc1", experts + "fc1", experts + "act", experts + "act",
                     experts + "fc2");
    } else {
      const bool mixtral = size_.naming == Naming::kMixtral;
      for (int i = 0; i < size_.experts; ++i) {
        const std::string expert = mlp + ".experts." + std::to_string(i);
        const ValueRef sent = recorder_.make("aten::index", mlp, {input}, input->sizes);
        const ValueRef made = gated(sent, expert + (mixtral ? ".w1" : ".gate_proj"),
                                    expert + (mixtral ? ".w3" : ".up_proj"), expert + ".act_fn",
                                    expert, expert + (mixtral ? ".w2" : ".down_proj"));
        output = recorder_.make("aten::index_add", mlp, {output, made}, output->sizes);
      }
    }
    if (!names_.shared.empty()) {
      const std::string shared = in(names_.shared);
      const ValueRef made = gated(input, shared + ".gate_proj", shared + ".up_proj",
                                  shared + ".act_fn", shared, shared + ".down_proj");
      output = recorder_.make("aten::add", mlp, {output, made}, output->sizes);
    }
    return output;
  }

  const ModelSize& size_;
  Names names_;
  Recorder& recorder_;
  std::string layer_;
  ValueRef cos_;
  ValueRef sin_;
};

}  // namespace

Profile transformer_profile(const ModelSize& size) { return chunked_profile(size, 1); }

Profile chunked_profile(const ModelSize& size, int chunks) {
  Profile profile;
  profile.device = "NVIDIA H200";
  profile.link = {55.3e9, 55.5e9, 50.8e9, 50.8e9};
  profile.layers = size.layers * chunks;
  profile.layer_scope = names_of(size.naming).layers;
  for (int i = 0; i < chunks; ++i) {
    ChunkProfile chunk;
    chunk.chunk = i;
    chunk.first_layer = i * size.layers;
    chunk.layers = size.layers;
    Recorder recorder(chunk, size.casting_norms);
    Model model(size, recorder);
    model.positions();
    ValueRef hidden = i == 0 ? model.embedding() : model.received();
    for (int layer = 0; layer < size.layers; ++layer) {
      hidden = model.layer(chunk.first_layer + layer, hidden);
    }
    if (i + 1 == chunks) model.head(hidden);
    recorder.finish();
    profile.chunks.push_back(std::move(chunk));
  }
  return profile;
}

Profile baseline_profile(const std::vector<std::uint64_t>& sizes) {
  Profile profile;
  ChunkProfile& chunk = profile.chunks.emplace_back();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int id = static_cast<int>(i);
    chunk.operators.push_back({"aten::make", "", -1, 1, Bytes(0), {}, {id}, "", id});
    chunk.sites.push_back({id, "float32", {}, {}, 0});
    chunk.values.push_back({.size = Bytes(sizes[i]), .call = id, .buffer = id});
    BufferProfile buffer;
    buffer.id = id;
    buffer.size = Bytes(sizes[i]);
    buffer.position = {"", "aten::use", id};
    buffer.producer = {"aten::make", "", -1, id};
    buffer.saves = {{"aten::use", ""}};
    buffer.value = id;
    buffer.recipe.usable = true;
    chunk.buffers.push_back(buffer);
  }
  return profile;
}

}  // namespace spillway::testing
