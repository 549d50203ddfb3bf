// Runs a workload's model on weights and inputs from files and writes its outputs, for comparison
// with other programs (scripts/accuracy/library_models.py, minilm_test.py).
//
//   weights_outputs WORKLOAD WEIGHTS INPUTS OUT [outputs]
//
// Files are in the safetensors format. INPUTS has `inputs`, in the form of a ForwardPass, and may
// have `targets`, in the form of a Task. OUT gets the `logits` of an evaluation. If there are
// targets, OUT also gets the `loss` of a training step, its `training.logits`, `gradient.NAME` of
// each parameter that has one, and the running statistics after the step, `statistic.NAME`.
// Dropout is off. With `outputs`, for BERT, OUT gets the head's input for each token instead of the
// logits.
#include <ATen/ops/eye.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/models/description.hpp"
#include "workloads/models/forward_pass.hpp"
#include "workloads/tasks/task.hpp"
#include "workloads/torch/parameter_set.hpp"
#include "workloads/torch/pch.hpp"
#include "workloads/weights/safetensors.hpp"
#include "workloads/weights/weights.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::uint64_t kSeed = 1;

at::Tensor TensorOf(const StoredTensor& stored) {
  if (stored.type != "I64") {
    std::vector<float> values = ValuesOf(stored);
    return at::from_blob(values.data(), stored.shape, at::kFloat).clone();
  }
  const at::Tensor tensor = at::empty(stored.shape, at::kLong);
  std::memcpy(tensor.mutable_data_ptr(), stored.bytes.data(), stored.bytes.size());
  return tensor;
}

// The tensor of this name; undefined if the file does not have it.
at::Tensor Find(const SafeTensors& file, std::string_view name) {
  for (const StoredTensor& stored : file.tensors()) {
    if (stored.name == name) return TensorOf(stored);
  }
  return {};
}

using Named = std::vector<std::pair<std::string, at::Tensor>>;

void Write(const std::filesystem::path& path, const Named& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::size_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = std::exchange(end, end + tensor.nbytes());
    header[name] = {
        {"dtype", "F32"}, {"shape", tensor.sizes().vec()}, {"data_offsets", {begin, end}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(text.data(), static_cast<std::streamsize>(length));
  for (const auto& [name, tensor] : tensors) {
    out.write(static_cast<const char*>(tensor.const_data_ptr()),
              static_cast<std::streamsize>(tensor.nbytes()));
  }
  if (!out.flush()) SPARFUSE_THROW(kData, path.string() + ": cannot be written");
}

ModelSize WithoutDropout(ModelSize size) {
  std::visit(
      [](auto& family) {
        if constexpr (requires { family.dropout; }) family.dropout = 0;
      },
      size);
  return size;
}

void AddTrainingStep(const ModelSize& size, const ParameterSet& parameters, const WeightMap& map,
                     const ForwardPass& model, Batch batch, Named& results) {
  at::Tensor logits;
  const ForwardPass kept = [&](const at::Tensor& inputs, Dropout& dropout) {
    return logits = model(inputs, dropout);
  };
  Dropout training(kSeed, at::kCPU);
  const at::Tensor loss = MakeSyntheticTask(size, 1, kept)->Loss(batch, training);
  loss.backward();
  results.emplace_back("loss", loss.detach());
  results.emplace_back("training.logits", logits.detach().contiguous());
  for (const ParameterInfo& info : parameters.infos()) {
    const at::Tensor& gradient = parameters[info.name].grad();
    if (gradient.defined()) results.emplace_back("gradient." + info.name, gradient.contiguous());
  }
  for (const WeightMap::Filled& filled : map.filled) {
    if (!filled.statistic) continue;
    const std::size_t dot = filled.parameter.rfind('.');
    const ParameterSet::Running running = parameters.RunningOf(filled.parameter.substr(0, dot));
    const bool mean = filled.parameter.substr(dot) == ".running_mean";
    results.emplace_back("statistic." + filled.parameter, mean ? running.mean : running.variance);
  }
}

void Run(int argc, char** argv) {
  const bool of_tokens = argc == 6 && std::string_view(argv[5]) == "outputs";
  if (argc != 5 && !of_tokens)
    SPARFUSE_THROW(kConfig, "expected WORKLOAD WEIGHTS INPUTS OUT [outputs]");
  const ModelSize size = WithoutDropout(FindWorkload(argv[1]).model);
  at::set_num_threads(1);
  ParameterSet parameters(Describe(size), kSeed, at::kCPU);
  const ForwardPass model =
      std::visit([&](const auto& family) { return Build(family, parameters); }, size);
  WeightMap map;
  {
    const SafeTensors weights(argv[2]);
    map = MapWeights(size, weights.tensors());
    map.Require(argv[2]);
    parameters.Fill(map, weights.tensors());
  }
  const SafeTensors given(argv[3]);
  const at::Tensor inputs = Find(given, "inputs"), targets = Find(given, "targets");
  if (!inputs.defined()) SPARFUSE_THROW(kData, std::string(argv[3]) + ": has no tensor `inputs`");
  Named results;
  if (of_tokens) {
    const auto* bert = std::get_if<BertSize>(&size);
    if (bert == nullptr) SPARFUSE_THROW(kConfig, std::string(argv[1]) + " is no BERT");
    const at::NoGradGuard no_graph;  // a head that changes nothing
    parameters["qa_outputs.weight"].set_data(at::eye(bert->width));
    parameters["qa_outputs.bias"].set_data(at::zeros({bert->width}));
  }
  {
    const at::NoGradGuard no_graph;
    Dropout evaluation;
    results.emplace_back("logits", model(inputs, evaluation).contiguous());
  }
  if (targets.defined()) AddTrainingStep(size, parameters, map, model, {inputs, targets}, results);
  Write(argv[4], results);
}

}  // namespace
}  // namespace sparfuse::workloads

int main(int argc, char** argv) {
  try {
    sparfuse::workloads::Run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weights_outputs: %s\n", error.what());
    return 1;
  }
}
