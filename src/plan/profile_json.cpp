#include <cmath>

#include "plan/common_fields.hpp"
#include "plan/json_fields.hpp"
#include "plan/profile_check.hpp"
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
  fields("reads", call.reads);
  fields("makes", call.makes);
  fields("no_replay", call.no_replay);
  fields("saves", call.saves);
  fields("ordinal", call.ordinal);
}

template <typename Fields, MaybeConst<ValueProfile> Value>
void describe(Fields& fields, Value& value) {
  fields("size", value.size);
  fields("call", value.call);
  fields("buffer", value.buffer);
  fields("lasting", value.lasting);
  fields("overwritten", value.overwritten);
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
  fields("value", buffer.value);
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
  fields("values", chunk.values);
  fields("buffers", chunk.buffers);
  fields("sites", chunk.sites);
  fields("calls_before_first_save", chunk.calls_before_first_save);
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
  check_profile(profile, source);
  return profile;
}

}  // namespace spillway
