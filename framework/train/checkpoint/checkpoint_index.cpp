#include "train/checkpoint/checkpoint_index.hpp"

#include <nlohmann/json.hpp>

#include "spillway/core/error.hpp"
#include "train/data/mapped_file.hpp"
#include "util/nesting.hpp"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const TrainingState& state) {
  Json json = {{"step", state.step}, {"losses", digest_text(state.losses)}};
  if (state.loss_scale) {
    json["loss_scale"] = {{"scale", state.loss_scale->scale},
                          {"growth_tracker", state.loss_scale->growth_tracker}};
  }
  json["config"] = state.config;
  return json;
}

TrainingState state_from(const Json& json) {
  TrainingState state;
  state.step = json.at("step").get<std::int64_t>();
  state.losses = parse_digest(json.at("losses").get<std::string>()).value();
  state.config = json.at("config").get<std::string>();
  if (json.contains("loss_scale")) {
    const Json& scale = json.at("loss_scale");
    state.loss_scale = LossScalerState{scale.at("scale").get<double>(),
                                       scale.at("growth_tracker").get<std::int64_t>()};
  }
  return state;
}

/// Whether it can only be a file right in the checkpoint's folder.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

std::string hash_of(const Json& json) {
  Digest hash;
  hash.add(json.dump());
  return digest_text(hash.value());
}

}  // namespace

void write_index(const std::filesystem::path& path, const CheckpointIndex& index) {
  Json json = {{"schema", kCheckpointSchema}, {"state", to_json(index.state)}};
  json["files"] = Json::object();
  for (const auto& [name, file] : index.files) {
    json["files"][name] = {{"bytes", file.stamp.bytes},
                           {"xxh64", digest_text(file.stamp.hash)},
                           {"tensors", file.tensors}};
  }
  json["xxh64"] = hash_of(json);
  DurableFile file("checkpoint", path);
  file.write(json.dump(1) + "\n");
  (void)file.finish();
}

CheckpointIndex read_index(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& why) {
    throw IoError("checkpoint", path.string() + " is damaged: " + why);
  };
  const MappedFile file("checkpoint", path);
  const auto* const text = reinterpret_cast<const char*>(file.bytes().data());
  if (line_of_deep_json({text, file.bytes().size()})) refuse("its JSON is nested too deeply");
  Json json = Json::parse(text, text + file.bytes().size(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse("it is no JSON object");
  const std::string schema = json.value("schema", Json()).dump();
  if (schema != Json(kCheckpointSchema).dump()) {
    refuse(std::string(kCheckpointSchema) + " wanted, found " + schema);
  }
  const Json hash = json.value("xxh64", Json());
  json.erase("xxh64");
  if (hash != Json(hash_of(json))) refuse("its text and its hash do not belong together");
  CheckpointIndex index;
  try {
    index.state = state_from(json.at("state"));
    for (const auto& [name, value] : json.at("files").items()) {
      const auto stamp = parse_digest(value.at("xxh64").get<std::string>()).value();
      index.files[name] = {{value.at("bytes").get<std::uint64_t>(), stamp},
                           value.at("tensors").get<std::vector<std::string>>()};
    }
  } catch (const std::exception& error) {  // Of JSON or of an optional.
    refuse(error.what());
  }
  for (const auto& [name, entry] : index.files) {
    if (is_file_name(name)) continue;
    refuse("the name of a file in its folder wanted, found " + Json(name).dump() +
           "; get the checkpoint again from where it was written");
  }
  return index;
}

}  // namespace spillway::app
