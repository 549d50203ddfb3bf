#include "workloads/weights/weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/expression.hpp"
#include "workloads/models/description.hpp"

namespace sparfuse::workloads {
namespace {

using MaybeExpression = std::optional<Expression>;

MaybeExpression Fitting(std::string_view text) { return Expression(text, text); }
bool Fits(const std::string& name, const MaybeExpression& expression) {
  return expression && expression->FoundIn(name);
}

// The names in a family's files, and the tensors that the family has no use for.
struct Names {
  std::vector<std::string> prefixes = {};  // prefixes that files may put before a name
  std::string added = {};                  // prefix of our names that files may lack
  std::vector<std::pair<MaybeExpression, std::string>> changes = {};
  MaybeExpression buffers = {};         // tensors that correspond to no parameter
  MaybeExpression heads = {};           // parameters that may start fresh
  std::string tied = {}, tied_to = {};  // a copy of another tensor, which files may contain
  bool transposes_linear = false;
};

Names NamesOf(const BertSize&) {
  return {.prefixes = {"bert."},
          .changes = {{Fitting("LayerNorm\\.gamma$"), "LayerNorm.weight"},
                      {Fitting("LayerNorm\\.beta$"), "LayerNorm.bias"},
                      {Fitting("dense_act\\."), "dense."}},
          .buffers = Fitting("^cls\\.|^embeddings\\.position_ids$"),
          .heads = Fitting("^qa_outputs\\.|^pooler\\.")};
}
Names NamesOf(const GptSize& size) {
  return {.prefixes = {"transformer."},
          .buffers = Fitting("\\.attn\\.(bias|masked_bias)$"),
          .tied = "lm_head.weight",
          .tied_to = "wte.weight",
          .transposes_linear = size.rows_are_outputs};
}
Names NamesOf(const VitSize&) {
  return {.added = "vit.",
          .buffers = Fitting("(^|vit\\.)pooler\\."),
          .heads = Fitting("^classifier\\.")};
}
Names NamesOf(const ResnetSize&) {
  return {.buffers = Fitting("num_batches_tracked$"), .heads = Fitting("^fc\\.")};
}
Names NamesOf(const VggSize&) {
  return {.buffers = Fitting("num_batches_tracked$"), .heads = Fitting("^classifier\\.6\\.")};
}
Names NamesOf(const LstmSize& size) {
  Names names;
  if (size.tied) {
    names.tied = "decoder.weight";
    names.tied_to = "encoder.weight";
  }
  return names;
}
// PyTorch's example stores its position waves, which we compute.
Names NamesOf(const TransformerSize&) { return {.buffers = Fitting("^pos_encoder\\.pe$")}; }
template <class Size>
Names NamesOf(const Size&) {
  return {};
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

// Takes off the prefixes of programs that save a model within another module: DataParallel,
// torch.compile, and Lightning's modules that have it as `model`.
std::string WithoutWrappers(std::string name, const std::set<std::string, std::less<>>& ours) {
  constexpr std::array<std::string_view, 3> kWrappers = {"module.", "_orig_mod.", "model."};
  for (bool again = true; again && !ours.contains(name);) {
    again = false;
    for (const std::string_view wrapper : kWrappers) {
      if (!name.starts_with(wrapper)) continue;
      name.erase(0, wrapper.size());
      again = true;
    }
  }
  return name;
}

std::string OurName(const Names& names, const std::set<std::string, std::less<>>& ours,
                    std::string name) {
  name = WithoutWrappers(std::move(name), ours);
  for (const std::string& prefix : names.prefixes) {
    if (name.starts_with(prefix)) name = name.substr(prefix.size());
  }
  for (const auto& [from, to] : names.changes) {
    std::vector<std::string_view> found;
    if (!from->Find(name, found)) continue;
    name.replace(static_cast<std::size_t>(found[0].data() - name.data()), found[0].size(), to);
  }
  if (!names.added.empty() && !ours.contains(name) && ours.contains(names.added + name))
    name = names.added + name;
  return name;
}

class Mapping {
 public:
  Mapping(const Names& names, const ModelDescription& model,
          const std::vector<StoredTensor>& tensors)
      : names_(names), tensors_(tensors) {
    for (const ParameterDescription& parameter : model.parameters())
      shapes_[parameter.name] = parameter.shape;
    for (const RunningStatistics& norm : model.statistics()) {
      for (const char* part : {".running_mean", ".running_var"}) {
        shapes_[norm.name + part] = {norm.width};
        statistics_.insert(norm.name + part);
      }
    }
    for (const auto& [name, shape] : shapes_) ours_.insert(name);
  }

  WeightMap Make() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) Place(i);
    for (const auto& [name, shape] : shapes_) {
      if (filled_.contains(name)) continue;
      (Fits(name, names_.heads) ? map_.fresh : map_.missing).push_back(name);
    }
    return std::move(map_);
  }

 private:
  void Place(std::size_t i) {
    const StoredTensor& tensor = tensors_[i];
    const std::string name = OurName(names_, ours_, tensor.name);
    const auto skip = [&](const char* why) { map_.skipped.push_back({tensor.name, why}); };
    if (Fits(name, names_.buffers)) return skip("no parameter of this model");
    if (!names_.tied.empty() && name == names_.tied) return PlaceTied(i);
    const auto found = shapes_.find(name);
    if (found == shapes_.end()) return map_.unknown.push_back(tensor.name);
    if (!filled_.insert(name).second) {
      return map_.unfit.push_back(tensor.name + ": " + name + " is filled already");
    }
    const auto& shape = found->second;
    WeightMap::Filled filled{
        .parameter = name, .tensor = i, .statistic = statistics_.contains(name)};
    const bool linear = names_.transposes_linear && shape.size() == 2 && name.starts_with("h.");
    std::vector<std::int64_t> expected = shape;
    if (linear) std::ranges::reverse(expected);
    filled.transposed = linear;
    const bool words = name == "embeddings.word_embeddings.weight";
    if (words && tensor.shape.size() == 2 && tensor.shape[1] == shape[1] &&
        tensor.shape[0] < shape[0] && shape[0] - tensor.shape[0] < 8) {
      filled.padded = true;  // rows up to a multiple of eight
    } else if (tensor.shape != expected) {
      filled_.erase(name);
      if (Fits(name, names_.heads)) return skip("a head of another size");
      return map_.unfit.push_back(tensor.name + " " + ShapeText(tensor.shape) + ", expected " +
                                  ShapeText(expected));
    }
    map_.filled.push_back(std::move(filled));
  }

  // If the bytes of the tied tensor differ, the file belongs to another model.
  void PlaceTied(std::size_t i) {
    const auto other = std::ranges::find_if(tensors_, [&](const StoredTensor& tensor) {
      return OurName(names_, ours_, tensor.name) == names_.tied_to;
    });
    const bool same =
        other != tensors_.end() && std::ranges::equal(other->bytes, tensors_[i].bytes);
    if (same) return map_.skipped.push_back({tensors_[i].name, "the same as " + other->name});
    map_.unfit.push_back(tensors_[i].name + ": differs from " + names_.tied_to +
                         ", to which this model ties it");
  }

  const Names& names_;
  const std::vector<StoredTensor>& tensors_;
  std::map<std::string, std::vector<std::int64_t>, std::less<>> shapes_;
  std::set<std::string, std::less<>> ours_, statistics_, filled_;
  WeightMap map_;
};

void AddNames(std::string& text, const char* what, const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5;
  if (names.empty()) return;
  text += text.empty() ? "" : "; ";
  text += what;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i)
    text += (i == 0 ? " " : ", ") + names[i];
  if (names.size() > kMost) text += " and " + std::to_string(names.size() - kMost) + " more";
}

}  // namespace

void WeightMap::Require(std::string_view file) const {
  std::string problems;
  AddNames(problems, "nothing fills", missing);
  AddNames(problems, "of another size:", unfit);
  AddNames(problems, "unknown:", unknown);
  if (problems.empty()) return;
  SPARFUSE_THROW(kData, std::string(file) + ": is not a file of this model: " + problems +
                            "; `sparfuse weights check WORKLOAD FILE` lists all of it");
}

WeightMap MapWeights(const ModelSize& size, const std::vector<StoredTensor>& tensors) {
  const Names names = std::visit([](const auto& family) { return NamesOf(family); }, size);
  return Mapping(names, Describe(size), tensors).Make();
}

}  // namespace sparfuse::workloads
