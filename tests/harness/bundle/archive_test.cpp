// Tests archives: the members determine every byte, and a change of any other byte is detected.
#include "harness/bundle/archive.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

using Members = std::vector<std::pair<std::string, std::string>>;

// Contents of all lengths around a block, and a name that needs its own header.
Members SomeMembers() {
  Members members = {{"manifest.json", "{}\n"}};
  for (const std::size_t size : {0, 1, 511, 512, 513, 2000})
    members.emplace_back("m" + std::to_string(1000 + size), std::string(size, 'x'));
  members.emplace_back("trials/" + std::string(120, 'n') + "/trial.json", "long");
  return members;
}

void Write(const fs::path& path, const Members& members) {
  ArchiveWriter archive(path);
  for (const auto& [name, content] : members) archive.Add(name, content);
  archive.Commit();
}

Members ReadAll(const fs::path& path) {
  const ArchiveReader archive(path);
  Members members;
  for (const ArchiveMember& member : archive.Members())
    members.emplace_back(member.name, archive.Content(member));
  return members;
}

TEST(Archive, ReadsWhatItWrote) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "a";
  Write(file, SomeMembers());
  EXPECT_EQ(ReadAll(file), SomeMembers());
  EXPECT_EQ(ArchiveReader(file).First("manifest.json"), "{}\n");
  const std::string bytes = ReadFile(file);
  Write(file, SomeMembers());
  EXPECT_EQ(ReadFile(file), bytes);
}

TEST(Archive, IsATarFile) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "a";
  Write(file, SomeMembers());
  const std::string command = "cd '" + folder.path().string() + "' && tar xf a";
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const auto& [name, content] : SomeMembers())
    EXPECT_EQ(ReadFile(folder.path() / name), content) << name;
}

TEST(Archive, NoByteBesideContentsCanBeAnother) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "a";
  Write(file, SomeMembers());
  const std::string good = ReadFile(file);
  std::vector<bool> is_content(good.size(), false);
  for (const ArchiveMember& member : ArchiveReader(file).Members()) {
    for (std::uint64_t i = 0; i < member.size; ++i) is_content[member.offset + i] = true;
  }
  std::size_t tried = 0;
  for (std::size_t at = 0; at < good.size(); at += 3) {
    if (is_content[at]) continue;
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    std::ofstream(file, std::ios::binary) << bad;
    try {  // the name may be another, unknown to manifests
      EXPECT_NE(ReadAll(file).back().first, SomeMembers().back().first) << "byte " << at;
    } catch (const Error&) {
    }
    ++tried;
  }
  EXPECT_GT(tried, 1500u);
}

TEST(Archive, IsWholeOrRefused) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "a";
  Write(file, SomeMembers());
  const std::string good = ReadFile(file);
  for (std::size_t size = 0; size < good.size(); size += 97) {
    std::ofstream(file, std::ios::binary) << good.substr(0, size);
    EXPECT_THROW(ReadAll(file), Error) << size << " bytes";
  }
  std::ofstream(file, std::ios::binary) << good + std::string(512, '\0');
  EXPECT_THROW(ReadAll(file), Error);
}

TEST(Archive, NothingIsThereBeforeItIsComplete) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "a";
  {
    ArchiveWriter archive(file);
    archive.Add("manifest.json", "{}");
    EXPECT_FALSE(fs::exists(file));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Archive, MembersOutOfOrderAreRefused) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "a";
  Write(file, {{"manifest.json", ""}, {"b", ""}, {"a", ""}});
  EXPECT_THROW(ReadAll(file), Error);
  Write(file, {{"manifest.json", ""}, {"a", ""}, {"a", ""}});
  EXPECT_THROW(ReadAll(file), Error);
}

}  // namespace
}  // namespace sparfuse::harness
