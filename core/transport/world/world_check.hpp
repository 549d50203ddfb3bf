// Checks, before anything else is done, that the ranks that MPI says there are are those that were
// launched.
//
// srun without PMIx starts n programs that each believe to be rank 0 of 1; ranks of another launch
// or of another MPI may be met. Whoever launches ranks says in their environment how many they are
// and draws a nonce for the launch.
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

// What kWorldVariable says; nothing where it is not set, as in a program that nobody launched.
// Throws Error{kConfig} naming it and its value.
std::optional<ExpectedWorld> WorldOfEnvironment();

// A rank's number, where who starts it is not mpirun, PMIx or Slurm.
inline constexpr const char* kRankVariable = "SPARFUSE_RANK";

// This process's number among those launched together, as kRankVariable, mpirun, PMIx, Slurm or
// Flux tell it before there is a world; 0 where none does.
int RankOfEnvironment();
// Throws Error{kConfig} naming the variables where none of them is set.
int NeedRankOfEnvironment();

// Before MPI is initialised, which would abort or make a world of one. Throws Error{kConfig} where
// srun started this rank and gave it no way to find the others, naming --mpi=pmix.
void CheckLauncherOf(const ExpectedWorld& expected);

// Throws Error{kConfig} where `world` has another number of ranks, or the rank before this one (the
// last one's before rank 0) is of another launch or another rank than it should be: on all ranks
// together that finds every difference. Collective; moves some bytes with tag 0. Error{kTimeout}
// where that rank does not answer within the deadline.
void CheckWorld(Communicator& world, const ExpectedWorld& expected,
                std::chrono::milliseconds deadline);

}  // namespace sparfuse
