// Lists two uses of each verb, which end its help: the first by hand, the second with an option
// that people look for.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/error.hpp"
#include "harness/cli/command_line/command_line.hpp"

namespace sparfuse::harness {
namespace {

struct ExamplesOfVerb {
  std::string_view verb;
  std::array<std::string_view, 2> lines;  // behind "sparfuse "
};

constexpr ExamplesOfVerb kExamplesOfVerbs[] = {
    {"list", {"list methods", "list collectives --rounds"}},
    {"advise",
     {"advise --workload bert-large-squad --cluster safusion-cloud --workers 8,64",
      "advise --workload table:mine.json --cluster mycluster --methods dense,fp16-allreduce"}},
    {"trace", {"trace rank0.json rank1.json", "trace rank0.json.gz --steps optimizer"}},
    {"doctor", {"doctor", "doctor --hostfile hosts --ranks 4"}},
    {"plan", {"plan quick --why", "plan quick --with-method mine.toml"}},
    {"reproduce", {"reproduce quick", "reproduce safusion --modelled"}},
    {"run", {"run mine.toml", "run quick --with-method mine.toml --keep-disturbed"}},
    {"status", {"status", "status quick"}},
    {"table",
     {"table quick --format text",
      "table quick --pivot workload,workers method --columns throughput,vs --format latex"}},
    {"report", {"report quick", "report mine.toml --out mine.html"}},
    {"figure", {"figure quick", "figure safusion/fig18 --out drawings"}},
    {"explain",
     {"explain quick --of method=safusion,workers=4 --over method=dense,workers=4",
      "explain mine.toml --of method=wfbp --over method=dense --out drawings"}},
    {"compare",
     {"compare mine.sparfuse theirs.sparfuse",
      "compare here theirs.sparfuse --experiment quick --figures drawings"}},
    {"skill", {"skill", "skill validation/throughput"}},
    {"site", {"site --out pages", "site --out pages --reference wfbp --within 10"}},
    {"data", {"data prepare cifar10 --from cifar-10-binary.tar.gz", "data list"}},
    {"weights",
     {"weights prepare bert --from model.safetensors",
      "weights prepare mine --from pytorch_model.bin"}},
    {"new", {"new baseline mine", "new baseline mine --out-of-tree folder --python"}},
    {"check", {"check method mine", "check planner python:mine.py:Mine"}},
    {"prove", {"prove adtopk", "prove adtopk --json"}},
    {"system", {"system init mine", "system check mine"}},
    {"profile",
     {"profile digits-resnet text-gpt", "profile bert-large-squad --device cuda --ranks 1"}},
    {"cluster", {"cluster new mine --preset a100-nvlink-ib --nodes 16", "cluster list"}},
    {"calibrate", {"calibrate safusion-cloud", "calibrate mine --json"}},
    {"export", {"export quick --out mine.sparfuse", "export quick --show"}},
    {"merge", {"merge theirs.sparfuse", "merge theirs.sparfuse --take-annotations"}},
    {"verify", {"verify theirs.sparfuse", "verify theirs.sparfuse --json"}},
    {"import",
     {"import table theirs.csv --map theirs.toml --dry-run",
      "import log train.log --map theirs.toml"}},
    {"annotate",
     {"annotate quick-dense-1f2e3d4c-b0 --reason \"the laptop slept\"",
      "annotate quick-wfbp-5b6a7988-b1 --reason \"another job ran\" --json"}},
    {"index", {"index --rebuild", "index --empty-trash"}},
};

}  // namespace

void AddExamples(CLI::App& app) {
  for (CLI::App* verb : app.get_subcommands({})) {
    const auto* found =
        std::ranges::find(kExamplesOfVerbs, verb->get_name(), &ExamplesOfVerb::verb);
    if (found == std::end(kExamplesOfVerbs)) {
      SPARFUSE_THROW(kInternal, fmt::format("verb {} has no examples: examples.cpp lists two of "
                                            "each verb",
                                            verb->get_name()));
    }
    verb->footer(
        fmt::format("Examples:\n  sparfuse {}\n  sparfuse {}\n", found->lines[0], found->lines[1]));
  }
}

}  // namespace sparfuse::harness
