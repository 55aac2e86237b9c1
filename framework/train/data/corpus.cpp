#include "train/data/corpus.hpp"

#include <numeric>
#include <random>
#include <vector>

#include "spillway/core/error.hpp"
#include "train/data/sample_order.hpp"
#include "train/data/token_file.hpp"

namespace spillway::app {
namespace {

std::uint32_t low(std::uint64_t number) { return static_cast<std::uint32_t>(number); }
std::uint32_t high(std::uint64_t number) { return static_cast<std::uint32_t>(number >> 32U); }

/// After each token mostly comes its one successor, so there is something to learn.
class GeneratedCorpus final : public Corpus {
 public:
  GeneratedCorpus(std::uint64_t seed, std::int64_t vocabulary, CorpusUse use)
      : seed_(seed), use_(use), successor_(static_cast<std::size_t>(vocabulary)) {
    std::iota(successor_.begin(), successor_.end(), 0);
    std::mt19937_64 random(seed);
    for (std::size_t i = successor_.size() - 1; i > 0; --i) {
      std::swap(successor_[i], successor_[random() % (i + 1)]);
    }
  }

  void read(std::uint64_t index, std::span<std::int64_t> text) const override {
    std::seed_seq seed{low(seed_), high(seed_), low(index), high(index),
                       std::uint32_t{use_ == CorpusUse::kTraining ? 0U : 1U}};
    std::mt19937_64 random(seed);
    const auto any = [&] { return static_cast<std::int64_t>(random() % successor_.size()); };
    text[0] = any();
    for (std::size_t i = 1; i < text.size(); ++i) {
      const bool surprise = random() % 8 == 0;
      text[i] = surprise ? any() : successor_[static_cast<std::size_t>(text[i - 1])];
    }
  }

  [[nodiscard]] std::string describe() const override {
    return "a made-up text of " + std::to_string(successor_.size()) + " different tokens";
  }

 private:
  std::uint64_t seed_;
  CorpusUse use_;
  std::vector<std::int64_t> successor_;  // By token: what mostly follows it.
};

class FileCorpus final : public Corpus {
 public:
  FileCorpus(TokenFile file, const ModelConfig& model, std::uint64_t seed)
      : file_(std::move(file)),
        tokens_(static_cast<std::uint64_t>(model.tokens)),
        vocabulary_(model.vocabulary),
        seed_(seed),
        count_(file_.size() > tokens_ ? (file_.size() - 1) / tokens_ : 0) {
    if (count_ > 0) return;
    throw ConfigError("data", file_.path() + ": a sample of " + std::to_string(tokens_) +
                                  " tokens and the one after them wanted, found " +
                                  std::to_string(file_.size()) +
                                  " tokens; give a longer file or lower model.tokens");
  }

  /// Keeps only one side of the border between what is learnt and what is held out.
  void hold_out(double share, CorpusUse use) {
    const auto held = static_cast<std::uint64_t>(share * static_cast<double>(count_));
    const std::uint64_t learnt = count_ - held;
    if (use == CorpusUse::kTraining) {
      count_ = learnt;
      return;
    }
    if (held == 0) {
      throw ConfigError("data", file_.path() + ": none of its " + std::to_string(count_) +
                                    " samples is held out; raise data.held_out, or name a file in "
                                    "data.evaluation");
    }
    first_ = learnt;
    count_ = held;
  }

  void read(std::uint64_t index, std::span<std::int64_t> text) const override {
    const std::uint64_t epoch = index / count_;
    const std::uint64_t window = first_ + shuffled(index % count_, count_, mixed(seed_, epoch));
    file_.read(window * tokens_, vocabulary_, text);
  }

  [[nodiscard]] std::string describe() const override {
    return file_.path() + ": " + file_.kind() + ", " + std::to_string(file_.size()) + " tokens, " +
           std::to_string(count_) + " samples";
  }

 private:
  TokenFile file_;
  std::uint64_t tokens_;
  std::int64_t vocabulary_;
  std::uint64_t seed_;
  std::uint64_t first_ = 0;
  std::uint64_t count_;  // Windows; neighbours share one token.
};

}  // namespace

std::unique_ptr<Corpus> make_corpus(const DataConfig& data, const ModelConfig& model,
                                    CorpusUse use) {
  const auto seed = static_cast<std::uint64_t>(data.seed);
  if (data.path.empty()) return std::make_unique<GeneratedCorpus>(seed, model.vocabulary, use);
  const bool own_file = use == CorpusUse::kEvaluation && !data.evaluation.empty();
  auto corpus = std::make_unique<FileCorpus>(
      TokenFile(own_file ? data.evaluation : data.path, data.format), model, seed);
  if (data.evaluation.empty()) corpus->hold_out(data.held_out, use);
  return corpus;
}

}  // namespace spillway::app
