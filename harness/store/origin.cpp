#include "harness/store/origin.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string DrawnId() {
  std::random_device draw;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", static_cast<std::uint32_t>(draw()));
  return id;
}

std::string StoreId(const std::filesystem::path& results) {
  const std::filesystem::path file = results / "store.json";
  if (!SomethingIsAt(file)) WriteFileDurably(file, json{{"store_id", DrawnId()}}.dump(1) + "\n");
  const json stored = ReadJsonFile(file);
  const json id = stored.is_object() ? stored.value("store_id", json()) : json();
  if (!id.is_string() || id.get_ref<const std::string&>().size() != 32) {
    SPARFUSE_THROW(kData,
                   fmt::format("{}: store_id: expected 32 digits; move the file away, and new "
                               "trials get another origin",
                               file.string()));
  }
  return id;
}

}  // namespace

std::string OriginOf(const StoreLock&, const std::filesystem::path& results,
                     const std::string& system_hash) {
  return Sha256Hex(StoreId(results) + "\n" + system_hash).substr(0, 8);
}

}  // namespace sparfuse::harness
