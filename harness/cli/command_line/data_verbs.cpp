// Adds the verbs about data sets.
#include <memory>

#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/data.hpp"

namespace sparfuse::harness {

void AddData(CommandLine& line) {
  auto* verb =
      line.app.add_subcommand("data", "data sets: prepare one for training, list them, check them");
  verb->require_subcommand(1);

  const auto wanted = std::make_shared<DataPrepareRequest>();
  auto* prepare = verb->add_subcommand(
      "prepare",
      "read a data set in one of its usual forms and write the form that training reads");
  prepare->add_option("name", wanted->name, "its name in experiments")
      ->required()
      ->check(NotEmpty("a name"));
  prepare->add_option("--from", wanted->from, "the folder, zip or tar that holds it")
      ->required()
      ->check(NotEmpty("a folder or an archive"));
  prepare->add_option("--out", wanted->out, "its folder (default: NAME in results/data)")
      ->check(NotEmpty("a folder"));
  prepare
      ->add_option("--val-labels", wanted->val_labels,
                   "for validation images in one flat folder: a file of lines \"IMAGE CLASS\", or "
                   "ImageNet's development kit")
      ->check(NotEmpty("a file"));
  prepare
      ->add_option("--tokenizer", wanted->tokenizer,
                   "for a text: tokenizer.json, or a folder with vocab.json and merges.txt "
                   "(default: words); for questions: BERT's vocab.txt or tokenizer.json")
      ->check(NotEmpty("a file or a folder"));
  prepare
      ->add_option("--window", wanted->window, "for questions: pieces of a window (default: 384)")
      ->check(CLI::Range(1, 65535));
  prepare
      ->add_option("--stride", wanted->stride,
                   "for questions: pieces between two windows (default: 128)")
      ->check(CLI::Range(1, 65535));
  prepare
      ->add_option("--question", wanted->question,
                   "for questions: pieces of a question that are kept (default: 64)")
      ->check(CLI::Range(1, 65535));
  prepare->add_flag("--accept", wanted->accept,
                    "accept a data set that differs from the well-known one of its name");
  prepare->callback([&line, wanted] {
    line.act = [wanted](Program& program) { return DataPrepareVerb(program, *wanted); };
  });

  auto* list = verb->add_subcommand("list", "prepared data sets");
  list->add_flag("--json", line.settings.json, "print JSON");
  list->callback([&line] { line.act = DataListVerb; });

  const auto name = std::make_shared<std::string>();
  auto* check =
      verb->add_subcommand("check", "check that no file of a prepared data set has changed");
  check->add_option("name", *name, "a name of `sparfuse data list`, or a folder")->required();
  check->callback([&line, name] {
    line.act = [name](Program& program) { return DataCheckVerb(program, *name); };
  });

  const auto scored = std::make_shared<std::pair<std::string, std::filesystem::path>>();
  auto* score = verb->add_subcommand(
      "score", "SQuAD's exact match and F1 of answers, such as a trial's predictions.json");
  score->add_option("name", scored->first, "a name of `sparfuse data list`, or a folder")
      ->required();
  score->add_option("answers", scored->second, "a JSON file, {\"ID\": \"answer\"}")->required();
  score->callback([&line, scored] {
    line.act = [scored](Program& program) {
      return DataScoreVerb(program, scored->first, scored->second);
    };
  });

  const auto shown = std::make_shared<DataShowRequest>();
  auto* show = verb->add_subcommand("show", "write an image as training decodes it");
  show->add_option("name", shown->name, "a name of `sparfuse data list`, or a folder")->required();
  show->add_option("image", shown->image, "its number")->required();
  show->add_option("--split", shown->split, "train (the default) or test");
  show->add_option("--out", shown->out, "FILE.ppm")->required()->check(NotEmpty("a file"));
  show->callback([&line, shown] {
    line.act = [shown](Program& program) { return DataShowVerb(program, *shown); };
  });
}

void AddWeights(CommandLine& line) {
  auto* verb = line.app.add_subcommand(
      "weights", "pretrained weights: prepare a file, check it against a workload");
  verb->require_subcommand(1);
  struct Request {
    std::string name, weights, data;
    std::filesystem::path from;
  };
  const auto wanted = std::make_shared<Request>();
  auto* prepare = verb->add_subcommand(
      "prepare", "write PyTorch's or safetensors files as one in results/data/weights");
  prepare->add_option("name", wanted->name, "its name in experiments")
      ->required()
      ->check(NotEmpty("a name"));
  prepare
      ->add_option("--from", wanted->from,
                   "a .safetensors, its .index.json, or a .bin, .pt or .pth file")
      ->required()
      ->check(NotEmpty("a file"));
  prepare->callback([&line, wanted] {
    line.act = [wanted](Program& program) {
      return WeightsPrepareVerb(program, wanted->name, wanted->from);
    };
  });
  const auto asked = std::make_shared<Request>();
  auto* check = verb->add_subcommand(
      "check", "list the tensors of a file with the parameters that they fill");
  check->add_option("workload", asked->name, "a name of `sparfuse list workloads`")->required();
  check->add_option("weights", asked->weights, "its name, or FOLDER/FILE.safetensors")->required();
  check->add_option("--data", asked->data,
                    "the data set of the training, which gives classes or vocabulary");
  check->callback([&line, asked] {
    line.act = [asked](Program& program) {
      return WeightsCheckVerb(program, asked->name, asked->weights, asked->data);
    };
  });
}

}  // namespace sparfuse::harness
