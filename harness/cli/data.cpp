// Prepares, lists, checks and shows data sets and weights: `sparfuse data`, `sparfuse weights`.
#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "workloads/data/data_file.hpp"
#include "workloads/data/image.hpp"
#include "workloads/data/prepared.hpp"
#include "workloads/weights/safetensors.hpp"
#include "workloads/weights/weights.hpp"

namespace sparfuse::harness {

namespace {

namespace fs = std::filesystem;

// Runs the Python package that reads foreign formats.
int RunSparfuseData(const Program& program, const std::vector<std::string>& arguments) {
  const fs::path folder = program.root() / "harness" / "data";
  if (!fs::exists(folder / "sparfuse_data"))
    SPARFUSE_THROW(kConfig, "no " + folder.string() + ": expected the project's root with --root");
  return RunPackage(program, folder / "sparfuse_data", arguments);
}

fs::path FolderNamed(const std::string& name) {
  return workloads::PreparedFolder(workloads::ResolveDataDirectory({}), name);
}

// `kept`: names that something else has in the folder of data sets.
void RequireName(const std::string& verb, const std::string& name,
                 const std::set<std::string>& kept, const char* more) {
  if (name.find('/') == std::string::npos && !name.starts_with('.') &&
      !name.ends_with(".partial") && !kept.contains(name)) {
    return;
  }
  SPARFUSE_THROW(kConfig,
                 fmt::format("{} prepare {}: expected a name without /, that does not begin with a "
                             "dot or end with .partial{}",
                             verb, name, more));
}

}  // namespace

int DataPrepareVerb(Program& program, const DataPrepareRequest& request) {
  // scripts/setup makes digits and text; weights are prepared weights.
  RequireName("data", request.name, {"digits", "text", "weights"},
              " and is none of digits, text and weights; --out says where its folder is written");
  const fs::path out = request.out.empty() ? FolderNamed(request.name) : request.out;
  std::vector<std::string> arguments = {"prepare", request.name, "--from", request.from.string(),
                                        "--out",   out.string()};
  for (const auto& [option, value] : {std::pair("--val-labels", &request.val_labels),
                                      std::pair("--tokenizer", &request.tokenizer)}) {
    if (value->empty()) continue;
    arguments.emplace_back(option);
    arguments.push_back(value->string());
  }
  for (const auto& [option, value] :
       {std::pair("--window", request.window), std::pair("--stride", request.stride),
        std::pair("--question", request.question)}) {
    if (value == 0) continue;
    arguments.emplace_back(option);
    arguments.push_back(std::to_string(value));
  }
  if (request.accept) arguments.emplace_back("--accept");
  return RunSparfuseData(program, arguments);
}

int DataListVerb(Program& program) {
  std::vector<std::string> arguments = {"list", workloads::ResolveDataDirectory({}).string()};
  if (program.json()) arguments.emplace_back("--json");
  return RunSparfuseData(program, arguments);
}

int DataCheckVerb(Program& program, const std::string& name) {
  return RunSparfuseData(program, {"check", FolderNamed(name).string()});
}

int DataScoreVerb(Program& program, const DataScoreRequest& request) {
  return RunSparfuseData(program,
                         {"score", FolderNamed(request.name).string(), request.answers.string()});
}

int DataShowVerb(Program&, const DataShowRequest& request) {
  const workloads::PreparedData data(FolderNamed(request.name));
  if (data.meta().kind != "images" || data.meta().coding != "files") {
    SPARFUSE_THROW(kConfig,
                   fmt::format("data show {}: expected a data set of image files", request.name));
  }
  if (request.image >= data.count(request.split)) {
    SPARFUSE_THROW(kConfig, fmt::format("data show {}: image {}: {} has {}", request.name,
                                        request.image, request.split, data.count(request.split)));
  }
  const auto record = data.Record(request.split, request.image);
  const workloads::Image image = workloads::DecodeImage(
      record, fmt::format("{}: image {} of {}", request.name, request.image, request.split));
  std::string ppm = fmt::format("P6\n{} {}\n255\n", image.width, image.height);
  ppm.append(reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size());
  WriteFileDurably(request.out, ppm);
  const std::uint16_t label = data.Label(request.split, request.image);
  fmt::print("{}: image {} of {}, class {} ({}), {} x {}\n", request.out.string(), request.image,
             request.split, label, data.meta().classes.at(label), image.width, image.height);
  return kDone;
}

int WeightsPrepareVerb(Program& program, const WeightsPrepareRequest& request) {
  RequireName("weights", request.name, {}, "");
  const fs::path out = workloads::WeightsFile(workloads::ResolveDataDirectory({}), request.name);
  return RunSparfuseData(program, {"weights", request.from.string(), out.string()});
}

int WeightsCheckVerb(Program& program, const WeightsCheckRequest& request) {
  const auto& [workload, weights, data] = request;
  const auto& known = NeedEntry(program.catalog().workloads, "workload", workload);
  const fs::path file = workloads::WeightsFile(workloads::ResolveDataDirectory({}), weights);
  const workloads::SafeTensors tensors(file);
  const workloads::ModelSize model =
      data.empty()
          ? known.model
          : workloads::ModelForData(known.model, workloads::ReadPreparedMeta(FolderNamed(data)));
  const workloads::WeightMap map = workloads::MapWeights(model, tensors.tensors());
  for (const auto& filled : map.filled) {
    fmt::print("filled   {}  from {}{}{}\n", filled.parameter,
               tensors.tensors()[filled.tensor].name, filled.transposed ? ", transposed" : "",
               filled.padded ? ", with rows of zeros" : "");
  }
  for (const auto& skipped : map.skipped)
    fmt::print("skipped  {}: {}\n", skipped.tensor, skipped.why);
  for (const auto& name : map.fresh) fmt::print("fresh    {}\n", name);
  for (const auto& name : map.missing) fmt::print("missing  {}\n", name);
  for (const auto& name : map.unknown) fmt::print("unknown  {}\n", name);
  for (const auto& name : map.unfit) fmt::print("unfit    {}\n", name);
  map.Require(file.string());
  for (const auto& filled : map.filled) workloads::ValuesOf(tensors.tensors()[filled.tensor]);
  fmt::print("{}: {} tensors fill {}; SHA-256 {}\n", file.string(), map.filled.size(), workload,
             tensors.Sha256());
  return kDone;
}

}  // namespace sparfuse::harness
