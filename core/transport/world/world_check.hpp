// Checks, before all other work, that the ranks in MPI's world are the launched ranks.
//
// srun without PMIx starts n programs, and each of them takes itself for rank 0 of 1. A rank may
// also meet ranks of another launch or of another MPI. The launcher therefore puts the number of
// ranks and a random nonce of the launch into their environment.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/transport/communicator.hpp"

namespace sparfuse {

// "RANKS:NONCE", the same for all ranks of a launch.
inline constexpr const char* kWorldVariable = "SPARFUSE_WORLD";

struct ExpectedWorld {
  int ranks = 1;
  std::string nonce;  // letters and digits, at most 32

  std::string Text() const { return std::to_string(ranks) + ":" + nonce; }
};

// The value of kWorldVariable; nothing if it is not set, as in a program without a launcher. Throws
// Error{kConfig} naming it and its value.
std::optional<ExpectedWorld> WorldOfEnvironment();

// A rank's number, if its launcher is not mpirun, PMIx or Slurm.
inline constexpr const char* kRankVariable = "SPARFUSE_RANK";

// This process's number in its launch, known before there is a world from kRankVariable, mpirun,
// PMIx, Slurm or Flux; 0 if none sets it.
int RankOfEnvironment();
// Returns the same number. Throws Error{kConfig} naming the variables if none of them is set.
int NeedRankOfEnvironment();

// Call it before MPI is initialised, which would abort or make a world of one. Throws
// Error{kConfig} naming --mpi=pmix if srun started this rank without a way to find the others.
void CheckLauncherOf(const ExpectedWorld& expected);

// Throws Error{kConfig} if `world` has another number of ranks. Also throws it if the previous rank
// (the last one for rank 0) belongs to another launch or has a wrong number. All ranks together
// thus find every difference. Collective; moves some bytes with tag 0. Throws Error{kTimeout} if
// the previous rank does not answer within the deadline.
void CheckWorld(Communicator& world, const ExpectedWorld& expected,
                std::chrono::milliseconds deadline);

}  // namespace sparfuse
