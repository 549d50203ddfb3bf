#include "workloads/models/description.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/base/error.hpp"
#include "workloads/data/prepared.hpp"

namespace sparfuse::workloads {

std::size_t ParameterDescription::numel() const {
  return static_cast<std::size_t>(
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

std::size_t ModelDescription::Operation(std::vector<ParameterDescription> parameters,
                                        const std::vector<std::size_t>& ready) {
  std::vector<std::size_t> operation(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    operation[i] = parameters_.size() + (ready.empty() ? i : ready[i]);
  }
  for (ParameterDescription& parameter : parameters) parameters_.push_back(std::move(parameter));
  operations_.push_back(std::move(operation));
  return operations_.size() - 1;
}

std::size_t ModelDescription::Convolution(const std::string& name, std::int64_t out,
                                          std::int64_t in, std::int64_t kernel,
                                          std::int64_t positions, bool bias) {
  const auto inputs = static_cast<double>(in * kernel * kernel);
  std::vector<ParameterDescription> parameters{
      {.name = name + ".weight",
       .shape = {out, in, kernel, kernel},
       .deviation = std::sqrt(2.0 / inputs),
       .macs = inputs * static_cast<double>(out * positions)}};
  if (bias) parameters.push_back({.name = name + ".bias", .shape = {out}});
  return Operation(std::move(parameters));
}

void ModelDescription::Norm(const std::string& name, std::int64_t width) {
  Operation({{.name = name + ".weight", .shape = {width}, .mean = 1},
             {.name = name + ".bias", .shape = {width}}});
}

void ModelDescription::BatchNorm(const std::string& name, std::int64_t width) {
  Norm(name, width);
  statistics_.push_back({name, width});
}

void ModelDescription::Linear(const std::string& name, std::int64_t out, std::int64_t in,
                              std::int64_t positions, double deviation, double further_macs) {
  Operation({{.name = name + ".weight",
              .shape = {out, in},
              .deviation = deviation,
              .macs = static_cast<double>(out * in * positions) + further_macs},
             {.name = name + ".bias", .shape = {out}}},
            {1, 0});
}

void ModelDescription::Embedding(const std::string& name, std::int64_t rows, std::int64_t width,
                                 double deviation) {
  Operation({{.name = name + ".weight", .shape = {rows, width}, .deviation = deviation}});
}

void ModelDescription::TieWeight(std::string_view name, double macs) {
  const auto found =
      std::find_if(parameters_.begin(), parameters_.end(),
                   [&](const ParameterDescription& parameter) { return parameter.name == name; });
  if (found == parameters_.end()) {
    SPARFUSE_THROW(kInternal, "no parameter \"" + std::string(name) + "\" to tie");
  }
  found->macs += macs;
}

void ModelDescription::WithoutGradient(ParameterDescription parameter) {
  without_gradient_.push_back(parameters_.size());
  parameters_.push_back(std::move(parameter));
}

void ModelDescription::MoveLastBefore(std::size_t before) {
  std::rotate(operations_.begin() + static_cast<std::ptrdiff_t>(before), operations_.end() - 1,
              operations_.end());
}

LayerTable ModelDescription::InReadyOrder() const {
  LayerTable table;
  for (auto operation = operations_.rbegin(); operation != operations_.rend(); ++operation) {
    for (const std::size_t i : *operation) {
      const ParameterDescription& parameter = parameters_[i];
      table.tensors.push_back({parameter.name, parameter.shape, parameter.numel(), parameter.macs});
    }
  }
  for (const std::size_t i : without_gradient_) {
    table.without_gradient.push_back(parameters_[i].name);
  }
  return table;
}

ModelDescription Describe(const ModelSize& size) {
  return std::visit([](const auto& family) { return Describe(family); }, size);
}

ModelSize ModelForData(ModelSize size, const PreparedMeta& data) {
  std::visit(
      [&](auto& family) {
        if constexpr (requires { family.data; }) {
          family.data.classes = static_cast<std::int64_t>(data.classes.size());
        } else if constexpr (requires { family.vocabulary; }) {
          family.vocabulary = static_cast<std::int64_t>(data.vocabulary);
        }
        // BERT's rows are padded with rows that no text uses, as in the papers' program.
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(family)>, BertSize>)
          family.vocabulary = (family.vocabulary + 7) / 8 * 8;
      },
      size);
  return size;
}

}  // namespace sparfuse::workloads
