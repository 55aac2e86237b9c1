/// The models that budgets are measured on, and what is wanted of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spillway/models/llama.hpp"
#include "util/budget_text.hpp"

namespace spillway::bench {

struct BudgetRow {
  std::string text;  ///< As people write it: "8GiB", "25%".
  app::BudgetText budget;
  std::optional<double> wanted;  ///< Step time over that without Spillway, at most.
};

struct BudgetCase {
  LlamaShape shape;
  std::vector<BudgetRow> rows;
  std::size_t whole_way = 0;  ///< The row that goes the whole way of a user.
};

/// "layers": the model of bench/layers; "long": four of its layers, 65,536 tokens; "moe": dense
/// layers and mixtures of experts in turns.
[[nodiscard]] const std::vector<std::string>& budget_models();

/// `small`: of a size for the CPU, with shares as budgets and nothing wanted.
/// Precondition: `model` is one of budget_models().
[[nodiscard]] BudgetCase budget_case(const std::string& model, at::Device device, bool small);

/// Other budgets than those of the case; what was wanted of the same ones stays.
void choose_budgets(BudgetCase& chosen, const std::vector<std::string>& texts);

}  // namespace spillway::bench
