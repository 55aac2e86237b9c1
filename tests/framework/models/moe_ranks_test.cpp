/// Experts on several ranks against all of them on one. What one product gives for the rows of
/// several ranks is summed in another order than the same rows on one, so that gradients of weights
/// are compared as real numbers (in double); everything else is too, as shapes of products differ.

#include <array>
#include <deque>
#include <map>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "moe_programs.hpp"
#include "moe_training.hpp"
#include "spillway/comm/exchange.hpp"
#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/random_cases.hpp"
#include "support/ranks.hpp"

namespace spillway {
namespace {

using testing::count_different;
using testing::error_text;
using testing::HostWaits;
using testing::make_moe;
using testing::moe_batches;
using testing::moe_model;
using testing::moe_rules;
using testing::moe_session;
using testing::MoeCase;
using testing::MoeTrained;
using testing::ranks;
using testing::some_rows;
using testing::train_moe;
using testing::weight;

const Group& everyone() {
  static const Group kGroup = ranks().everyone();
  return kGroup;
}

at::Tensor rows_of(int rank) { return some_rows(13, 100 + static_cast<std::uint64_t>(rank)); }
at::Tensor factors_of(int rank) { return some_rows(13, 200 + static_cast<std::uint64_t>(rank)); }

bool close(const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 1e-9, 1e-12); }

/// The rows of all ranks through one rank's model, and the same rows each on its own rank. With
/// `all_to_one` every row goes to expert 1.
void compare(MoeShape shape, bool all_to_one = false) {
  const auto turn = [&](const Moe& moe) {
    if (!all_to_one) return;
    const at::NoGradGuard no_gradients;
    weight(moe, "router").zero_();
    weight(moe, "router").select(0, 1).fill_(1);
  };
  const auto rows = [&](int rank) {
    const at::Tensor x = rows_of(rank);
    return (all_to_one ? x.abs() : x).set_requires_grad(true);
  };
  const auto whole = make_moe(shape);
  turn(*whole);
  shape.group = everyone();
  const auto part = make_moe(shape);
  turn(*part);

  at::Tensor mine;
  for (int rank = 0; rank < ranks().size(); ++rank) {
    const at::Tensor x = rows(rank);
    const at::Tensor out = whole->forward(x);
    (out * factors_of(rank)).sum().backward();
    if (rank == ranks().rank()) mine = at::stack({out.detach(), x.grad()});
  }
  const at::Tensor x = rows(ranks().rank());
  const at::Tensor out = part->forward(x);
  (out * factors_of(ranks().rank())).sum().backward();
  EXPECT_TRUE(close(out, mine[0]));
  EXPECT_TRUE(close(x.grad(), mine[1]));

  const std::int64_t local = shape.experts / ranks().size();
  for (const auto& parameter : part->named_parameters()) {
    const at::Tensor all = weight(*whole, parameter.key());
    at::Tensor found = parameter.value().grad().clone();
    if (parameter.key().starts_with("experts.")) {
      const std::int64_t first = local * ranks().rank();
      EXPECT_TRUE(at::equal(parameter.value(), all.narrow(0, first, local))) << parameter.key();
      EXPECT_TRUE(close(found, all.grad().narrow(0, first, local))) << parameter.key();
    } else {
      everyone().all_reduce(found);
      EXPECT_TRUE(close(found, all.grad())) << parameter.key();
    }
  }
}

TEST(ExpertRanks, GiveWhatOneRankWithAllExpertsGives) {
  for (const double factor : {0.0, 100.0}) {
    for (const int experts : {4, 8}) {
      compare({.experts = experts, .shared_ffn = 6, .capacity_factor = factor});
    }
  }
}

TEST(ExpertRanks, GiveWhatOneRankGivesWithEveryOverlap) {
  for (const MoeOverlap overlap : {MoeOverlap::kNone, MoeOverlap::kHalves}) {
    for (const double factor : {0.0, 0.75}) {
      compare({.experts = 4, .shared_ffn = 6, .capacity_factor = factor, .overlap = overlap});
    }
  }
}

/// Each rank drops by its own tokens, wherever the experts are.
TEST(ExpertRanks, DropWhatOneRankWouldDrop) { compare({.experts = 4, .capacity_factor = 0.75}); }

TEST(ExpertRanks, MayGetNoRowsAtAll) { compare({.experts = 4, .chosen = 1}, /*all_to_one=*/true); }

TEST(ExpertRanks, ReadNothingOnTheHostButTheCounts) {
  for (const MoeOverlap overlap : {MoeOverlap::kShared, MoeOverlap::kHalves}) {
    for (const double factor : {0.0, 1.5}) {
      const auto moe = make_moe(
          {.experts = 4, .capacity_factor = factor, .overlap = overlap, .group = everyone()});
      const at::Tensor x = rows_of(ranks().rank()).set_requires_grad(true);
      const HostWaits host;
      moe->forward(x).sum().backward();
      EXPECT_EQ(host.waits(), 0);
      EXPECT_EQ(host.reads(), factor == 0 ? 1 : 0);
    }
  }
}

/// Records, on this thread while it lives, beside which exchanges products were computed. They are
/// waited for in the order in which they start.
class Exchanges {
 public:
  Exchanges() {
    present() = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin));
  }
  Exchanges(const Exchanges&) = delete;
  Exchanges& operator=(const Exchanges&) = delete;
  ~Exchanges() {
    at::removeCallback(handle_);
    present() = nullptr;
  }

  [[nodiscard]] int all() const noexcept { return all_; }
  [[nodiscard]] int hidden() const noexcept { return hidden_; }

 private:
  static Exchanges*& present() {
    thread_local Exchanges* noted = nullptr;
    return noted;
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    Exchanges& noted = *present();
    if (name == "_c10d_functional::all_to_all_single") noted.under_way_.push_back(false);
    if (name == "aten::mm" || name == "aten::bmm") {
      for (bool& each : noted.under_way_) each = true;
    }
    // The first wait, without an exchange, is for the counts.
    if (name == "_c10d_functional::wait_tensor" && !noted.under_way_.empty()) {
      ++noted.all_;
      if (noted.under_way_.front()) ++noted.hidden_;
      noted.under_way_.pop_front();
    }
    return nullptr;
  }

  at::CallbackHandle handle_ = 0;
  std::deque<bool> under_way_;
  int all_ = 0;
  int hidden_ = 0;
};

/// Hidden exchanges of forward and of forward and backward, and how many there are.
std::array<int, 3> hidden_exchanges(MoeOverlap overlap, std::int64_t shared, double factor) {
  const auto moe = make_moe({.experts = 4,
                             .shared_ffn = shared,
                             .capacity_factor = factor,
                             .overlap = overlap,
                             .group = everyone()});
  const at::Tensor x = rows_of(ranks().rank()).set_requires_grad(true);
  const Exchanges noted;
  const at::Tensor sum = moe->forward(x).sum();
  const int forward = noted.hidden();
  sum.backward();
  return {forward, noted.hidden(), noted.all()};
}

TEST(ExpertRanks, ComputeWhileRowsTravelForwardAndBackward) {
  using Hidden = std::array<int, 3>;
  for (const double factor : {0.0, 100.0}) {
    EXPECT_EQ(hidden_exchanges(MoeOverlap::kNone, 6, factor), (Hidden{0, 0, 4}));
    EXPECT_EQ(hidden_exchanges(MoeOverlap::kShared, 0, factor), (Hidden{0, 0, 4}));
    EXPECT_EQ(hidden_exchanges(MoeOverlap::kShared, 6, factor), (Hidden{2, 4, 4}));
    // The first to leave and the last to come back have nothing beside them.
    EXPECT_EQ(hidden_exchanges(MoeOverlap::kHalves, 0, factor), (Hidden{2, 4, 8}));
    EXPECT_EQ(hidden_exchanges(MoeOverlap::kHalves, 6, factor), (Hidden{4, 8, 8}));
  }
}

Topology topology() { return {ranks().size(), {.expert = ranks().size()}}; }

MoeTrained train(MoeCase of, Session* session) {
  of.experts = everyone();
  PipelineLayer model = moe_model(of);
  return train_moe(model, make_pipeline_groups(ranks(), topology(), model), session,
                   std::vector<std::int64_t>(6, 32));
}

/// In double, so that only the order of sums can differ. With the losses of the routers.
TEST(ExpertRanks, AverageGradientsOverTheTokensOfAllRanks) {
  MoeCase of{.dtype = at::kDouble};
  std::map<std::string, at::Tensor> wanted;
  for (int rank = 0; rank < ranks().size(); ++rank) {
    PipelineLayer whole = moe_model(of);
    PipelineRunner alone(whole, {});
    (void)alone.train(moe_batches(0, rank, 3), nullptr, at::full({}, 1.0 / ranks().size()));
    for (const StageParameter& parameter : whole.stage_parameters()) {
      at::Tensor& sum = wanted[parameter.name];
      sum = sum.defined() ? sum + parameter.value.grad() : parameter.value.grad().clone();
    }
  }
  of.experts = everyone();
  PipelineLayer model = moe_model(of);
  const PipelineGroups groups = make_pipeline_groups(ranks(), topology(), model);
  PipelineRunner runner(model, groups);
  const StepOutcome outcome = runner.train(moe_batches(0, ranks().rank(), 3));
  for (const StageParameter& parameter : model.stage_parameters()) {
    at::Tensor all = wanted.at(parameter.name);
    const ExpertSlice& slice = parameter.experts;
    EXPECT_EQ(slice.any(), parameter.name.find(".experts.") != std::string::npos);
    if (slice.any()) all = all.narrow(0, slice.first, slice.count);
    EXPECT_TRUE(at::allclose(parameter.value.grad(), all, 1e-7, 1e-10)) << parameter.name;
  }
  const at::Tensor losses = runner.mean_extra_losses(outcome);
  EXPECT_GE(losses[0].item<double>(), 2.0);  // Two layers, each at least 1.
  EXPECT_GT(losses[1].item<double>(), 0.0);
}

TEST(ExpertRanks, HaveTheSameBitsWithASessionWhileSizesChange) {
  for (const double factor : {0.0, 1.0}) {
    const MoeCase of{.capacity_factor = factor};
    const MoeTrained wanted = train(of, nullptr);
    for (const auto& [name, rules] : {moe_rules()[0], moe_rules()[2], moe_rules()[4]}) {
      if (factor != 0 && name != "both") continue;
      Session session(moe_session(rules));
      const MoeTrained found = train(of, &session);
      EXPECT_EQ(count_different(found.values, wanted.values), 0) << factor << name;
      EXPECT_TRUE(session.report().fallbacks.empty()) << factor << name;
      if (factor == 0 && name == "offload of what experts save") {
        // From the step after the recording one on: what moves is what came.
        EXPECT_FALSE(found.moved[2] == found.moved[3] && found.moved[3] == found.moved[4] &&
                     found.moved[4] == found.moved[5]);
      }
    }
  }
}

TEST(ExpertRanks, HaveTheSameBitsWithASessionWithEveryOverlap) {
  const MoeTrained shared = train({}, nullptr);
  const MoeTrained none = train({.overlap = MoeOverlap::kNone}, nullptr);
  EXPECT_EQ(count_different(shared.values, none.values), 0);
  for (const double factor : testing::some(std::vector{1.0, 0.0}, 1)) {
    for (const MoeOverlap overlap : {MoeOverlap::kNone, MoeOverlap::kHalves}) {
      const MoeCase of{.capacity_factor = factor, .overlap = overlap};
      const MoeTrained wanted = train(of, nullptr);
      for (const auto& [name, rules] : {moe_rules()[2], moe_rules()[3], moe_rules()[4]}) {
        Session session(moe_session(rules));
        const MoeTrained found = train(of, &session);
        EXPECT_EQ(count_different(found.values, wanted.values), 0) << factor << name;
        EXPECT_TRUE(session.report().fallbacks.empty()) << factor << name;
      }
    }
  }
}

/// The inputs of recomputation: rows from other ranks, offloaded to the host. They are not
/// exchanged again.
TEST(ExpertRanks, OffloadWhatTravelledAndRecomputeTheRest) {
  const std::string repeated = "[limits]\nrecompute_collectives = true\n";
  for (const auto& [overlap, limits] :
       {std::pair(MoeOverlap::kShared, std::string()), std::pair(MoeOverlap::kHalves, repeated)}) {
    const MoeCase of{.overlap = overlap};
    const MoeTrained wanted = train(of, nullptr);
    Session session(
        moe_session("[[rule]]\nproducer = '_c10d_functional::all_to_all_single'\n"
                    "action = 'offload'\n[[rule]]\naction = 'recompute'\n" +
                    limits));
    const MoeTrained found = train(of, &session);
    EXPECT_EQ(count_different(found.values, wanted.values), 0);
    std::uint64_t planned = 0;
    for (const Anchor& anchor : session.plan()->chunks[0].anchors) {
      if (anchor.name != "_c10d_functional::all_to_all_single") continue;
      EXPECT_EQ(anchor.action.kind, ActionKind::kOffload) << anchor.reason;
      if (anchor.bytes >= Bytes(256)) planned += anchor.bytes.count();
    }
    EXPECT_GT(planned, 0U);
    const SessionReport report = session.report();
    // Two micro-batches, and rows change; those whose backward is near may stay.
    EXPECT_GT(report.bytes_out.count(), planned / 2) << report;
    EXPECT_TRUE(report.fallbacks.empty()) << report;
    EXPECT_TRUE(report.demoted.empty()) << report;
  }
}

TEST(ExpertRanks, HaveTheSameBitsWithABudget) {
  for (const MoeOverlap overlap : {MoeOverlap::kShared, MoeOverlap::kHalves}) {
    const MoeCase of{.overlap = overlap};
    const MoeTrained wanted = train(of, nullptr);
    SessionOptions options = moe_session("");
    options.budget = Budget::share(0.8);
    options.plan_in_background = false;
    Session session(std::move(options));
    const MoeTrained found = train(of, &session);
    EXPECT_EQ(count_different(found.values, wanted.values), 0);
    EXPECT_EQ(session.report().budget->problem, "");
  }
}

TEST(RowExchange, SendsRowsAndTheirGradientsBack) {
  const auto size = static_cast<std::int64_t>(ranks().size());
  const std::int64_t here = ranks().rank();
  // Rank r sends (r + m) % 3 rows to m, all of the value 10 r + m.
  const auto count = [](std::int64_t from, std::int64_t to) { return (from + to) % 3; };
  std::vector<std::int64_t> send;
  std::vector<std::int64_t> receive;
  std::vector<at::Tensor> rows;
  std::vector<at::Tensor> wanted;
  for (std::int64_t member = 0; member < size; ++member) {
    send.push_back(count(here, member));
    receive.push_back(count(member, here));
    rows.push_back(at::full({send.back(), 2}, static_cast<double>(10 * here + member)));
    wanted.push_back(at::full({receive.back(), 2}, static_cast<double>(10 * member + here)));
  }
  const at::Tensor x = at::cat(rows).set_requires_grad(true);
  RowExchange exchange = RowExchange::start(everyone(), x, send, receive);
  const at::Tensor found = exchange.wait();
  EXPECT_TRUE(at::equal(found, at::cat(wanted)));
  // What came back from member m was multiplied by m + 1 there.
  (found * static_cast<double>(here + 1)).sum().backward();
  std::vector<at::Tensor> gradients;
  for (std::int64_t member = 0; member < size; ++member) {
    gradients.push_back(
        at::full({send[static_cast<std::size_t>(member)], 2}, static_cast<double>(member + 1)));
  }
  EXPECT_TRUE(at::equal(x.grad(), at::cat(gradients)));
}

TEST(RowExchange, RefusesRowsWithoutAReceiver) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks().size()), 1);
  EXPECT_EQ(error_text<InvalidArgument>([&] {
              (void)RowExchange::start(everyone(), at::zeros({100, 2}), counts, counts);
            }),
            "[exchange] group " + everyone().name() + ": " + std::to_string(ranks().size()) +
                " rows are to be sent, 100 are there; give every row to a member");
}

}  // namespace
}  // namespace spillway
