// Feeds arbitrary text to the reader of method files, and checks accepted methods against the parts
// that they name.
#include "harness/catalog/catalog.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  static const Catalog catalog = BuiltInCatalog();
  Method method;
  const auto read = [&] {
    method = ParseMethodFile("folder/fuzz.toml", fuzz::Text(data, size));
    CheckMethod(catalog, method);
  };
  if (!fuzz::Accepts(read, FailureKind::kConfig)) return 0;
  fuzz::Require(method.name == "fuzz" && method.revision >= 1, "name and revision");
  fuzz::Accepts([&] { ResolveMethodOptions(catalog, method, nlohmann::json::object()); },
                FailureKind::kConfig);
  return 0;
}
