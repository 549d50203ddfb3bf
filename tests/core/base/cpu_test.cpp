// Tests the choice of the kernels' instruction set.
#include "core/base/cpu.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

TEST(Cpu, EveryMachineRunsThePortableKernels) {
  ASSERT_FALSE(SupportedIsas().empty());
  EXPECT_EQ(SupportedIsas().front(), Isa::kPortable);
}

TEST(Cpu, TheEnvironmentChoosesAmongWhatTheMachineHas) {
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
    setenv("SPARFUSE_ISA", std::string(IsaName(isa)).c_str(), 1);
    const auto supported = SupportedIsas();
    if (std::find(supported.begin(), supported.end(), isa) != supported.end()) {
      EXPECT_EQ(IsaFromEnvironment(), isa);
      continue;
    }
    SCOPED_TRACE(IsaName(isa));
    testing::ExpectError(FailureKind::kUnsupported, {}, [&] { IsaFromEnvironment(); });
  }
  setenv("SPARFUSE_ISA", "avx-512", 1);
  testing::ExpectError(FailureKind::kConfig, {"did you mean \"avx512\""},
                       [&] { IsaFromEnvironment(); });
  unsetenv("SPARFUSE_ISA");
  EXPECT_EQ(IsaFromEnvironment(), SupportedIsas().back());
}

TEST(Cpu, AScopeRestoresWhatWasActive) {
  const Isa before = ActiveIsa();
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    EXPECT_EQ(ActiveIsa(), isa);
  }
  EXPECT_EQ(ActiveIsa(), before);
}

}  // namespace
}  // namespace sparfuse
