// Adds the verbs about data sets.
#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

void AddData(CommandLine& line) {
  auto* verb =
      line.app.add_subcommand("data", "data sets: prepare one for training, list them, check them");
  verb->require_subcommand(1);

  const auto [prepare, wanted] = AddVerbBelow<DataPrepareRequest>(
      line, *verb, "prepare",
      "read a data set in one of its usual forms and write the form that training reads",
      DataPrepareVerb);
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

  AddVerbBelow(line, *verb, "list", "prepared data sets", DataListVerb)
      ->add_flag("--json", line.settings.json, "print JSON");

  const auto [check, name] = AddVerbBelow<std::string>(
      line, *verb, "check", "check that no file of a prepared data set has changed", DataCheckVerb);
  check->add_option("name", *name, "a name of `sparfuse data list`, or a folder")->required();

  const auto [score, scored] = AddVerbBelow<DataScoreRequest>(
      line, *verb, "score",
      "SQuAD's exact match and F1 of answers, such as a trial's predictions.json", DataScoreVerb);
  score->add_option("name", scored->name, "a name of `sparfuse data list`, or a folder")
      ->required();
  score->add_option("answers", scored->answers, "a JSON file, {\"ID\": \"answer\"}")->required();

  const auto [show, shown] = AddVerbBelow<DataShowRequest>(
      line, *verb, "show", "write an image as training decodes it", DataShowVerb);
  show->add_option("name", shown->name, "a name of `sparfuse data list`, or a folder")->required();
  show->add_option("image", shown->image, "its number")->required();
  show->add_option("--split", shown->split, "train (the default) or test");
  show->add_option("--out", shown->out, "FILE.ppm")->required()->check(NotEmpty("a file"));
}

void AddWeights(CommandLine& line) {
  auto* verb = line.app.add_subcommand(
      "weights", "pretrained weights: prepare a file, check it against a workload");
  verb->require_subcommand(1);
  const auto [prepare, wanted] = AddVerbBelow<WeightsPrepareRequest>(
      line, *verb, "prepare", "write PyTorch's or safetensors files as one in results/data/weights",
      WeightsPrepareVerb);
  prepare->add_option("name", wanted->name, "its name in experiments")
      ->required()
      ->check(NotEmpty("a name"));
  prepare
      ->add_option("--from", wanted->from,
                   "a .safetensors, its .index.json, or a .bin, .pt or .pth file")
      ->required()
      ->check(NotEmpty("a file"));
  const auto [check, asked] = AddVerbBelow<WeightsCheckRequest>(
      line, *verb, "check", "list the tensors of a file with the parameters that they fill",
      WeightsCheckVerb);
  check->add_option("workload", asked->workload, "a name of `sparfuse list workloads`")->required();
  check->add_option("weights", asked->weights, "its name, or FOLDER/FILE.safetensors")->required();
  check->add_option("--data", asked->data,
                    "the data set of the training, which gives classes or vocabulary");
}

}  // namespace sparfuse::harness
