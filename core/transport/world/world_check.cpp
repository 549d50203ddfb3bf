#include "core/transport/world/world_check.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "core/base/error.hpp"
#include "core/transport/group.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kMostNonce = 32;
constexpr const char* kRanksOfSrun[] = {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"};
// kMeans: variables of launchers that give MPI a way to find the other ranks: mpirun, PMIx, PMI.
constexpr const char* kRankVariables[] = {kRankVariable, "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                          "PMI_RANK",    "SLURM_PROCID",         "FLUX_TASK_RANK"};
constexpr const char* kMeans[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

bool IsSet(const char* name) { return std::getenv(name) != nullptr; }

bool StartedBySrun() { return std::ranges::all_of(kRanksOfSrun, IsSet); }

std::string Remedy() {
  return StartedBySrun()
             ? "srun without PMIx starts ranks that cannot find one another: expected srun "
               "--mpi=pmix (srun --mpi=list names the choices), or mpirun within the allocation"
             : "its launcher started programs that cannot find one another, or belongs to another "
               "MPI: "
               "expected the mpirun of the Open MPI that the worker is linked with, or srun "
               "--mpi=pmix";
}

struct WorldGreeting {
  std::array<char, kMostNonce> nonce{};
  std::int32_t rank = 0;
};

}  // namespace

std::optional<ExpectedWorld> WorldOfEnvironment() {
  const char* value = std::getenv(kWorldVariable);
  if (value == nullptr) return std::nullopt;
  ExpectedWorld expected;
  const char* end = value + std::strlen(value);
  const auto [stopped, error] = std::from_chars(value, end, expected.ranks);
  if (error == std::errc() && stopped != end && *stopped == ':')
    expected.nonce.assign(stopped + 1, end);
  if (expected.ranks < 1 || expected.nonce.empty() || expected.nonce.size() > kMostNonce) {
    SPARFUSE_THROW(kConfig, kWorldVariable, "=", value,
                   ": expected RANKS:NONCE, as the controller sets it");
  }
  return expected;
}

int RankOfEnvironment() {
  for (const char* name : kRankVariables) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

int NeedRankOfEnvironment() {
  if (std::ranges::any_of(kRankVariables, IsSet)) return RankOfEnvironment();
  std::string names;
  for (const char* name : kRankVariables) names += (names.empty() ? "" : ", ") + std::string(name);
  SPARFUSE_THROW(
      kConfig,
      "the environment does not say which rank this is: expected a launcher that sets one of ",
      names);
}

void CheckLauncherOf(const ExpectedWorld& expected) {
  if (expected.ranks == 1 || !StartedBySrun() || std::ranges::any_of(kMeans, IsSet)) return;
  SPARFUSE_THROW(kConfig, "rank ", RankOfEnvironment(), " of ", expected.ranks, ": ", Remedy());
}

void CheckWorld(Communicator& world, const ExpectedWorld& expected,
                std::chrono::milliseconds deadline) {
  const int size = world.size();
  const int rank = world.rank();
  if (size != expected.ranks) {
    SPARFUSE_THROW(kConfig, "MPI says rank ", rank, " of ", size, ", but ", expected.ranks,
                   " ranks were launched: ", Remedy());
  }
  if (size == 1) return;
  const int before = (rank + size - 1) % size;
  WorldGreeting mine;
  std::ranges::copy(expected.nonce, mine.nonce.begin());
  mine.rank = rank;
  WorldGreeting theirs;
  const std::unique_ptr<Request> receive[] = {
      world.Irecv(before, 0, std::as_writable_bytes(std::span(&theirs, 1)))};
  const std::unique_ptr<Request> send[] = {
      world.Isend((rank + 1) % size, 0, std::as_bytes(std::span(&mine, 1)))};
  AwaitPeers(world, receive, send, deadline, "the first message of the launch");
  if (theirs.nonce == mine.nonce && theirs.rank == before) return;
  SPARFUSE_THROW(kConfig, "rank ", rank, " of ", size, " expected rank ", before,
                 " of its launch before it, but met rank ", theirs.rank,
                 (theirs.nonce == mine.nonce ? "" : " of another launch (another nonce)"),
                 ": ranks of several launches found one another; end the ranks that are left and "
                 "run again");
}

}  // namespace sparfuse
