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

/// A tensor on its way through the forward pass.
struct Value {
  Producer producer;
  std::vector<std::int64_t> sizes;
  int buffer = -1;  // Once saved.
};
using ValueRef = std::shared_ptr<Value>;

/// Runs a forward pass on paper.
class Recorder {
 public:
  explicit Recorder(ChunkProfile& chunk) : chunk_(chunk) {}

  void enter_layer(int layer) { layer_ = layer; }

  [[nodiscard]] ValueRef make(const std::string& op, const std::string& scope,
                              std::vector<std::int64_t> sizes) {
    const std::int64_t elements =
        std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
    chunk_.operators.push_back({op, scope, layer_, 1000 + elements / 1000, Bytes(0)});
    chunk_.forward_ns += chunk_.operators.back().device_ns;
    const int call = static_cast<int>(chunk_.operators.size()) - 1;
    return std::make_shared<Value>(Value{{op, scope, layer_, call}, std::move(sizes), -1});
  }

  /// A second output of the last call.
  [[nodiscard]] ValueRef also(std::vector<std::int64_t> sizes) {
    const OperatorProfile& last = chunk_.operators.back();
    const int call = static_cast<int>(chunk_.operators.size()) - 1;
    return std::make_shared<Value>(
        Value{{last.name, last.scope, layer_, call}, std::move(sizes), -1});
  }

  void save(const ValueRef& value, const std::string& op, const std::string& scope) {
    if (value->buffer < 0) value->buffer = add_buffer(*value, op, scope, FixedReason::kNone);
    BufferProfile& buffer = chunk_.buffers[static_cast<std::size_t>(value->buffer)];
    if (buffer.saves.back() != Save{op, scope}) buffer.saves.push_back({op, scope});
    add_site(value->buffer, value->sizes);
    order_.push_back(value->buffer);
  }

  [[nodiscard]] ValueRef linear(const ValueRef& input, const std::string& scope,
                                std::int64_t width) {
    ValueRef output = make("aten::mm", scope, {input->sizes[0], width});
    save(input, "aten::mm", scope);
    const Value weight{{}, {input->sizes[1], width}, -1};
    const int id = add_buffer(weight, "aten::mm", scope, FixedReason::kParameter);
    add_site(id, weight.sizes);
    order_.push_back(id);
    return output;
  }

  [[nodiscard]] ValueRef norm(const ValueRef& input, const std::string& scope) {
    ValueRef output = make("aten::_fused_rms_norm", scope, input->sizes);
    const ValueRef scale = also({input->sizes[0], 1});
    save(input, "aten::_fused_rms_norm", scope);
    save(scale, "aten::_fused_rms_norm", scope);
    return output;
  }

  void finish() {
    std::reverse(order_.begin(), order_.end());
    for (const int id : order_) {
      BufferProfile& buffer = chunk_.buffers[static_cast<std::size_t>(id)];
      const int place = static_cast<int>(chunk_.unpack_order.size());
      if (buffer.first_unpack < 0) buffer.first_unpack = place;
      buffer.last_unpack = place;
      chunk_.unpack_order.push_back(id);
    }
    for (BufferProfile& buffer : chunk_.buffers) {
      buffer.release_order = static_cast<int>(chunk_.buffers.size()) - 1 - buffer.id;
      if (buffer.fixed == FixedReason::kNone) chunk_.theoretical_peak += buffer.size;
    }
    chunk_.measured_peak = chunk_.theoretical_peak;
    chunk_.backward_ns = 2 * chunk_.forward_ns;
  }

 private:
  int add_buffer(const Value& value, const std::string& op, const std::string& scope,
                 FixedReason fixed) {
    BufferProfile buffer;
    buffer.id = static_cast<int>(chunk_.buffers.size());
    std::uint64_t bytes = kElement;
    for (const std::int64_t size : value.sizes) bytes *= static_cast<std::uint64_t>(size);
    buffer.size = Bytes(bytes);
    buffer.position = {scope, op, ordinals_[{scope, op}]++};
    buffer.layer = layer_;
    buffer.producer = value.producer;
    buffer.saves = {{op, scope}};
    buffer.fixed = fixed == FixedReason::kNone && bytes < kSmall ? FixedReason::kSmall : fixed;
    buffer.recipe.reason = "not recorded";
    chunk_.buffers.push_back(buffer);
    return buffer.id;
  }

  void add_site(int buffer, const std::vector<std::int64_t>& sizes) {
    chunk_.sites.push_back({buffer, "bfloat16", sizes, {sizes.back(), 1}, 0});
  }

  ChunkProfile& chunk_;
  int layer_ = -1;
  std::vector<int> order_;
  std::map<std::pair<std::string, std::string>, int> ordinals_;
};

class Model {
 public:
  Model(const ModelSize& size, Recorder& recorder)
      : size_(size), names_(names_of(size.naming)), recorder_(recorder) {}

  [[nodiscard]] ValueRef embedding() {
    return recorder_.make("aten::embedding", "embedding", {size_.tokens, size_.hidden});
  }

  [[nodiscard]] ValueRef layer(int number, const ValueRef& input) {
    recorder_.enter_layer(number);
    layer_ = names_.layers + "." + std::to_string(number);
    const ValueRef middle = add(input, attention(recorder_.norm(input, in(names_.attn_norm))));
    const ValueRef normed = recorder_.norm(middle, in(names_.mlp_norm));
    const bool dense = !names_.fc1.empty() && size_.naming != Naming::kOwnExperts;
    ValueRef output = add(middle, dense ? mlp(normed) : experts(normed));
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

  [[nodiscard]] ValueRef add(const ValueRef& a, const ValueRef& /*b*/) {
    return recorder_.make("aten::add", layer_, a->sizes);
  }

  [[nodiscard]] ValueRef attention(const ValueRef& input) {
    std::vector<ValueRef> qkv;
    for (const std::int64_t width : {size_.hidden, size_.key_value, size_.key_value}) {
      const std::string& name = names_.qkv[std::min(qkv.size(), names_.qkv.size() - 1)];
      qkv.push_back(recorder_.linear(input, in(name), width));
    }
    const std::string op = "aten::_scaled_dot_product_flash_attention";
    const ValueRef output = recorder_.make(op, in(names_.core), input->sizes);
    const ValueRef log_sum = recorder_.also({size_.tokens, 32});
    for (const ValueRef& each : qkv) recorder_.save(each, op, in(names_.core));
    recorder_.save(output, op, in(names_.core));
    recorder_.save(log_sum, op, in(names_.core));
    return recorder_.linear(output, in(names_.proj), size_.hidden);
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
    const ValueRef active = recorder_.make("aten::silu", act_scope, gate->sizes);
    recorder_.save(gate, "aten::silu", act_scope);
    const ValueRef product = recorder_.make("aten::mul", product_scope, gate->sizes);
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
      const ValueRef sent = recorder_.make("aten::index", mlp, input->sizes);
      output = gated(sent, experts + "fc1", experts + "fc1", experts + "act", experts + "act",
                     experts + "fc2");
    } else {
      const bool mixtral = size_.naming == Naming::kMixtral;
      for (int i = 0; i < size_.experts; ++i) {
        const std::string expert = mlp + ".experts." + std::to_string(i);
        const ValueRef sent = recorder_.make("aten::index", mlp, input->sizes);
        output = gated(sent, expert + (mixtral ? ".w1" : ".gate_proj"),
                       expert + (mixtral ? ".w3" : ".up_proj"), expert + ".act_fn", expert,
                       expert + (mixtral ? ".w2" : ".down_proj"));
      }
    }
    if (!names_.shared.empty()) {
      const std::string shared = in(names_.shared);
      output = gated(input, shared + ".gate_proj", shared + ".up_proj", shared + ".act_fn", shared,
                     shared + ".down_proj");
    }
    return output;
  }

  const ModelSize& size_;
  Names names_;
  Recorder& recorder_;
  std::string layer_;
};

std::string random_text(std::mt19937_64& random) {
  static const std::vector<std::string> kPieces = {"layers.", "3",  ".mlp", "aten::mm", "",
                                                   " ",       "\"", "\\",   "\n",       "\t",
                                                   "\x01",    "ü",  "层",   "*",        "a"};
  std::string text;
  for (std::uint64_t i = random() % 6; i > 0; --i) text += kPieces[random() % kPieces.size()];
  return text;
}

int below(std::mt19937_64& random, std::size_t count) {
  return static_cast<int>(random() % std::max<std::size_t>(count, 1));
}

/// `low` to a large number, small ones often.
std::int64_t random_number(std::mt19937_64& random, std::int64_t low) {
  const auto number = static_cast<std::int64_t>(random() >> (1 + random() % 63));
  return std::max(low, random() % 4 == 0 ? low : number);
}

std::vector<int> random_indices(std::mt19937_64& random, std::size_t count) {
  std::vector<int> indices;
  if (count == 0) return indices;
  for (std::uint64_t i = random() % 4; i > 0; --i) indices.push_back(below(random, count));
  return indices;
}

BufferProfile random_buffer(std::mt19937_64& random, int id, std::size_t buffers,
                            std::size_t operators, std::size_t unpacks) {
  BufferProfile buffer;
  buffer.id = id;
  buffer.size = Bytes(random() >> (random() % 64));
  buffer.position = {random_text(random), random_text(random), below(random, 9)};
  buffer.layer = below(random, 5) - 1;
  buffer.producer = {random_text(random), random_text(random), below(random, 5) - 1, -1};
  if (operators > 0 && random() % 2 == 0) buffer.producer.call = below(random, operators);
  buffer.saves = {{buffer.position.saver, buffer.position.scope}};
  if (random() % 2 == 0) buffer.saves.push_back({random_text(random), random_text(random)});
  buffer.fixed = static_cast<FixedReason>(random() % 7);
  buffer.release_order = below(random, 9) - 1;
  if (unpacks > 0 && random() % 2 == 0) buffer.first_unpack = below(random, unpacks);
  if (unpacks > 0 && random() % 2 == 0) buffer.last_unpack = below(random, unpacks);
  buffer.recipe = {random() % 2 == 0, random_text(random), random_indices(random, operators),
                   random_indices(random, buffers)};
  return buffer;
}

ChunkProfile random_chunk(std::mt19937_64& random, int number) {
  ChunkProfile chunk;
  chunk.chunk = number;
  chunk.first_layer = below(random, 9);
  chunk.layers = below(random, 9);
  for (std::uint64_t i = random() % 5; i > 0; --i) {
    chunk.operators.push_back({random_text(random), random_text(random), below(random, 5) - 1,
                               random_number(random, 0), Bytes(random())});
  }
  const std::size_t buffers = random() % 6;
  if (buffers > 0) {
    for (std::uint64_t i = random() % 9; i > 0; --i) {
      chunk.unpack_order.push_back(below(random, buffers));
    }
  }
  for (std::size_t i = 0; i < buffers; ++i) {
    chunk.buffers.push_back(random_buffer(random, static_cast<int>(i), buffers,
                                          chunk.operators.size(), chunk.unpack_order.size()));
    SiteProfile site{static_cast<int>(i), random_text(random), {}, {}, random_number(random, 0)};
    for (std::uint64_t d = random() % 4; d > 0; --d) {
      site.sizes.push_back(random_number(random, 0));
      site.strides.push_back(random_number(random, -5));
    }
    chunk.sites.push_back(std::move(site));
  }
  chunk.forward_ns = random_number(random, 0);
  chunk.backward_ns = random_number(random, 0);
  chunk.theoretical_peak = Bytes(random());
  chunk.measured_peak = Bytes(random());
  return chunk;
}

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
    Recorder recorder(chunk);
    Model model(size, recorder);
    ValueRef hidden = model.embedding();
    for (int layer = 0; layer < size.layers; ++layer) {
      hidden = model.layer(chunk.first_layer + layer, hidden);
    }
    if (i + 1 == chunks) model.head(hidden);
    recorder.finish();
    profile.chunks.push_back(std::move(chunk));
  }
  return profile;
}

Profile random_profile(std::mt19937_64& random) {
  std::uniform_real_distribution<double> speed(0, 1e12);
  Profile profile;
  profile.device = random_text(random);
  profile.link = {speed(random), 0, 1.0 / 3, 1e-300 * speed(random)};
  profile.layers = below(random, 99);
  profile.layer_scope = random_text(random);
  profile.pipeline_rank = below(random, 9);
  const int chunks = below(random, 4);
  for (int i = 0; i < chunks; ++i) profile.chunks.push_back(random_chunk(random, i));
  return profile;
}

Profile plain_profile(const std::vector<std::uint64_t>& sizes) {
  Profile profile;
  ChunkProfile& chunk = profile.chunks.emplace_back();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int id = static_cast<int>(i);
    chunk.operators.push_back({"aten::make", "", -1, 1, Bytes(0)});
    BufferProfile buffer;
    buffer.id = id;
    buffer.size = Bytes(sizes[i]);
    buffer.position = {"", "aten::use", id};
    buffer.producer = {"aten::make", "", -1, id};
    buffer.saves = {{"aten::use", ""}};
    chunk.buffers.push_back(buffer);
  }
  return profile;
}

}  // namespace spillway::testing
