#include "spillway/pipeline/gradient_buckets.hpp"

#include <algorithm>

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

struct Bucket {
  int chunk = 0;
  at::Tensor flat;
  std::vector<at::Tensor> parameters;
  int missing = 0;  // Gradients to come before it starts.
  bool started = false;
  Pending pending;
};

}  // namespace

class GradientBuckets::State {
 public:
  State(Group group) : group_(std::move(group)) {}

  void add(int chunk, std::vector<at::Tensor> parameters) {
    std::int64_t elements = 0;
    for (const at::Tensor& parameter : parameters) elements += parameter.numel();
    Bucket bucket{chunk,
                  at::zeros({elements}, parameters[0].options().requires_grad(false)),
                  std::move(parameters),
                  0,
                  true,
                  {}};
    std::int64_t begin = 0;
    for (const at::Tensor& parameter : bucket.parameters) {
      parameter.mutable_grad() =
          bucket.flat.narrow(0, begin, parameter.numel()).view(parameter.sizes());
      begin += parameter.numel();
    }
    buckets_.push_back(std::move(bucket));
  }

  void zero() {
    for (Bucket& bucket : buckets_) bucket.flat.zero_();
  }

  void arm(int chunk) {
    for (Bucket& bucket : buckets_) {
      if (bucket.chunk != chunk) continue;
      bucket.missing = static_cast<int>(bucket.parameters.size());
      bucket.started = false;
    }
    armed_ = chunk;
  }

  void arrived(std::size_t index) {
    Bucket& bucket = buckets_[index];
    if (bucket.chunk != armed_ || bucket.started) return;
    --bucket.missing;
    start_ready();
  }

  void flush(int chunk) {
    for (Bucket& bucket : buckets_) {
      if (bucket.chunk == chunk) bucket.missing = 0;
    }
    start_ready();
    armed_ = -1;
  }

  void finish() {
    for (Bucket& bucket : buckets_) bucket.pending.wait();
  }

  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept { return buckets_; }

 private:
  /// In order: a bucket waits for those before it.
  void start_ready() {
    for (Bucket& bucket : buckets_) {
      if (bucket.chunk != armed_ || bucket.started) continue;
      if (bucket.missing > 0) return;
      bucket.started = true;
      bucket.pending = group_.all_reduce_async(bucket.flat);
    }
  }

  Group group_;
  std::vector<Bucket> buckets_;
  int armed_ = -1;
};

namespace {

/// Notifies the bucket that a gradient was added to.
class GradientArrived final : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientArrived(std::weak_ptr<GradientBuckets::State> state, std::size_t bucket)
      : state_(std::move(state)), bucket_(bucket) {}

  void operator()(const at::Tensor& /*parameter*/) override {
    if (const auto state = state_.lock()) state->arrived(bucket_);
  }

 private:
  std::weak_ptr<GradientBuckets::State> state_;
  std::size_t bucket_;
};

}  // namespace

GradientBuckets::GradientBuckets(const std::vector<StageParameter>& parameters, Group group,
                                 Bytes bucket)
    : state_(std::make_shared<State>(std::move(group))) {
  std::vector<at::Tensor> collected;
  std::uint64_t bytes = 0;
  int chunk = 0;
  const auto close = [&] {
    if (!collected.empty()) state_->add(chunk, std::move(collected));
    collected.clear();
    bytes = 0;
  };
  for (auto next = parameters.rbegin(); next != parameters.rend(); ++next) {
    const bool fits = collected.empty() ||
                      (next->chunk == chunk && bytes + next->value.nbytes() <= bucket.count() &&
                       next->value.scalar_type() == collected[0].scalar_type());
    if (!fits) close();
    chunk = next->chunk;
    bytes += next->value.nbytes();
    collected.push_back(next->value);
  }
  close();
  for (std::size_t i = 0; i < state_->buckets().size(); ++i) {
    for (const at::Tensor& parameter : state_->buckets()[i].parameters) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                     std::make_unique<GradientArrived>(state_, i));
    }
  }
}

GradientBuckets::~GradientBuckets() {
  if (state_ == nullptr) return;
  for (const Bucket& bucket : state_->buckets()) {
    for (const at::Tensor& parameter : bucket.parameters) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
    }
  }
}

void GradientBuckets::zero() { state_->zero(); }
void GradientBuckets::arm(int chunk) { state_->arm(chunk); }
void GradientBuckets::flush(int chunk) { state_->flush(chunk); }
void GradientBuckets::finish() { state_->finish(); }
int GradientBuckets::count() const noexcept { return static_cast<int>(state_->buckets().size()); }

}  // namespace spillway
