/// Everything for programs that train with a session: rules, profiles and plans with their files,
/// the session with its report, scopes, sizes and errors. Link spillway::torch.
///
///   spillway::Session session = spillway::Session::from_file("memory.toml");
///   session.register_model(*model);
///   for (auto& batch : data) {
///     auto step = session.step();
///     model->forward(batch).backward();
///     step.end();  // Throws if verification finds that gradients are wrong.
///     optimizer.step();
///   }
///   std::cout << session.report();
#pragma once

#include "spillway/core/bytes.hpp"            // IWYU pragma: export
#include "spillway/core/error.hpp"            // IWYU pragma: export
#include "spillway/plan/diff.hpp"             // IWYU pragma: export
#include "spillway/plan/explain.hpp"          // IWYU pragma: export
#include "spillway/plan/plan.hpp"             // IWYU pragma: export
#include "spillway/plan/profile.hpp"          // IWYU pragma: export
#include "spillway/plan/rules.hpp"            // IWYU pragma: export
#include "spillway/torch/scope.hpp"           // IWYU pragma: export
#include "spillway/torch/session.hpp"         // IWYU pragma: export
#include "spillway/torch/session_report.hpp"  // IWYU pragma: export
#include "spillway/torch/unmanaged.hpp"       // IWYU pragma: export
#include "spillway/trace/trace.hpp"           // IWYU pragma: export
