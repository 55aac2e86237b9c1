#include "torch/graph/recipe_book.hpp"

#include <functional>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/op_registration/op_registration.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "torch/support/book_recorder.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using testing::BookRecorder;
using testing::count_different;

/// Recomputed it has the same bits in other memory.
void expect_again(BookRecorder& recorder, const at::Tensor& tensor) {
  const at::Tensor again = recorder.recompute(tensor);
  EXPECT_EQ(count_different({tensor}, {again}), 0) << tensor << again;
  EXPECT_NE(again.storage().data(), tensor.storage().data());
}

/// Operators of a library that test programs call by the dispatcher.
at::Tensor call_operator(const char* name, const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

class RecipeBookTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(1); }

  BookRecorder recorder_;
};

TEST_F(RecipeBookTest, GivesAResultToTheDeepestCallThatAutogradSees) {
  const at::Tensor x = at::randn({4, 8});
  const at::Tensor weight = at::randn({3, 8});
  const at::Tensor bias = at::randn({3});
  const at::Tensor y = recorder_.follow([&] { return at::linear(x, weight, bias); });
  EXPECT_EQ(recorder_.maker_of(y), "aten::addmm");
  expect_again(recorder_, y);
}

TEST_F(RecipeBookTest, KnowsWhatCameFromOutside) {
  const at::Tensor x = at::randn({4});
  (void)recorder_.follow([&] { return x * 2; });
  EXPECT_EQ(recorder_.maker_of(x), "");
  EXPECT_FALSE(recorder_.book().value(recorder_.value_of(x)).fixed);
}

TEST_F(RecipeBookTest, DistinguishesVersionsOfAStorage) {
  const at::Tensor x = at::randn({4});
  ValueId first = -1;
  at::Tensor before;
  const at::Tensor y = recorder_.follow([&] {
    at::Tensor made = x * 2;
    first = recorder_.value_of(made);
    before = made.clone();
    made.add_(1).mul_(3);
    return made;
  });
  EXPECT_NE(recorder_.value_of(y), first);
  EXPECT_EQ(recorder_.maker_of(first), "aten::mul");
  EXPECT_EQ(recorder_.maker_of(y), "aten::mul_");
  expect_again(recorder_, y);
  EXPECT_EQ(count_different({before}, {recorder_.recompute(first, TensorWindow(y))}), 0);
}

TEST_F(RecipeBookTest, FollowsAChangeThroughAView) {
  const at::Tensor y = recorder_.follow([&] {
    at::Tensor made = at::ones({4, 4});
    made.select(0, 1).fill_(5);
    made.slice(1, 1, 3).mul_(2);
    return made;
  });
  expect_again(recorder_, y);
}

/// While an operator runs, its future result is saved, as autograd does.
std::function<void(const at::Tensor&)> save_early;

TEST_F(RecipeBookTest, FindsTheMakerOfWhatWasSavedBeforeItsCallEnded) {
  static const auto kRegistration = c10::RegisterOperators().op(
      "spillway_test::early(Tensor x) -> Tensor", [](const at::Tensor& x) {
        at::Tensor y;
        {
          const at::AutoDispatchBelowAutograd below;
          y = x * 2;
        }
        if (save_early) save_early(y);
        return y;
      });
  ValueId saved = -1;
  std::string maker = "unknown";
  save_early = [&](const at::Tensor& y) {
    saved = recorder_.value_of(y);
    maker = recorder_.maker_of(saved);
  };
  const at::Tensor x = at::randn({4});
  const at::Tensor y = recorder_.follow([&] { return call_operator("spillway_test::early", x); });
  save_early = nullptr;
  EXPECT_EQ(maker, "");
  EXPECT_EQ(recorder_.value_of(y), saved);
  EXPECT_EQ(recorder_.maker_of(saved), "spillway_test::early");
  expect_again(recorder_, y);
}

TEST_F(RecipeBookTest, DoesNotTreatAViewAsAValue) {
  const at::Tensor x = at::randn({4, 6});
  at::Tensor y;
  const at::Tensor view = recorder_.follow([&] {
    y = x * 2;
    return y.view({2, 2, 6}).transpose(0, 2).select(0, 3).unsqueeze(0);
  });
  EXPECT_EQ(recorder_.value_of(view), recorder_.value_of(y));
  EXPECT_EQ(recorder_.maker_of(view), "aten::mul");
  EXPECT_EQ(count_different({view}, {recorder_.recompute(view)}), 0);
}

TEST_F(RecipeBookTest, GivesAResultToTheEnclosingCallIfTheInnerOneFilledUnknownMemory) {
  static const auto kRegistration = c10::RegisterOperators().op(
      "spillway_test::fills(Tensor x) -> Tensor", [](const at::Tensor& x) {
        at::Tensor y;
        {
          const at::AutoDispatchBelowAutograd below;
          y = at::empty_like(x);
        }
        return y.copy_(x).mul_(2);
      });
  const at::Tensor x = at::randn({4});
  const at::Tensor y = recorder_.follow([&] { return call_operator("spillway_test::fills", x); });
  EXPECT_EQ(recorder_.maker_of(y), "spillway_test::fills");
  expect_again(recorder_, y);
  int makers = 0;
  for (CallId id = 0; id < recorder_.book().calls(); ++id) {
    for (const Made& made : recorder_.book().call(id).makes) {
      makers += made.value == recorder_.value_of(y) ? 1 : 0;
    }
  }
  EXPECT_EQ(makers, 1);
}

TEST_F(RecipeBookTest, DoesNotRepeatAChangeOfWhatCameFromOutside) {
  const at::Tensor x = at::randn({4});
  recorder_.follow([&] { return x.add_(1); });
  const Call& maker = recorder_.book().call(recorder_.book().value(recorder_.value_of(x)).maker);
  EXPECT_EQ(maker.no_replay, "an in-place change of something that came from outside");
  EXPECT_EQ(find_recipe(recorder_.book(), recorder_.value_of(x)).problem,
            "an in-place change of something that came from outside (aten::add_)");
}

TEST_F(RecipeBookTest, StartsFromWhatCannotBeRepeatedIfItIsThere) {
  const at::Tensor x = at::randn({4});
  const at::Tensor y = recorder_.follow([&] { return x.add_(1).sin().cos(); });
  const Recipe recipe = find_recipe(recorder_.book(), recorder_.value_of(y));
  EXPECT_EQ(recipe.problem, "");
  EXPECT_THAT(recipe.roots, ::testing::ElementsAre(recorder_.value_of(x)));
}

TEST_F(RecipeBookTest, DoesNotRepeatAChangeOfAParameter) {
  const at::Tensor made = recorder_.follow([&] { return at::ones({4}); });
  recorder_.fix(made);
  BookRecorder other;
  other.fix(made);
  other.follow([&] { return made.mul_(2); });
  EXPECT_EQ(find_recipe(other.book(), other.value_of(made)).problem,
            "an in-place change of something that came from outside (aten::mul_)");
}

TEST_F(RecipeBookTest, RejectsMemoryThatNoOperatorWrote) {
  const at::Tensor y = recorder_.follow([] { return at::empty({4}); });
  EXPECT_EQ(find_recipe(recorder_.book(), recorder_.value_of(y)).problem,
            "it was not written by an operator (aten::empty)");
}

TEST_F(RecipeBookTest, RejectsArgumentsThatAreNotOrdinaryTensors) {
  const at::Tensor sparse = at::eye(4).to_sparse();
  const at::Tensor y = recorder_.follow([&] { return at::mm(sparse, at::ones({4, 4})); });
  const Recipe recipe = find_recipe(recorder_.book(), recorder_.value_of(y));
  EXPECT_THAT(recipe.problem,
              ::testing::HasSubstr("an argument that is not an ordinary dense tensor"));
}

TEST_F(RecipeBookTest, ReportsAnInputThatIsGone) {
  const at::Tensor y = recorder_.follow([] {
    const at::Tensor x = at::randn({4});
    return at::mul(x, x);
  });
  EXPECT_TRUE(find_recipe(recorder_.book(), recorder_.value_of(y)));
  BookRecorder other;
  at::Tensor z;
  {
    const at::Tensor x = at::randn({4});
    z = other.follow([&] { return x * 2; });
  }
  EXPECT_EQ(find_recipe(other.book(), other.value_of(z)).problem,
            "an input of its recipe is gone or was changed");
}

TEST_F(RecipeBookTest, ReportsAnInputThatWasChanged) {
  const at::Tensor x = at::randn({4});
  const at::Tensor y = recorder_.follow([&] { return x * 2; });
  x.add_(1);
  EXPECT_EQ(find_recipe(recorder_.book(), recorder_.value_of(y)).problem,
            "an input of its recipe is gone or was changed");
}

TEST_F(RecipeBookTest, HoldsNoTensor) {
  at::Tensor x = at::randn({4});
  at::Tensor y = recorder_.follow([&] { return at::cat({x * 2, x}); });
  const StoragePin of_x(x.storage().unsafeGetStorageImpl());
  const StoragePin of_y(y.storage().unsafeGetStorageImpl());
  x.reset();
  y.reset();
  EXPECT_FALSE(of_x.lock());
  EXPECT_FALSE(of_y.lock());
}

/// Programs whose result is recomputed from x, which is [6, 4].
struct Program {
  const char* name;
  std::function<at::Tensor(const at::Tensor& x)> run;
};

class Arguments : public ::testing::TestWithParam<Program> {};

TEST_P(Arguments, AreRememberedForAReplay) {
  at::manual_seed(1);
  BookRecorder recorder;
  const at::Tensor x = at::randn({6, 4});
  const at::Tensor y = recorder.follow([&] { return GetParam().run(x); });
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  expect_again(recorder, y);
  EXPECT_TRUE(at::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
}

const Program kPrograms[] = {
    {"a_list_of_tensors",
     [](const at::Tensor& x) {
       return at::cat({x, x * 2, x}, 1);
     }},
    {"a_list_made_on_the_way",
     [](const at::Tensor& x) {
       return at::stack({x.sin(), x.t().contiguous().t(), x}, 2);
     }},
    {"optional_tensors_in_a_list",
     [](const at::Tensor& x) {
       const c10::List<std::optional<at::Tensor>> indices(
           {std::optional<at::Tensor>(), at::arange(2) + 1});
       return at::index(x, indices);
     }},
    {"index_put",
     [](const at::Tensor& x) {
       at::Tensor y = x * 2;
       c10::List<std::optional<at::Tensor>> indices;
       indices.push_back(std::optional<at::Tensor>());
       indices.push_back(at::arange(2));
       return y.index_put_(indices, at::ones({6, 2}), true);
     }},
    {"lists_that_are_changed",
     [](const at::Tensor& x) {
       std::vector<at::Tensor> list{x * 2, x * 3};
       at::_foreach_add_(list, 1);
       at::_foreach_mul_(list, {x, x.sin()});
       return list[1] + list[0];
     }},
    {"itself",
     [](const at::Tensor& x) {
       at::Tensor y = x * 2;
       return y.mul_(y).slice(0, 0, 3).copy_(y.slice(0, 3, 6));
     }},
    {"einsum",
     [](const at::Tensor& x) {
       return at::einsum("ij,kj->ik", {x, x + 1});
     }},
    {"a_list_of_results", [](const at::Tensor& x) { return at::unbind(x * 3)[2].sin(); }},
    {"results_of_their_own", [](const at::Tensor& x) { return at::split_copy(x, 2)[1]; }},
    {"several_results", [](const at::Tensor& x) { return std::get<1>(at::topk(x, 2)); }},
    {"a_number", [](const at::Tensor& x) { return x.to(at::kHalf) * 2.5 + 1; }},
    {"a_number_of_another_kind",
     [](const at::Tensor& x) { return at::add(x.to(at::kInt), 3.5).div(2, "floor"); }},
    {"nothing_where_a_tensor_may_be",
     [](const at::Tensor& x) { return at::layer_norm(x, {4}, {}, {}, 1e-5); }},
    {"nothing_for_one_of_two",
     [](const at::Tensor& x) { return at::clamp(x, at::zeros({4}), std::nullopt); }},
    {"dtype_and_device",
     [](const at::Tensor& x) {
       const auto options = at::TensorOptions(at::kCPU).dtype(at::kDouble).layout(at::kStrided);
       return at::full({6, 4}, 1.5, options) + at::arange(4, options) + x;
     }},
    {"a_dtype_alone", [](const at::Tensor& x) { return x.to(at::kBFloat16); }},
    {"a_memory_format",
     [](const at::Tensor& x) {
       return x.view({1, 6, 2, 2}).clone(at::MemoryFormat::ChannelsLast) * 2;
     }},
    {"text", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
    {"random_numbers",
     [](const at::Tensor& x) {
       return x * at::rand({6, 4});
     }},
    {"dropout", [](const at::Tensor& x) { return at::dropout(x, 0.5, true); }},
    {"random_in_place", [](const at::Tensor& x) { return at::empty_like(x).uniform_().mul_(x); }},
    {"a_generator",
     [](const at::Tensor& x) {
       auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
       const at::Tensor first = at::rand({6, 4}, generator);
       return at::bernoulli(first, generator) + x + at::rand({6, 4}, generator);
     }},
    {"memory_of_a_shape", [](const at::Tensor& x) { return at::empty_like(x).copy_(x); }},
    {"a_complex_number", [](const at::Tensor& x) { return x.to(at::kComplexFloat) * 2; }},
    {"out",
     [](const at::Tensor& x) {
       at::Tensor out = at::empty({6, 4});
       at::add_out(out, x, x * 2);
       return out;
     }},
    {"windows_that_overlap",
     [](const at::Tensor& x) {
       return (x * 2).unfold(0, 3, 1).expand({4, 4, 3}).exp();
     }},
};

INSTANTIATE_TEST_SUITE_P(RecipeBook, Arguments, ::testing::ValuesIn(kPrograms),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_F(RecipeBookTest, RestoresTheStateOfAGivenGenerator) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const at::Tensor y = recorder_.follow([&] { return at::rand({6}, generator); });
  const at::Tensor state = generator.get_state();
  expect_again(recorder_, y);
  EXPECT_TRUE(at::equal(state, generator.get_state()));
}

/// The signature of what a program made, in a new book.
template <typename Program>
Signature signature_of(const std::vector<at::Tensor>& parameters, Program&& program) {
  BookRecorder recorder;
  for (const at::Tensor& parameter : parameters) recorder.fix(parameter);
  const at::Tensor made = recorder.follow(program);
  return recorder.book().value(recorder.value_of(made)).signature;
}

class Signatures : public ::testing::Test {
 protected:
  at::Tensor x_ = at::randn({4, 8});
  at::Tensor a_ = at::randn({8, 8});
  at::Tensor b_ = at::randn({8, 8});

  template <typename Program>
  [[nodiscard]] Signature of(Program&& program) const {
    return signature_of({a_, b_}, program);
  }
};

TEST_F(Signatures, AreTheSameWhateverSizesAndNumbersAre) {
  const at::Tensor larger = at::randn({6, 8});
  EXPECT_EQ(of([&] { return (x_.mm(a_) * 2).slice(0, 0, 2).exp(); }),
            of([&] { return (larger.mm(a_) * 3.5).slice(0, 1, 5).exp(); }));
}

TEST_F(Signatures, DifferByOperatorAndParameterAndType) {
  const Signature wanted = of([&] { return x_.mm(a_).exp(); });
  EXPECT_NE(wanted, 0U);
  EXPECT_NE(wanted, of([&] { return x_.mm(b_).exp(); }));
  EXPECT_NE(wanted, of([&] { return x_.mm(a_).sin(); }));
  EXPECT_NE(wanted, of([&] { return x_.mm(a_).exp().exp(); }));
  EXPECT_NE(wanted, of([&] { return x_.to(at::kDouble).mm(a_.to(at::kDouble)).exp(); }));
}

TEST_F(Signatures, OfAResidualAreThoseOfWhatWasAddedLast) {
  const auto layer = [](const at::Tensor& x, const at::Tensor& weight) {
    return x + at::dropout(x.mm(weight), 0.5, true);
  };
  EXPECT_EQ(of([&] { return layer(layer(x_.mm(a_), a_), b_); }),
            of([&] { return layer(x_.mm(a_), b_); }));
  EXPECT_NE(of([&] { return layer(x_.mm(a_), a_); }), of([&] { return layer(x_.mm(a_), b_); }));
}

TEST_F(Signatures, AreTheSameWhetherATableIsMadeOrWasMadeBefore) {
  const at::Tensor table = at::arange(8).cos();
  EXPECT_EQ(of([&] { return x_.mm(a_) * table; }), of([&] {
              const at::Tensor y = x_.mm(a_);
              return y * at::arange(8).cos();
            }));
}

TEST_F(Signatures, OfACastWeightAreStillThatWeights) {
  const auto program = [&](const at::Tensor& weight) {
    return x_.to(at::kBFloat16).mm(weight.to(at::kBFloat16)).exp();
  };
  EXPECT_EQ(of([&] { return program(a_); }), of([&] { return program(a_); }));
  EXPECT_NE(of([&] { return program(a_); }), of([&] { return program(b_); }));
}

}  // namespace
}  // namespace spillway
