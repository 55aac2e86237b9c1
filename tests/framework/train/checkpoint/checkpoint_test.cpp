#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/train/support/named_tensors.hpp"
#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/temporary_folder.hpp"
#include "train/checkpoint/checkpoint_index.hpp"
#include "train/checkpoint/resume.hpp"
#include "train/checkpoint/safetensors.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using spillway::testing::error_text;
using spillway::testing::TemporaryFolder;
using ::testing::HasSubstr;

constexpr int kLayers = 4;

at::Tensor values(std::int64_t count, double shift) {
  return at::sin(at::arange(count, at::kFloat) + shift);
}

/// The parameters of layers `first` to `end` of a model; `shift` tells models apart.
std::vector<NamedTensor> layers(int first, int end, double shift = 0) {
  std::vector<NamedTensor> made;
  for (int i = first; i < end; ++i) {
    const std::string name = "layers." + std::to_string(i);
    made.push_back({name + ".weight", values(12, shift + i).view({3, 4})});
    made.push_back({name + ".norm", values(4, shift + 10 + i)});
  }
  for (const NamedTensor& each : made) each.tensor.requires_grad_(true);
  return made;
}

void train(Optimizer& optimizer, int first, int end) {
  for (int step = first; step < end; ++step) {
    for (const NamedTensor& each : optimizer.parameters()) {
      const double number = each.name[7];
      each.tensor.mutable_grad() =
          values(each.tensor.numel(), step + number).view(each.tensor.sizes());
    }
    optimizer.step(0.01);
  }
}

/// The checkpoint of a run with one optimizer a rank, each with some of the layers.
fs::path save_all(const fs::path& folder, std::int64_t step,
                  const std::vector<Optimizer>& optimizers, const TrainingState& state = {}) {
  const CheckpointWriter writer(folder, step);
  writer.begin();
  // The last rank first: no order of theirs matters.
  for (int rank = static_cast<int>(optimizers.size()) - 1; rank >= 0; --rank) {
    save(writer, rank, optimizers[static_cast<std::size_t>(rank)]);
  }
  writer.complete(static_cast<int>(optimizers.size()), state);
  return writer.path();
}

std::vector<Optimizer> split(const std::vector<int>& bounds, double shift = 0) {
  std::vector<Optimizer> ranks;
  for (std::size_t i = 1; i < bounds.size(); ++i) {
    ranks.emplace_back(layers(bounds[i - 1], bounds[i], shift), OptimizerConfig());
  }
  return ranks;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator(folder)) names.push_back(each.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoint, GivesStateAndTensorsBackToTheBit) {
  const TemporaryFolder folder;
  std::vector<Optimizer> ranks = split({0, 2, 4});
  for (Optimizer& each : ranks) train(each, 0, 3);
  const TrainingState state{3, "[model]\nlayers = 4\n", 0xfedcba9876543210U,
                            LossScalerState{512.5, 7}};
  const fs::path path = save_all(folder.path(), 3, ranks, state);
  EXPECT_EQ(path.filename(), "step-000003");
  EXPECT_EQ(names_in(path),
            (std::vector<std::string>{"index.json", "optimizer-00000.safetensors",
                                      "optimizer-00001.safetensors", "weights-00000.safetensors",
                                      "weights-00001.safetensors"}));
  const Checkpoint checkpoint(path);
  EXPECT_EQ(checkpoint.state(), state);
  EXPECT_EQ(checkpoint.names().size(), 8U * 4);
  EXPECT_NO_THROW(checkpoint.verify());
  for (const Optimizer& each : ranks) {
    for (const std::vector<NamedTensor>& tensors : {each.parameters(), each.state()}) {
      std::vector<std::string> names;
      for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
      expect_equal(checkpoint.read(names), tensors);
    }
  }
}

TEST(Checkpoint, IsResumedUnderEverySplitAsIfNothingHadHappened) {
  const TemporaryFolder folder;
  std::vector<Optimizer> unbroken = split({0, 4});
  train(unbroken[0], 0, 5);
  for (const std::vector<int>& before :
       std::vector<std::vector<int>>{{0, 4}, {0, 1, 4}, {0, 0, 2, 4}, {0, 1, 2, 3, 4}}) {
    std::vector<Optimizer> first = split(before);
    for (Optimizer& each : first) train(each, 0, 2);
    const Checkpoint checkpoint(save_all(folder.path(), 2, first));
    for (const std::vector<int>& after :
         std::vector<std::vector<int>>{{0, 4}, {0, 3, 4}, {0, 2, 4, 4}}) {
      std::vector<NamedTensor> parameters;
      std::vector<NamedTensor> states;
      for (Optimizer& each : split(after, /*shift=*/0.5)) {
        restore(checkpoint, each);
        train(each, 2, 5);
        for (const NamedTensor& tensor : each.parameters()) parameters.push_back(tensor);
        for (const NamedTensor& tensor : each.state()) states.push_back(tensor);
      }
      expect_equal(parameters, unbroken[0].parameters());
      expect_equal(states, unbroken[0].state());
    }
  }
}

/// Whatever is wrong with it: nothing of the optimizer changes.
std::string refused(const fs::path& path) {
  Optimizer fresh(layers(0, kLayers, 0.5), {});
  const std::string text = error_text<IoError>([&] { restore(Checkpoint(path), fresh); });
  expect_equal(fresh.parameters(), layers(0, kLayers, 0.5));
  expect_equal(fresh.state(), Optimizer(layers(0, kLayers), {}).state());
  return text;
}

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() : path_(save_all(folder_.path(), 2, split({0, 1, 4}))) {}

  TemporaryFolder folder_;
  fs::path path_;
};

TEST_F(DamagedCheckpoint, IsRefusedWithTheNameOfTheFileWhereverTheDamageIs) {
  for (const std::string& name : names_in(path_)) {
    const fs::path file = path_ / name;
    const auto size = static_cast<std::int64_t>(fs::file_size(file));
    for (std::int64_t at = 0; at < size; at += std::max<std::int64_t>(size / 23, 1)) {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(at);
      const auto was = static_cast<char>(stream.get());
      stream.seekp(at);
      stream.put(static_cast<char>(was ^ 1));
      stream.close();
      EXPECT_THAT(refused(path_), HasSubstr(file.string() + " is damaged: ")) << at;
      std::fstream back(file, std::ios::in | std::ios::out | std::ios::binary);
      back.seekp(at);
      back.put(was);
    }
  }
  EXPECT_NO_THROW(Checkpoint(path_).verify());
}

TEST_F(DamagedCheckpoint, IsRefusedWithTheNameOfATruncatedFile) {
  for (const std::string& name : names_in(path_)) {
    const fs::path copy = folder_.path() / "copy";
    fs::copy(path_, copy);
    fs::resize_file(copy / name, fs::file_size(copy / name) / 2);
    EXPECT_THAT(refused(copy), HasSubstr((copy / name).string() + " is damaged: "));
    fs::remove_all(copy);
  }
}

TEST_F(DamagedCheckpoint, IsRefusedWithTheNameOfAMissingFile) {
  for (const std::string& name : names_in(path_)) {
    const fs::path copy = folder_.path() / "copy";
    fs::copy(path_, copy);
    fs::remove(copy / name);
    EXPECT_THAT(refused(copy),
                HasSubstr("cannot read " + (copy / name).string() + ": No such file"));
    fs::remove_all(copy);
  }
}

TEST_F(DamagedCheckpoint, DoesNotMatterToReadersOfOtherFiles) {
  fs::remove(path_ / "weights-00000.safetensors");
  Optimizer second(layers(1, kLayers, 0.5), {});
  EXPECT_NO_THROW(restore(Checkpoint(path_), second));
  EXPECT_THROW(Checkpoint(path_).verify(), IoError);
}

TEST_F(DamagedCheckpoint, OfAnotherModelIsRefusedWithTheTensor) {
  Optimizer longer(layers(0, kLayers + 1), {});
  EXPECT_EQ(error_text<IoError>([&] { restore(Checkpoint(path_), longer); }),
            "[checkpoint] " + path_.string() +
                " has no layers.4.weight among its 32 tensors; it is of another model");
  Optimizer wider({{"layers.0.weight", values(15, 0).view({3, 5}).requires_grad_(true)}}, {});
  EXPECT_EQ(error_text<IoError>([&] { restore(Checkpoint(path_), wider); }),
            "[checkpoint] " + path_.string() +
                ": Float [3, 5] wanted for layers.0.weight, found Float [3, 4]; it is of another "
                "model");
}

TEST(CheckpointFolder, ShowsTheLatestCompleteOne) {
  const TemporaryFolder folder;
  EXPECT_FALSE(latest_checkpoint(folder.path()));
  EXPECT_FALSE(latest_checkpoint(folder.path() / "nowhere"));
  save_all(folder.path(), 9, split({0, 4}));
  save_all(folder.path(), 1000000, split({0, 4}));
  save_all(folder.path(), 10, split({0, 4}));
  fs::create_directory(folder.path() / "step-2000000");  // Without an index.
  fs::create_directory(folder.path() / "step-abc");
  folder.write("step-3000000", "a file");
  EXPECT_EQ(latest_checkpoint(folder.path()), folder.path() / "step-1000000");
}

TEST(CheckpointFolder, IgnoresWhatACrashLeftAndTheNextOneClearsItAway) {
  const TemporaryFolder folder;
  save_all(folder.path(), 5, split({0, 4}));
  std::vector<Optimizer> ranks = split({0, 2, 4});
  const CheckpointWriter crashed(folder.path(), 10);
  crashed.begin();
  save(crashed, 0, ranks[0]);  // And no more.
  EXPECT_THAT(error_text<IoError>([&] { crashed.complete(2, {}); }),
              HasSubstr("step-000010.unfinished/part-00001.json: No such file"));
  EXPECT_EQ(latest_checkpoint(folder.path()), folder.path() / "step-000005");
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"step-000005", "step-000010.unfinished"}));
  save_all(folder.path(), 15, split({0, 4}));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"step-000005", "step-000015"}));
}

TEST(CheckpointFolder, HasTheNewOneOfTwoOfTheSameStep) {
  const TemporaryFolder folder;
  save_all(folder.path(), 5, split({0, 1, 2, 3, 4}));
  const std::vector<Optimizer> other = split({0, 4}, 2);
  const Checkpoint checkpoint(save_all(folder.path(), 5, other));
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-000005"});
  EXPECT_EQ(names_in(checkpoint.path()).size(), 3U);
  Optimizer read(layers(0, kLayers), {});
  restore(checkpoint, read);
  expect_equal(read.parameters(), other[0].parameters());
}

/// Whether the folder's latest checkpoint, complete to the byte, is that of `optimizers`.
bool latest_is(const fs::path& folder, const std::vector<Optimizer>& optimizers) {
  const std::optional<fs::path> latest = latest_checkpoint(folder);
  if (!latest) return false;
  const Checkpoint checkpoint(*latest);
  checkpoint.verify();
  Optimizer read(layers(0, kLayers, 7), {});
  restore(checkpoint, read);
  const std::vector<NamedTensor>& wanted = optimizers[0].parameters();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!at::equal(read.parameters()[i].tensor, wanted[i].tensor)) return false;
  }
  return true;
}

// The folder as a kill leaves it between any two steps of replacing a checkpoint.
TEST(CheckpointFolder, HasTheOldOrTheNewOneWhereverItsReplacementIsInterrupted) {
  const std::vector<Optimizer> before = split({0, 4});
  const std::vector<Optimizer> after = split({0, 4}, 2);
  enum class Has { kOld, kNew };
  struct State {
    const char* what;
    Has has;
    std::function<void(const fs::path& folder, const fs::path& made)> make;
  };
  const std::string name = "step-000005";
  const std::vector<State> states = {
      {"half written", Has::kOld,
       [&](const fs::path& folder, const fs::path& made) {
         fs::rename(made, folder / (name + ".unfinished"));
         fs::remove(folder / (name + ".unfinished") / "index.json");
       }},
      {"written, the old one in place", Has::kOld,
       [&](const fs::path& folder, const fs::path& made) {
         fs::rename(made, folder / (name + ".unfinished"));
       }},
      {"between the renames", Has::kOld,
       [&](const fs::path& folder, const fs::path& made) {
         fs::rename(made, folder / (name + ".unfinished"));
         fs::rename(folder / name, folder / (name + ".replaced"));
       }},
      {"renamed", Has::kNew,
       [&](const fs::path& folder, const fs::path& made) {
         fs::rename(folder / name, folder / (name + ".replaced"));
         fs::rename(made, folder / name);
       }},
      {"the old one half removed", Has::kNew,
       [&](const fs::path& folder, const fs::path& made) {
         fs::rename(folder / name, folder / (name + ".replaced"));
         fs::remove(folder / (name + ".replaced") / "weights-00000.safetensors");
         fs::rename(made, folder / name);
       }},
  };
  for (const State& each : states) {
    for (const std::int64_t next : {5, 6}) {
      const TemporaryFolder folder;
      const TemporaryFolder elsewhere;
      save_all(folder.path(), 4, split({0, 4}, 3));
      save_all(folder.path(), 5, before);
      each.make(folder.path(), save_all(elsewhere.path(), 5, after));
      const std::vector<Optimizer>& wanted = each.has == Has::kOld ? before : after;
      EXPECT_TRUE(latest_is(folder.path(), wanted)) << each.what;
      // The next run is interrupted as well, as soon as it begins to write,
      CheckpointWriter(folder.path(), next).begin();
      EXPECT_TRUE(latest_is(folder.path(), wanted)) << each.what;
      // and the one after it is not.
      const std::vector<Optimizer> last = split({0, 4}, 4);
      save_all(folder.path(), next, last);
      EXPECT_TRUE(latest_is(folder.path(), last)) << each.what;
      EXPECT_EQ(names_in(folder.path()).size(), next == 5 ? 2U : 3U) << each.what;
    }
  }
}

TEST(CheckpointFolder, HasTheOldOrTheNewOneAfterAKillAtAnyTime) {
  const TemporaryFolder folder;
  const std::array<std::vector<Optimizer>, 2> models = {split({0, 4}), split({0, 4}, 2)};
  save_all(folder.path(), 5, models[0]);
  for (int kill = 0; kill < 40; ++kill) {
    const ::pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (std::size_t i = 0;; ++i) save_all(folder.path(), 5, models[i % 2]);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + kill * 397));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it ended by itself";
    EXPECT_TRUE(latest_is(folder.path(), models[0]) || latest_is(folder.path(), models[1])) << kill;
  }
}

TEST(CheckpointFolder, RefusesFilesThatAreNotInIt) {
  const TemporaryFolder folder;
  const fs::path path = save_all(folder.path(), 5, split({0, 4}));
  const fs::path weights = path / "weights-00000.safetensors";
  for (const std::string& name :
       {std::string("../weights"), weights.string(), std::string("/etc/passwd"), std::string(".."),
        std::string("."), std::string(), std::string("a/b"), std::string("a\0b", 3)}) {
    CheckpointIndex index = read_index(path / "index.json");
    index.files[name] = index.files.at(weights.filename().string());
    index.files.erase(weights.filename().string());
    const fs::path copy = folder.path() / "copy.json";
    write_index(copy, index);
    EXPECT_THAT(error_text<IoError>([&] { (void)read_index(copy); }),
                HasSubstr("copy.json is damaged: the name of a file in its folder wanted, found "));
  }
}

TEST(CheckpointFolder, RefusesTextsThatNestTooDeeply) {
  const TemporaryFolder folder;
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const fs::path index = folder.write("index.json", "{\"schema\": " + deep + "}");
  EXPECT_EQ(error_text<IoError>([&] { (void)read_index(index); }),
            "[checkpoint] " + index.string() + " is damaged: its JSON is nested too deeply");
  const std::string header = "{\"a\": " + deep + "}";
  std::string length(8, '\0');
  const std::uint64_t size = header.size();
  std::memcpy(length.data(), &size, sizeof(size));
  const fs::path file = folder.write("a.safetensors", length + header);
  EXPECT_EQ(error_text<IoError>([&] { (void)SafetensorsFile(file); }),
            "[checkpoint] " + file.string() + " is damaged: its header is nested too deeply");
}

TEST(CheckpointFolder, RefusesATensorOfTwoRanks) {
  const TemporaryFolder folder;
  EXPECT_EQ(
      error_text<InvalidArgument>([&] {
        std::vector<Optimizer> ranks = split({0, 2});
        ranks.emplace_back(layers(1, 4), OptimizerConfig());
        save_all(folder.path(), 5, ranks);
      }),
      "[checkpoint] layers.1.weight.exp_avg was written by two ranks, the second being 1; one "
      "is to write it");
  EXPECT_FALSE(latest_checkpoint(folder.path()));
}

TEST(CheckpointFolder, ThatCannotBeWrittenToIsNamed) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "");
  EXPECT_THAT(error_text<IoError>([&] { CheckpointWriter(file / "in", 1).begin(); }),
              HasSubstr((file / "in").string()));
}

}  // namespace
}  // namespace spillway::app
