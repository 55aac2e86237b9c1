#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "spillway/core/error.hpp"
#include "train/checkpoint/checkpoint_index.hpp"
#include "train/checkpoint/safetensors.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "index.json";
constexpr const char* kUnfinished = ".unfinished";
constexpr const char* kReplaced = ".replaced";

std::string number_text(std::int64_t number, std::size_t digits) {
  std::string text = std::to_string(number);
  if (text.size() < digits) text.insert(0, digits - text.size(), '0');
  return text;
}

std::string part_name(int rank) { return "part-" + number_text(rank, 5) + ".json"; }

/// The step of a folder's name, "step-000100".
std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view kStart = "step-";
  if (!name.starts_with(kStart)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kStart.size(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

/// "step-000100" of "step-000100.replaced"; empty where the name has another ending.
std::string without(const std::string& name, std::string_view ending) {
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : std::string();
}

bool is_complete(const fs::path& checkpoint) { return fs::exists(checkpoint / kIndex); }

/// Errors of the file system say in what they happened.
template <typename F>
auto guarded(F&& call) {
  try {
    return call();
  } catch (const fs::filesystem_error& error) {
    throw IoError("checkpoint", error.what());
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path folder, std::int64_t step)
    : folder_(std::move(folder)), step_(step) {}

fs::path CheckpointWriter::path() const { return folder_ / ("step-" + number_text(step_, 6)); }

fs::path CheckpointWriter::unfinished() const {
  fs::path path = this->path();
  path += kUnfinished;
  return path;
}

void CheckpointWriter::begin() const {
  guarded([&] {
    fs::create_directories(folder_);
    std::vector<fs::path> left;
    for (const fs::directory_entry& each : fs::directory_iterator(folder_)) {
      const std::string name = each.path().filename().string();
      const std::string replaced = without(name, kReplaced);
      if (step_of(without(name, kUnfinished))) left.push_back(each.path());
      if (!step_of(replaced)) continue;
      // Without a new one in its place, the old one is the checkpoint.
      if (fs::exists(folder_ / replaced)) {
        left.push_back(each.path());
      } else {
        fs::rename(each.path(), folder_ / replaced);
      }
    }
    for (const fs::path& each : left) fs::remove_all(each);
    fs::create_directory(unfinished());
  });
}

void CheckpointWriter::write(int rank, const std::vector<NamedTensor>& weights,
                             const std::vector<NamedTensor>& optimizer) const {
  CheckpointIndex part;
  part.state.step = step_;
  const auto add = [&](const char* kind, const std::vector<NamedTensor>& tensors) {
    const std::string name = std::string(kind) + "-" + number_text(rank, 5) + ".safetensors";
    CheckpointFile& file = part.files[name];
    file.stamp = write_safetensors(unfinished() / name, tensors);
    for (const NamedTensor& each : tensors) file.tensors.push_back(each.name);
  };
  add("weights", weights);
  add("optimizer", optimizer);
  write_index(unfinished() / part_name(rank), part);
}

void CheckpointWriter::complete(int ranks, const TrainingState& state) const {
  CheckpointIndex index{state, {}};
  index.state.step = step_;
  std::set<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) {
    for (auto& [name, file] : read_index(unfinished() / part_name(rank)).files) {
      for (const std::string& tensor : file.tensors) {
        if (names.insert(tensor).second) continue;
        throw InvalidArgument("checkpoint", tensor +
                                                " was written by two ranks, the second being " +
                                                std::to_string(rank) + "; one is to write it");
      }
      index.files[name] = std::move(file);
    }
  }
  write_index(unfinished() / kIndex, index);
  guarded([&] {
    for (int rank = 0; rank < ranks; ++rank) fs::remove(unfinished() / part_name(rank));
    sync_folder("checkpoint", unfinished());
    fs::path replaced = path();
    replaced += kReplaced;
    // A folder can take the name of an empty one only.
    if (fs::exists(path())) fs::rename(path(), replaced);
    fs::rename(unfinished(), path());
    sync_folder("checkpoint", folder_);
    fs::remove_all(replaced);
  });
}

std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
  return guarded([&]() -> std::optional<fs::path> {
    if (!fs::exists(folder)) return std::nullopt;
    std::optional<fs::path> latest;
    std::int64_t highest = -1;
    for (const fs::directory_entry& each : fs::directory_iterator(folder)) {
      const std::string name = each.path().filename().string();
      const std::string replaced = without(name, kReplaced);
      // An interrupted run had taken the old one's name, but not given it to the new one yet.
      const bool in_use = !replaced.empty() && !fs::exists(folder / replaced);
      const std::optional<std::int64_t> step = step_of(in_use ? replaced : name);
      if (!step || *step <= highest || !is_complete(each.path())) continue;
      highest = *step;
      latest = each.path();
    }
    return latest;
  });
}

Checkpoint::Checkpoint(fs::path path) : path_(std::move(path)) {
  CheckpointIndex index = read_index(path_ / kIndex);
  state_ = std::move(index.state);
  for (const auto& [name, file] : index.files) {
    files_[name] = file.stamp;
    for (const std::string& tensor : file.tensors) file_of_[tensor] = name;
  }
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

std::vector<NamedTensor> Checkpoint::read(const std::vector<std::string>& names) const {
  std::map<std::string, SafetensorsFile> open;
  for (const std::string& name : names) {
    const auto found = file_of_.find(name);
    if (found == file_of_.end()) {
      throw IoError("checkpoint", path_.string() + " has no " + name + " among its " +
                                      std::to_string(file_of_.size()) +
                                      " tensors; it is of another model");
    }
    const std::string& file = found->second;
    if (open.contains(file)) continue;
    const SafetensorsFile& opened = open.emplace(file, path_ / file).first->second;
    if (opened.stamp() != files_.at(file)) {
      throw IoError("checkpoint", (path_ / file).string() +
                                      " is damaged: its bytes are not those that were written");
    }
  }
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names) {
    const SafetensorsFile& file = open.at(file_of_.at(name));
    tensors.push_back({name, file.tensor(name)});
  }
  return tensors;
}

void Checkpoint::verify() const { (void)read(names()); }

}  // namespace spillway::app
