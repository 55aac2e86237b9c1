#include <cmath>
#include <set>

#include "plan/common_fields.hpp"
#include "plan/json_fields.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/profile.hpp"

namespace spillway {

template <typename Fields, MaybeConst<OperatorProfile> Value>
void describe(Fields& fields, Value& call) {
  fields("name", call.name);
  fields("scope", call.scope);
  fields("layer", call.layer);
  fields("device_ns", call.device_ns);
  fields("workspace", call.workspace);
}

template <typename Fields, MaybeConst<Producer> Value>
void describe(Fields& fields, Value& producer) {
  fields("name", producer.name);
  fields("scope", producer.scope);
  fields("layer", producer.layer);
  fields("call", producer.call);
}

template <typename Fields, MaybeConst<Save> Value>
void describe(Fields& fields, Value& save) {
  fields("saver", save.saver);
  fields("scope", save.scope);
}

template <typename Fields, MaybeConst<RecipeProfile> Value>
void describe(Fields& fields, Value& recipe) {
  fields("usable", recipe.usable);
  fields("reason", recipe.reason);
  fields("calls", recipe.calls);
  fields("inputs", recipe.inputs);
}

template <typename Fields, MaybeConst<BufferProfile> Value>
void describe(Fields& fields, Value& buffer) {
  fields("id", buffer.id);
  fields("size", buffer.size);
  fields("position", buffer.position);
  fields("layer", buffer.layer);
  fields("producer", buffer.producer);
  fields("saves", buffer.saves);
  fields("fixed", buffer.fixed);
  fields("release_order", buffer.release_order);
  fields("first_unpack", buffer.first_unpack);
  fields("last_unpack", buffer.last_unpack);
  fields("recipe", buffer.recipe);
}

template <typename Fields, MaybeConst<SiteProfile> Value>
void describe(Fields& fields, Value& site) {
  fields("buffer", site.buffer);
  fields("dtype", site.dtype);
  fields("sizes", site.sizes);
  fields("strides", site.strides);
  fields("offset", site.offset);
}

template <typename Fields, MaybeConst<ChunkProfile> Value>
void describe(Fields& fields, Value& chunk) {
  fields("chunk", chunk.chunk);
  fields("first_layer", chunk.first_layer);
  fields("layers", chunk.layers);
  fields("forward_ns", chunk.forward_ns);
  fields("backward_ns", chunk.backward_ns);
  fields("theoretical_peak", chunk.theoretical_peak);
  fields("measured_peak", chunk.measured_peak);
  fields("operators", chunk.operators);
  fields("buffers", chunk.buffers);
  fields("sites", chunk.sites);
  fields("unpack_order", chunk.unpack_order);
}

template <typename Fields, MaybeConst<LinkSpeed> Value>
void describe(Fields& fields, Value& link) {
  fields("out", link.out);
  fields("back", link.back);
  fields("out_with_back", link.out_with_back);
  fields("back_with_out", link.back_with_out);
}

template <typename Fields, MaybeConst<Profile> Value>
void describe(Fields& fields, Value& profile) {
  fields("device", profile.device);
  fields("link", profile.link);
  fields("layers", profile.layers);
  fields("layer_scope", profile.layer_scope);
  fields("pipeline_rank", profile.pipeline_rank);
  fields("chunks", profile.chunks);
}

namespace {

/// Counts of layers and ranks.
void check_count(int count, const JsonPath& path, const JsonSource& source) {
  constexpr int kMost = 1'000'000;
  if (count >= 0 && count <= kMost) return;
  refuse(source, path, "a number from 0 to 1000000 wanted, found " + std::to_string(count));
}

/// Numbers that point to something must point to something that is there.
class ChunkCheck {
 public:
  ChunkCheck(const ChunkProfile& chunk, const JsonPath& path, const JsonSource& source)
      : chunk_(chunk), path_(path), source_(source) {}

  void run() const {
    check_count(chunk_.first_layer, JsonPath(path_, "first_layer"), source_);
    check_count(chunk_.layers, JsonPath(path_, "layers"), source_);
    const JsonPath buffers(path_, "buffers");
    for (std::size_t i = 0; i < chunk_.buffers.size(); ++i) {
      check_buffer(chunk_.buffers[i], i, JsonPath(buffers, i));
    }
    const JsonPath sites(path_, "sites");
    for (std::size_t i = 0; i < chunk_.sites.size(); ++i) {
      const JsonPath site(sites, i);
      check_place(chunk_.sites[i].buffer, chunk_.buffers.size(), "buffer", JsonPath(site, "buffer"),
                  source_);
      if (chunk_.sites[i].sizes.size() != chunk_.sites[i].strides.size()) {
        refuse(source_, JsonPath(site, "strides"), "as many as sizes wanted");
      }
    }
    check_places(chunk_.unpack_order, chunk_.buffers.size(), "buffer",
                 JsonPath(path_, "unpack_order"), source_);
  }

 private:
  void check_buffer(const BufferProfile& buffer, std::size_t index, const JsonPath& path) const {
    if (buffer.id != static_cast<int>(index)) {
      refuse(source_, JsonPath(path, "id"),
             std::to_string(index) + ", its place in the list, wanted, found " +
                 std::to_string(buffer.id));
    }
    const Position& position = buffer.position;
    if (buffer.saves.empty() || buffer.saves.front() != Save{position.saver, position.scope}) {
      refuse(source_, JsonPath(path, "saves"), "must begin with the saver and scope of position");
    }
    const JsonPath producer(path, "producer");
    if (buffer.producer.call != -1) {
      check_place(buffer.producer.call, chunk_.operators.size(), "operator",
                  JsonPath(producer, "call"), source_);
    }
    const JsonPath recipe(path, "recipe");
    check_places(buffer.recipe.calls, chunk_.operators.size(), "operator",
                 JsonPath(recipe, "calls"), source_);
    check_places(buffer.recipe.inputs, chunk_.buffers.size(), "buffer", JsonPath(recipe, "inputs"),
                 source_);
    check_unpack(buffer.first_unpack, JsonPath(path, "first_unpack"));
    check_unpack(buffer.last_unpack, JsonPath(path, "last_unpack"));
  }

  void check_unpack(int place, const JsonPath& path) const {
    if (place != -1) check_place(place, chunk_.unpack_order.size(), "unpack", path, source_);
  }

  const ChunkProfile& chunk_;
  const JsonPath& path_;
  const JsonSource& source_;
};

}  // namespace

std::string to_json(const Profile& profile) {
  const LinkSpeed& link = profile.link;
  for (const double speed : {link.out, link.back, link.out_with_back, link.back_with_out}) {
    if (!std::isfinite(speed)) {
      throw InvalidArgument("profile",
                            "a link speed is not a finite number; measure the link again");
    }
  }
  return write_document(profile, kProfileSchema);
}

Profile profile_from_json(std::string_view text, std::string_view file_name) {
  const JsonSource source{"profile", file_name};
  auto profile = read_document<Profile>(text, source, kProfileSchema);
  const JsonPath root;
  check_count(profile.layers, JsonPath(root, "layers"), source);
  check_count(profile.pipeline_rank, JsonPath(root, "pipeline_rank"), source);
  const JsonPath chunks(root, "chunks");
  std::set<int> numbers;
  for (std::size_t i = 0; i < profile.chunks.size(); ++i) {
    const JsonPath path(chunks, i);
    ChunkCheck(profile.chunks[i], path, source).run();
    if (!numbers.insert(profile.chunks[i].chunk).second) {
      refuse(source, JsonPath(path, "chunk"),
             "chunk " + std::to_string(profile.chunks[i].chunk) + " is there twice");
    }
  }
  return profile;
}

}  // namespace spillway
