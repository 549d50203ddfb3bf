// Declares the verbs about data sets (`sparfuse data prepare | list | check | show`) and about
// weights.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "harness/cli/program.hpp"

namespace sparfuse::harness {

struct DataPrepareRequest {
  std::string name;
  std::filesystem::path from;
  std::filesystem::path out;                 // "": NAME in the data directory
  std::filesystem::path val_labels;          // of images that lie flat, or ""
  std::filesystem::path tokenizer;           // of texts; "": words; of questions
  int window = 0, stride = 0, question = 0;  // of questions, in pieces; 0: the usual values of BERT
  bool accept = false;
};
// Each returns kTrialFailed if something is wrong with the data; sparfuse_data prints the reason.
int DataPrepareVerb(Program& program, const DataPrepareRequest& request);
int DataListVerb(Program& program);
int DataCheckVerb(Program& program, const std::string& name);
// Prints exact match and F1 of answers against prepared questions.
int DataScoreVerb(Program& program, const std::string& name, const std::filesystem::path& answers);

struct DataShowRequest {
  std::string name, split = "train";
  std::size_t image = 0;
  std::filesystem::path out;  // FILE.ppm
};
// Writes an image as training decodes it, before it is cut.
int DataShowVerb(Program& program, const DataShowRequest& request);

// Writes weights of PyTorch, or safetensors in one or several files, as one safetensors file.
int WeightsPrepareVerb(Program& program, const std::string& name,
                       const std::filesystem::path& from);
// Prints a line for each tensor of the file and each parameter of the workload: filled, skipped and
// why, fresh, or missing. Returns kTrialFailed if the file is not of this model.
// data: the data set that the model trains on, or "".
int WeightsCheckVerb(Program& program, const std::string& workload, const std::string& weights,
                     const std::string& data);

}  // namespace sparfuse::harness
