#include "workloads/data/prepared.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.hpp"
#include "workloads/data/data_file.hpp"

namespace sparfuse::workloads {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void Damaged(const fs::path& place, const std::string& problem) {
  SPARFUSE_THROW(kData, place.string() + ": " + problem +
                            "; `sparfuse data check` checks all of the folder, and `sparfuse data "
                            "prepare` makes it again once the folder is removed");
}

std::uint64_t ReadInteger(std::span<const std::uint8_t> bytes, std::size_t width, std::size_t at) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at * width, width);
  return value;
}

}  // namespace

fs::path PreparedFolder(const fs::path& data_directory, std::string_view name) {
  return name.find('/') == std::string_view::npos ? data_directory / name : fs::path(name);
}

MappedFile::MappedFile(const fs::path& file, std::uint64_t bytes) : file_(file) {
  descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) Damaged(file, std::string("cannot be read: ") + std::strerror(errno));
  bytes_ = {static_cast<const std::uint8_t*>(nullptr), bytes};
  try {
    CheckSize();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  if (bytes == 0) return;
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::close(descriptor_);
    Damaged(file, std::string("cannot be mapped: ") + std::strerror(error));
  }
  bytes_ = {static_cast<const std::uint8_t*>(mapped), bytes};
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

MappedFile::~MappedFile() {
  if (descriptor_ < 0) return;
  if (bytes_.data() != nullptr) {
    ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
  }
  ::close(descriptor_);
}

void MappedFile::CheckSize() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    Damaged(file_, "is no file");
  }
  if (std::cmp_not_equal(status.st_size, bytes_.size())) {
    Damaged(file_, "has " + std::to_string(status.st_size) + " bytes, expected " +
                       std::to_string(bytes_.size()));
  }
}

PreparedMeta ReadPreparedMeta(const fs::path& folder) {
  const fs::path file = folder / "meta.json";
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    const bool unfinished = fs::exists(folder.string() + ".partial");
    SPARFUSE_THROW(
        kData,
        "no prepared data in " + folder.string() + ": " +
            (unfinished
                 ? "its preparation has not finished; the same `sparfuse data prepare` continues it"
                 : "expected meta.json there; `sparfuse data prepare NAME --from FOLDER` "
                   "makes it, and `sparfuse data list` lists the prepared data"));
  }
  PreparedMeta meta;
  try {
    const json given = json::parse(stream);
    const int format = given.at("format").get<int>();
    if (format != kPreparedFormat) {
      Damaged(file, "format = " + std::to_string(format) + ", expected " +
                        std::to_string(kPreparedFormat));
    }
    const json& content = given.at("content");
    meta.id = given.at("id").get<std::string>();
    if (const std::string own = Sha256Of(content.dump()); meta.id != own) {
      Damaged(file,
              "id = \"" + meta.id + "\", but its content has the id " + own + ": it was edited");
    }
    meta.kind = content.at("kind").get<std::string>();
    meta.coding = content.value("coding", "");
    meta.shape = content.value("shape", std::vector<std::size_t>());
    meta.classes = content.value("classes", std::vector<std::string>());
    meta.tokens = content.value("tokens", "");
    meta.vocabulary = content.value("vocabulary_size", std::size_t{0});
    meta.token_bytes = content.value("token_bytes", std::size_t{0});
    meta.window = content.value("window", std::size_t{0});
    for (const auto& [name, split] : content.at("splits").items()) {
      PreparedMeta::Split& made = meta.splits[name];
      made.count = split.at("count").get<std::size_t>();
      for (const auto& [extension, each] : split.at("files").items()) {
        made.files[extension] = {each.at("bytes").get<std::uint64_t>(),
                                 each.at("crc32").get<std::uint32_t>()};
      }
    }
  } catch (const json::exception& error) {
    Damaged(file, std::string("is no description of prepared data: ") + error.what());
  }
  return meta;
}

PreparedData::PreparedData(const fs::path& folder)
    : folder_(folder), meta_(ReadPreparedMeta(folder)) {
  for (const auto& [name, split] : meta_.splits) {
    Split& made = splits_[name];
    made.count = split.count;
    const auto open = [&](const char* extension, bool whole, std::uint64_t expected) {
      const fs::path file = folder / (name + "." + extension);
      const auto said = split.files.find(extension);
      if (said == split.files.end()) Damaged(folder / "meta.json", "lacks " + file.string());
      if (whole && said->second.bytes != expected) {
        Damaged(file, "contradicts its " + std::to_string(split.count) + " records");
      }
      MappedFile mapped(file, said->second.bytes);
      if (whole && Crc32(mapped.bytes()) != said->second.crc32) {
        Damaged(file, "is corrupt: its CRC-32 differs from the one in meta.json");
      }
      return mapped;
    };
    if (meta_.kind == "images" || meta_.kind == "questions") {
      made.index = open("index", true, 8 * (split.count + 1));
      if (meta_.kind == "images") made.labels = open("labels", true, 2 * split.count);
      if (const auto key = split.files.find("json"); key != split.files.end())
        made.key = open("json", true, key->second.bytes);
      made.sums = open("sums", true, 4 * split.count);
      made.records = open("records", false, 0);
    } else {
      made.tokens = open("tokens", true, meta_.token_bytes * split.count);
    }
  }
  SplitOf("train");
  SplitOf(evaluation_split());
}

const PreparedData::Split& PreparedData::SplitOf(std::string_view name) const {
  const auto found = splits_.find(name);
  if (found == splits_.end()) {
    SPARFUSE_THROW(kData, folder_.string() + ": has no split \"" + std::string(name) +
                              "\"; expected train and test");
  }
  return found->second;
}

void PreparedData::CheckId(std::string_view expected) const {
  if (meta_.id.starts_with(expected)) return;
  SPARFUSE_THROW(kData, folder_.string() + ": holds the data set " +
                            meta_.id.substr(0, expected.size()) + ", expected " +
                            std::string(expected) +
                            ", with which the trial was planned: the same data on every host");
}

void PreparedData::CheckFits(std::string_view workload, std::string_view kind_of_data) const {
  if (meta_.kind == kind_of_data) return;
  SPARFUSE_THROW(kConfig, "workload " + std::string(workload) + " trains on " +
                              std::string(kind_of_data) + ", and the data in " + folder_.string() +
                              " is of kind " + meta_.kind);
}

std::uint16_t PreparedData::Label(std::string_view split, std::size_t image) const {
  return static_cast<std::uint16_t>(ReadInteger(SplitOf(split).labels.bytes(), 2, image));
}

std::span<const std::uint8_t> PreparedData::Record(std::string_view split,
                                                   std::size_t image) const {
  const Split& part = SplitOf(split);
  const std::uint64_t begin = ReadInteger(part.index.bytes(), 8, image);
  const std::uint64_t end = ReadInteger(part.index.bytes(), 8, image + 1);
  const auto place = [&] { return folder_ / (std::string(split) + ".records"); };
  if (begin > end || end > part.records.bytes().size()) {
    Damaged(place(), "record " + std::to_string(image) + " lies outside the file");
  }
  part.records.CheckSize();
  const auto record = part.records.bytes().subspan(begin, end - begin);
  if (Crc32(record) != ReadInteger(part.sums.bytes(), 4, image)) {
    Damaged(place(), "record " + std::to_string(image) + " (bytes " + std::to_string(begin) +
                         " to " + std::to_string(end) + ") differs from the prepared record");
  }
  return record;
}

std::string_view PreparedData::Key(std::string_view split) const {
  const auto bytes = SplitOf(split).key.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void PreparedData::CopyTokens(std::string_view split, std::size_t begin,
                              std::span<std::int64_t> out) const {
  const Split& part = SplitOf(split);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] =
        static_cast<std::int64_t>(ReadInteger(part.tokens.bytes(), meta_.token_bytes, begin + i));
  }
}

}  // namespace sparfuse::workloads
