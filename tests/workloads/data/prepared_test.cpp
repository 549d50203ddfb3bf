// Tests the reader of prepared data on a folder of three records written by hand. Finds files that
// were edited, cut while mapped, or belong to another data set than planned.
#include "workloads/data/prepared.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/errors.hpp"
#include "workloads/data/data_file.hpp"

namespace sparfuse::workloads {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

template <class Value>
std::string Bytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

std::uint32_t SumOf(const std::string& text) {
  return Crc32({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

class Prepared : public ::testing::Test {
 protected:
  Prepared() {
    std::string path = (fs::temp_directory_path() / "sparfuse-prepared-XXXXXX").string();
    folder_ = mkdtemp(path.data());
    json splits = json::object();
    for (const char* split : {"train", "test"}) {
      const std::vector<std::string> records = {"one", "second", "3"};
      std::string all;
      std::vector<std::uint64_t> index = {0};
      std::vector<std::uint32_t> sums;
      for (const std::string& record : records) {
        all += record;
        index.push_back(all.size());
        sums.push_back(SumOf(record));
      }
      json files = json::object();
      const auto write = [&](const char* extension, const std::string& bytes) {
        Write(std::string(split) + "." + extension, bytes);
        files[extension] = {{"bytes", bytes.size()}, {"crc32", SumOf(bytes)}};
      };
      write("records", all);
      write("index", Bytes(index));
      write("labels", Bytes(std::vector<std::uint16_t>{1, 0, 1}));
      write("sums", Bytes(sums));
      splits[split] = {{"count", 3}, {"files", files}};
    }
    content_ = {
        {"kind", "images"}, {"coding", "files"}, {"classes", {"cat", "dog"}}, {"splits", splits}};
    WriteMeta(kPreparedFormat, Sha256Of(content_.dump()));
  }
  ~Prepared() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  void WriteMeta(int format, const std::string& id) const {
    Write("meta.json", json{{"format", format}, {"id", id}, {"content", content_}}.dump());
  }
  std::string ErrorOfOpening() const {
    return DataError([&] { PreparedData data(folder_); });
  }
  static std::string DataError(const auto& act) {
    return sparfuse::testing::ErrorOf(act, FailureKind::kData);
  }

  fs::path folder_;
  json content_;
};

TEST_F(Prepared, RecordsAreThoseThatWereWritten) {
  const PreparedData data(folder_);
  EXPECT_EQ(data.count("train"), 3u);
  const auto second = data.Record("train", 1);
  EXPECT_EQ(std::string(second.begin(), second.end()), "second");
  EXPECT_EQ(data.Label("test", 2), 1);
}

TEST_F(Prepared, AnEditedRecordIsFoundAsItIsRead) {
  Write("train.records", "onesecomd3");
  const PreparedData data(folder_);
  EXPECT_EQ(DataError([&] { data.Record("train", 0); }), "no error");
  const std::string error = DataError([&] { data.Record("train", 1); });
  EXPECT_SAYS(error, "train.records: record 1 (bytes 3 to 9) differs from the prepared record");
}

TEST_F(Prepared, AnEditedIndexIsFoundAtTheStart) {
  Write("train.labels", Bytes(std::vector<std::uint16_t>{1, 1, 1}));
  EXPECT_SAYS(ErrorOfOpening(), "train.labels: is corrupt: its CRC-32");
}

TEST_F(Prepared, AFileThatIsCutWhileItIsMappedIsToldAndNotReadPastItsEnd) {
  const PreparedData data(folder_);
  fs::resize_file(folder_ / "train.records", 4);
  const std::string error = DataError([&] { data.Record("train", 1); });
  EXPECT_SAYS(error, "train.records: has 4 bytes, expected 10");
}

TEST_F(Prepared, ARankWithOtherDataIsToldByTheId) {
  const PreparedData data(folder_);
  data.CheckId(data.meta().id.substr(0, 16));
  const std::string error = DataError([&] { data.CheckId("0123456789abcdef"); });
  EXPECT_SAYS(error, "expected 0123456789abcdef");
  EXPECT_SAYS(error, data.meta().id.substr(0, 12).c_str());
  EXPECT_SAYS(error, "the same data on every host");
}

TEST_F(Prepared, AnotherFormatOrAnEditedDescriptionIsRefused) {
  WriteMeta(kPreparedFormat + 1, Sha256Of(content_.dump()));
  EXPECT_SAYS(ErrorOfOpening(), "format = 3, expected 2");
  content_["classes"] = {"cat", "fish"};
  WriteMeta(kPreparedFormat, std::string(64, 'a'));
  EXPECT_SAYS(ErrorOfOpening(), "it was edited");
}

TEST_F(Prepared, WhatIsMissingIsNamed) {
  fs::remove(folder_ / "test.sums");
  EXPECT_SAYS(ErrorOfOpening(), "test.sums: cannot be read");
  fs::remove(folder_ / "meta.json");
  EXPECT_SAYS(ErrorOfOpening(), "`sparfuse data prepare NAME --from");
}

}  // namespace
}  // namespace sparfuse::workloads
