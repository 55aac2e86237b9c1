#include "train/data/corpus.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/temporary_folder.hpp"
#include "train/data/sample_order.hpp"

namespace spillway::app {
namespace {

using spillway::testing::error_text;
using spillway::testing::TemporaryFolder;
using Text = std::vector<std::int64_t>;

ModelConfig model_of(std::int64_t tokens, std::int64_t vocabulary = 256) {
  ModelConfig model;
  model.tokens = tokens;
  model.vocabulary = vocabulary;
  return model;
}

Text sample(const Corpus& corpus, std::uint64_t index, std::int64_t tokens) {
  Text text(static_cast<std::size_t>(tokens) + 1);
  corpus.read(index, text);
  return text;
}

TEST(SampleOrder, OfAStepDoesNotDependOnTheNumberOfDataRanks) {
  const auto samples = [](std::int64_t data, std::int64_t micro_batches, std::int64_t step) {
    const BatchShape shape{micro_batches, data, 3};
    std::vector<std::uint64_t> found;
    for (std::int64_t rank = 0; rank < data; ++rank) {
      for (std::int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
        found.push_back(first_sample(shape, {step, micro_batch, rank}));
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  };
  for (std::int64_t step = 0; step < 3; ++step) {
    std::vector<std::uint64_t> wanted(8);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      wanted[i] = (static_cast<std::uint64_t>(step) * 8 + i) * 3;
    }
    for (const std::int64_t data : {1, 2, 4, 8}) {
      EXPECT_EQ(samples(data, 8 / data, step), wanted);
    }
  }
}

TEST(SampleOrder, ShufflesEveryNumberToAPositionOfItsOwn) {
  for (const std::uint64_t count : {1U, 2U, 3U, 5U, 16U, 17U, 1000U, 4097U}) {
    std::set<std::uint64_t> positions;
    for (std::uint64_t i = 0; i < count; ++i) positions.insert(shuffled(i, count, 7));
    EXPECT_EQ(positions.size(), count);
    EXPECT_EQ(*positions.rbegin(), count - 1);
  }
}

TEST(SampleOrder, IsAnotherOneForEachKey) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t key = 0; key < 20; ++key) {
    std::vector<std::uint64_t> order(50);
    for (std::uint64_t i = 0; i < order.size(); ++i) order[i] = shuffled(i, order.size(), key);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 20U);
}

TEST(GeneratedCorpus, GivesTheSameSampleForTheSameIndex) {
  const auto one = make_corpus({}, model_of(32), CorpusUse::kTraining);
  const auto two = make_corpus({}, model_of(32), CorpusUse::kTraining);
  EXPECT_EQ(sample(*one, 5, 32), sample(*two, 5, 32));
  EXPECT_NE(sample(*one, 5, 32), sample(*one, 6, 32));
  EXPECT_NE(sample(*one, 5, 32), sample(*one, 5 + (1ULL << 32U), 32));
}

TEST(GeneratedCorpus, EvaluatesOnOtherSamplesOfTheSameLanguage) {
  const auto training = make_corpus({}, model_of(400, 16), CorpusUse::kTraining);
  const auto evaluation = make_corpus({}, model_of(400, 16), CorpusUse::kEvaluation);
  EXPECT_NE(sample(*training, 0, 400), sample(*evaluation, 0, 400));
  const auto successor_of_3 = [](const Text& text) {
    std::vector<int> counts(16);
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (text[i - 1] == 3) ++counts[static_cast<std::size_t>(text[i])];
    }
    return std::max_element(counts.begin(), counts.end()) - counts.begin();
  };
  EXPECT_EQ(successor_of_3(sample(*training, 0, 400)), successor_of_3(sample(*evaluation, 0, 400)));
}

TEST(GeneratedCorpus, DependsOnTheSeed) {
  DataConfig other;
  other.seed = 1;
  EXPECT_NE(sample(*make_corpus({}, model_of(32), CorpusUse::kTraining), 0, 32),
            sample(*make_corpus(other, model_of(32), CorpusUse::kTraining), 0, 32));
}

class OnAFile : public ::testing::Test {
 protected:
  /// A text of the bytes 0, 1, 2, ..., of which windows of 4 are samples.
  DataConfig data_of(std::size_t count) const {
    std::string text(count, '\0');
    std::iota(text.begin(), text.end(), '\0');
    DataConfig data;
    data.path = folder_.write("a.txt", text).string();
    data.held_out = 0;
    return data;
  }

  TemporaryFolder folder_;
};

TEST_F(OnAFile, EveryWindowComesOnceInAnEpochInAnotherOrder) {
  const auto corpus = make_corpus(data_of(83), model_of(4), CorpusUse::kTraining);  // 20 windows.
  std::vector<std::vector<std::int64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> firsts;
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Text text = sample(*corpus, epoch * 20 + i, 4);
      for (std::int64_t k = 1; k <= 4; ++k) {
        EXPECT_EQ(text[static_cast<std::size_t>(k)], text[0] + k);
      }
      firsts.push_back(text[0]);
    }
    orders.push_back(firsts);
    std::sort(firsts.begin(), firsts.end());
    for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(firsts[i], static_cast<std::int64_t>(4 * i));
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST_F(OnAFile, TheEndIsHeldOutForEvaluation) {
  DataConfig data = data_of(81);
  data.held_out = 0.25;
  const auto firsts = [&](CorpusUse use, std::uint64_t count) {
    const auto corpus = make_corpus(data, model_of(4), use);
    std::set<std::int64_t> found;
    for (std::uint64_t i = 0; i < count; ++i) found.insert(sample(*corpus, i, 4)[0]);
    return found;
  };
  EXPECT_EQ(firsts(CorpusUse::kEvaluation, 5), (std::set<std::int64_t>{60, 64, 68, 72, 76}));
  EXPECT_EQ(firsts(CorpusUse::kTraining, 45).size(), 15U);
  EXPECT_EQ(*firsts(CorpusUse::kTraining, 45).rbegin(), 56);
}

TEST_F(OnAFile, AnotherFileIsEvaluatedOnWhole) {
  DataConfig data = data_of(81);
  data.held_out = 0.25;
  data.evaluation = folder_.write("b.txt", "abcdefghi").string();
  const auto evaluation = make_corpus(data, model_of(4), CorpusUse::kEvaluation);
  EXPECT_EQ(evaluation->describe(), data.evaluation + ": text, 9 tokens, 2 samples");
  const auto training = make_corpus(data, model_of(4), CorpusUse::kTraining);
  EXPECT_EQ(training->describe(), data.path + ": text, 81 tokens, 20 samples");
}

TEST_F(OnAFile, TooShortIsSaidWithWhatToDo) {
  const DataConfig data = data_of(4);
  EXPECT_EQ(
      error_text<ConfigError>([&] { (void)make_corpus(data, model_of(4), CorpusUse::kTraining); }),
      "[data] " + data.path +
          ": a sample of 4 tokens and the one after them wanted, found 4 tokens; give a "
          "longer file or lower model.tokens");
  EXPECT_NO_THROW((void)make_corpus(data_of(5), model_of(4), CorpusUse::kTraining));
}

TEST_F(OnAFile, NothingHeldOutCannotBeEvaluatedOn) {
  const DataConfig data = data_of(9);
  EXPECT_EQ(error_text<ConfigError>(
                [&] { (void)make_corpus(data, model_of(4), CorpusUse::kEvaluation); }),
            "[data] " + data.path +
                ": none of its 2 samples is held out; raise data.held_out, or name a file in "
                "data.evaluation");
}

TEST_F(OnAFile, TokensOutsideTheVocabularyAreNamedWithTheirPosition) {
  const DataConfig data = data_of(9);
  const auto corpus = make_corpus(data, model_of(8, 8), CorpusUse::kTraining);
  EXPECT_EQ(error_text<ConfigError>([&] { (void)sample(*corpus, 0, 8); }),
            "[data] " + data.path +
                ": token 8 at position 8 (byte 8) is outside the vocabulary of 8; set "
                "model.vocabulary to at least 9");
}

}  // namespace
}  // namespace spillway::app
