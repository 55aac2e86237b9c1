/// The model that the options describe.
#pragma once

#include "spillway/models/llama.hpp"
#include "spillway/torch/session.hpp"
#include "training.hpp"

namespace spillway::app {

/// Errors: InvalidArgument for a device that is not there or a shape that cannot be.
[[nodiscard]] LlamaShape shape_of(const ModelOptions& options);

/// "4 layers of width 256, 4.6 million parameters, float32 on cpu, 512 tokens"
[[nodiscard]] std::string describe(const Llama& model);

/// Options for that model: windows of about a quarter of what one layer saves.
[[nodiscard]] SessionOptions session_options(const LlamaShape& shape);

}  // namespace spillway::app
