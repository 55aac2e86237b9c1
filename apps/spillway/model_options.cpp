#include "training.hpp"

namespace spillway::app {

void add_model_options(CLI::App& command, ModelOptions& options) {
  const auto number = [&command](const char* name, auto& value, const char* text) {
    command.add_option(name, value, text)
        ->check(CLI::PositiveNumber)
        ->capture_default_str()
        ->type_name("N")
        ->group("The model");
  };
  number("--layers", options.layers, "Layers");
  number("--hidden", options.hidden, "Width of a layer");
  number("--heads", options.heads, "Attention heads");
  number("--kv-heads", options.kv_heads, "Heads of keys and values (default: as many as heads)");
  number("--ffn", options.ffn, "Width within the MLP");
  number("--tokens", options.tokens, "Tokens of a batch");
  number("--vocabulary", options.vocabulary, "Different tokens");
  command.add_option("--dropout", options.dropout, "Share of values that dropout takes away")
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str()
      ->type_name("P")
      ->group("The model");
  command.add_option("--seed", options.seed, "Of weights, data and dropout")
      ->capture_default_str()
      ->type_name("N")
      ->group("The model");
  command
      .add_option("--dtype", options.dtype,
                  "float32, bfloat16 or float64 (default: bfloat16 on a GPU, float32 on the CPU)")
      ->check(CLI::IsMember({"float32", "bfloat16", "float64"}))
      ->type_name("TYPE")
      ->group("The model");
  command
      .add_option_function<std::string>(
          "--device", [&options](const std::string& text) { options.device = parse_device(text); },
          "host, cuda or cuda:N (default: the first GPU, else host)")
      ->type_name("DEVICE");
}

}  // namespace spillway::app
