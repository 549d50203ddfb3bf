// Describes vision transformers, named and divided as in Hugging Face's program, which the papers'
// scripts run: queries, keys and values are separate. Gradients come in the reverse order of that
// registration, but the projection of the patches comes last, and bias before weight in linear
// layers.
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

ModelDescription Describe(const VitSize& size) {
  const std::int64_t width = size.width;
  const std::int64_t along = size.data.image / size.patch;
  const std::int64_t patches = along * along;
  const std::int64_t tokens = patches + 1;
  const auto mixing = static_cast<double>(tokens * tokens * width);
  const std::string embeddings = "vit.embeddings.";
  ModelDescription model;
  model.Convolution(embeddings + "patch_embeddings.projection", width, size.data.channels,
                    size.patch, patches, /*bias=*/true);
  model.Operation(
      {{.name = embeddings + "cls_token", .shape = {1, 1, width}, .deviation = size.deviation}});
  model.Operation({{.name = embeddings + "position_embeddings",
                    .shape = {1, tokens, width},
                    .deviation = size.deviation}});
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string name = "vit.encoder.layer." + std::to_string(layer) + ".";
    const auto linear = [&](const char* part, std::int64_t out, std::int64_t in, double further) {
      model.Linear(name + part, out, in, tokens, size.deviation, further);
    };
    model.Norm(name + "layernorm_before", width);
    linear("attention.attention.query", width, width, mixing / 2);
    linear("attention.attention.key", width, width, mixing / 2);
    linear("attention.attention.value", width, width, mixing);
    linear("attention.output.dense", width, width, 0);
    model.Norm(name + "layernorm_after", width);
    linear("intermediate.dense", size.expanded, width, 0);
    linear("output.dense", width, size.expanded, 0);
  }
  model.Norm("vit.layernorm", width);
  model.Linear("classifier", size.data.classes, width, 1, size.deviation);
  return model;
}

}  // namespace sparfuse::workloads
