// Gives models the initial values of the programs that the papers train them with.
//
// Source: PyTorch's defaults (linear layers, convolutions and recurrent layers: uniform within
// 1/sqrt(inputs)); torchvision's ResNet and VGG for ImageNet (He et al. by outputs); PyTorch's
// example of a word-level language model (embedding and decoder uniform within 0.1); Hugging Face's
// BERT, GPT-2 and ViT (normal of deviation 0.02).
// Deviations: our values of ViT are normal; the program truncates them at two units, which a
// deviation of 0.02 never reaches.
#include <cmath>
#include <string_view>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {
namespace {

bool Has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// Inputs of a linear layer [out, in] or a convolution [out, in, kernel, kernel].
double Inputs(const ParameterDescription& weight) {
  return static_cast<double>(weight.numel()) / static_cast<double>(weight.shape.front());
}
double Outputs(const ParameterDescription& weight) {
  return static_cast<double>(weight.numel()) / static_cast<double>(weight.shape[1]);
}

void Normal(ParameterDescription& parameter, double deviation) {
  parameter.uniform = false;
  parameter.deviation = deviation;
}

void Within(ParameterDescription& parameter, double bound) {
  parameter.uniform = true;
  parameter.deviation = bound / std::sqrt(3.0);
}

// A bias follows its weight and has the same number of inputs.
void TorchDefaults(ModelDescription& model) {
  double inputs = 1;
  for (ParameterDescription& parameter : model.parameters()) {
    if (parameter.shape.size() > 1) inputs = Inputs(parameter);
    if (parameter.mean == 0) Within(parameter, 1 / std::sqrt(inputs));
    if (parameter.shape.size() == 1 && parameter.mean == 1)
      inputs = 0;  // a norm has no inputs: its bias is 0
    if (inputs == 0) Normal(parameter, 0);
  }
}

void Initial(const ResnetSize& size, ModelDescription& model) {
  TorchDefaults(model);
  if (!size.strided_stem) return;
  for (ParameterDescription& parameter : model.parameters()) {
    if (parameter.shape.size() == 4) Normal(parameter, std::sqrt(2 / Outputs(parameter)));
  }
}

void Initial(const VggSize& size, ModelDescription& model) {
  TorchDefaults(model);
  if (size.data.image <= 64) return;
  for (ParameterDescription& parameter : model.parameters()) {
    const std::size_t dimensions = parameter.shape.size();
    Normal(parameter, dimensions == 4   ? std::sqrt(2 / Outputs(parameter))
                      : dimensions == 2 ? 0.01
                                        : 0);
  }
}

// Initialises the embedding and the decoder as PyTorch's example does.
void WordModel(ModelDescription& model) {
  for (ParameterDescription& parameter : model.parameters()) {
    if (parameter.name == "encoder.weight" || parameter.name == "decoder.weight")
      Within(parameter, 0.1);
    if (parameter.name == "decoder.bias") Normal(parameter, 0);
  }
}

void Initial(const LstmSize& size, ModelDescription& model) {
  const double bound = 1 / std::sqrt(static_cast<double>(size.hidden));
  for (ParameterDescription& parameter : model.parameters()) {
    if (Has(parameter.name, "rnn.")) Within(parameter, bound);
  }
  WordModel(model);
}

void Initial(const TransformerSize&, ModelDescription& model) {
  TorchDefaults(model);
  for (ParameterDescription& parameter : model.parameters()) {
    if (Has(parameter.name, "in_proj_weight"))  // Xavier
      Within(parameter, std::sqrt(6 / (Inputs(parameter) + Outputs(parameter))));
    if (Has(parameter.name, "in_proj_bias") || Has(parameter.name, "out_proj.bias"))
      Normal(parameter, 0);
  }
  WordModel(model);
}

// Our values equal the published ones except for the size of the deviation.
void NormalOf(double deviation, double own, ModelDescription& model) {
  for (ParameterDescription& parameter : model.parameters()) parameter.deviation *= deviation / own;
}
void Initial(const BertSize& size, ModelDescription& model) {
  NormalOf(0.02, size.deviation, model);
}
void Initial(const GptSize& size, ModelDescription& model) {
  NormalOf(0.02, size.deviation, model);
}
void Initial(const VitSize& size, ModelDescription& model) {
  NormalOf(0.02, size.deviation, model);
  for (ParameterDescription& parameter : model.parameters()) {
    if (parameter.shape.size() == 4) Normal(parameter, 0.02);
  }
}

// No paper trains these models.
void Initial(const DigitsResnetSize&, ModelDescription&) {}
void Initial(const NgramSize&, ModelDescription&) {}

}  // namespace

void SetPublishedInitialValues(const ModelSize& size, ModelDescription& model) {
  std::visit([&](const auto& family) { Initial(family, model); }, size);
  model.has_published_values = true;
}

}  // namespace sparfuse::workloads
