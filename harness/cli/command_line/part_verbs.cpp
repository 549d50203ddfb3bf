// Adds the verbs about the parts of methods: what there are, their laws and proofs, new ones.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/list/list.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

void AddList(CommandLine& line) {
  const auto request = std::make_shared<ListRequest>();
  auto* verb =
      AddVerb(line, "list",
              "what experiment files may name beside files of their own (methods, Python "
              "sparsifiers, model tables), and the experiments there are",
              Speaks::kTextOrJson, [=](Program& program) { return ListVerb(program, *request); });
  verb->add_option("what", request->what, fmt::format("{}", fmt::join(Listings(), ", ")))
      ->required();
  verb->add_flag("--rounds", request->rounds,
                 "of collectives: steps, messages and bytes for some numbers of ranks");
}

void AddProve(CommandLine& line) {
  const auto method = std::make_shared<std::string>();
  auto* verb =
      AddVerb(line, "prove", "run a method's convergence proof, step by step, in numbers",
              Speaks::kTextOrJson, [=](Program& program) { return ProveVerb(program, *method); });
  verb->add_option("method", *method)->required()->check(CLI::IsMember({"adtopk"}));
}

void AddCheck(CommandLine& line) {
  struct Request {
    std::string kind, name;
  };
  const auto request = std::make_shared<Request>();
  auto* verb =
      AddVerb(line, "check", "run the laws of one part; builds their program first", Speaks::kText,
              [=](Program& program) { return CheckVerb(program, request->kind, request->name); });
  verb->add_option("kind", request->kind, fmt::format("{}", fmt::join(CheckableKinds(), ", ")))
      ->required();
  verb->add_option("name", request->name,
                   "as `sparfuse list` has it; sparsifiers also python:FILE:CLASS")
      ->required();
}

void AddNew(CommandLine& line) {
  struct Request {
    std::string what, name;
  };
  const auto request = std::make_shared<Request>();
  auto* verb = AddVerb(line, "new", "write the files of a new baseline", Speaks::kText,
                       [=](Program& program) { return NewBaselineVerb(program, request->name); });
  verb->add_option("what", request->what, "baseline")
      ->required()
      ->check(CLI::IsMember({"baseline"}));
  verb->add_option("name", request->name, "of the method: small letters, digits and '-'")
      ->required();
}

}  // namespace sparfuse::harness
