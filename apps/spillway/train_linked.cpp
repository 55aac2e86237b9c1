#include <algorithm>
#include <filesystem>
#include <iostream>

#include "common/budget_text.hpp"
#include "common/files.hpp"
#include "common/progress.hpp"
#include "common/text_table.hpp"
#include "spillway/memory/host_system.hpp"
#include "train_figures.hpp"
#include "training.hpp"
#include "training_shape.hpp"

namespace spillway::app {
namespace {

constexpr const char* kDefaultRules = R"([[rule]]
name = "the last layer is wanted at once"
layers = -1
action = "keep"

[[rule]]
name = "everything else"
action = "offload"
)";

Budget budget_of(const std::string& text) {
  if (text == "auto") return Budget::automatic();
  const BudgetText budget = parse_budget(text);
  if (const auto* bytes = std::get_if<Bytes>(&budget)) return *bytes;
  return Budget::share(std::get<Share>(budget).value);
}

SessionOptions options_of(const TrainOptions& options, const LlamaShape& shape) {
  SessionOptions session = session_options(shape);
  if (!options.budget.empty()) {
    session.budget = budget_of(options.budget);
    session.plan_in_background = false;  // So that few steps are enough to see what it does.
  }
  if (!options.plan.empty()) session.plan = load_plan(options.plan);
  if (!options.rules.empty()) {
    session.rules = load_rules(options.rules);
  } else if (options.plan.empty() && options.budget.empty()) {
    session.rules = parse_rules(kDefaultRules, "spillway train's own rules");
  }
  return session;
}

/// How many of the last steps' gradients there is room for, in a quarter of the free host memory
/// for both runs.
int steps_to_keep(const Llama& model, int steps) {
  std::uint64_t bytes = 1;
  for (const at::Tensor& parameter : model.parameters()) bytes += parameter.nbytes();
  const std::uint64_t room = available_host_memory().count() / 4 / (2 * bytes);
  return static_cast<int>(std::clamp<std::uint64_t>(room, 1, static_cast<std::uint64_t>(steps)));
}

/// What to do besides training.
struct Care {
  int kept = 0;          // The gradients of so many of the last steps are kept.
  int verify_every = 0;  // Steps; 0: never.
  bool trace = false;    // The last step is traced.
};

struct Trained {
  TrainingRun run;
  int settled = 0;  // After so many steps the plan was the one that it stayed.
};

Trained train(Trainer& trainer, Session* session, int steps, const Care& care) {
  Progress progress(std::cerr, errors_go_to_a_terminal(),
                    session == nullptr ? "without Spillway" : "with Spillway   ", steps);
  Trained trained;
  TrainingRun& run = trained.run;
  std::shared_ptr<const Plan> plan;
  for (int i = 0; i < steps; ++i) {
    const bool verify = care.verify_every > 0 && (i + 1) % care.verify_every == 0;
    if (session != nullptr && verify) session->verify_next_step();
    if (session != nullptr && care.trace && i + 1 == steps) session->trace_next_step();
    run.steps.push_back(trainer.step(session));
    if (session != nullptr && session->plan() != plan) {
      plan = session->plan();
      trained.settled = i + 1;
    }
    const bool keep = i >= steps - care.kept;
    run.gradients.push_back(keep ? trainer.gradients() : std::vector<at::Tensor>());
    const TrainingStep& step = run.steps.back();
    progress.update(i + 1, "loss " + fixed(step.loss.item<double>(), 4) + ", " +
                               fixed(step.milliseconds, 1) + " ms");
  }
  return trained;
}

void write_all(const std::string& folder, const TrainFigures& figures, const Session& session) {
  const std::filesystem::path path(folder);
  write_file(path / "train.json", to_json(figures).dump(2) + "\n");
  write_file(path / "report.txt", to_text(figures) + "\n" + figures.report.to_text());
  write_file(path / "report.json", figures.report.to_json() + "\n");
  if (session.plan() != nullptr) save_plan(*session.plan(), path / "plan.json");
  if (session.profile() != nullptr) save_profile(*session.profile(), path / "profile.json");
  std::cout << "written to " << folder << ": train.json, report.txt, report.json"
            << (session.plan() != nullptr ? ", plan.json" : "")
            << (session.profile() != nullptr ? ", profile.json" : "") << "\n";
}

void write_trace(const std::string& file, const Session& session) {
  const Trace trace = session.trace();
  write_file(file, to_chrome_json(trace));
  std::cout << file << " is written, with the last step as "
            << (trace.processes.size() > 1 ? "predicted and as measured" : "measured")
            << "; open it at https://ui.perfetto.dev\n";
}

}  // namespace

int run_train(const TrainOptions& options) {
  const LlamaShape shape = shape_of(options.model);
  // Before anything trains: files that are wrong are said at once.
  Session session(options_of(options, shape));
  std::optional<DeterministicAlgorithms> deterministic;
  if (options.compare) deterministic.emplace();
  TrainFigures figures;
  Care care{0, options.verify_every, !options.trace.empty()};
  if (options.compare) {
    Trainer trainer(shape);
    care.kept = steps_to_keep(trainer.model(), options.steps);
    figures.without = train(trainer, nullptr, options.steps, care).run;
  }
  Trainer trainer(shape);
  session.register_model(trainer.model());
  figures.model = describe(trainer.model());
  Trained trained = train(trainer, &session, options.steps, care);
  figures.with = std::move(trained.run);
  // The first step under a new plan also proves what it recomputes.
  figures.warm_up = std::max(figures.warm_up, static_cast<std::size_t>(trained.settled) + 1);
  figures.plan = session.plan();
  figures.report = session.report();
  if (figures.without) {
    figures.comparison = compare(*figures.without, figures.with, trainer.model().parameter_names());
  }
  std::cout << figures.model << "\n" << to_text(figures);
  if (!options.out.empty()) write_all(options.out, figures, session);
  if (!options.trace.empty()) write_trace(options.trace, session);
  return figures.comparison && !figures.comparison->equal() ? 1 : 0;
}

}  // namespace spillway::app
