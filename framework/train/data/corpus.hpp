/// The text that a model learns, split into samples.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "train/config/config.hpp"

namespace spillway::app {

/// A sample is as many tokens as a sequence has and the one after them; it depends on the corpus
/// and its index alone. Threads: any number at once.
class Corpus {
 public:
  Corpus() = default;
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;
  virtual ~Corpus() = default;

  /// Any index: there is always a next sample. Precondition: text.size() is tokens + 1.
  /// Errors: ConfigError if a token is outside the vocabulary, with file and position.
  virtual void read(std::uint64_t index, std::span<std::int64_t> text) const = 0;

  /// "a.txt: text, 1115394 tokens, 17428 samples"
  [[nodiscard]] virtual std::string describe() const = 0;
};

enum class CorpusUse { kTraining, kEvaluation };

/// The corpus of a config. Of a file, the windows of `model.tokens` tokens are samples, each once
/// in an epoch, every epoch in another order. Without data.evaluation, the last windows
/// (data.held_out of them) are for evaluation only. Without data.path, every sample is
/// generated, and both uses have different ones of the same language.
/// Errors: as TokenFile; ConfigError if the file is too short for a sample.
[[nodiscard]] std::unique_ptr<Corpus> make_corpus(const DataConfig& data, const ModelConfig& model,
                                                  CorpusUse use);

}  // namespace spillway::app
