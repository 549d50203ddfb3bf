// Asks Slurm what became of blocks that were given to it, each a task of a job array.
#pragma once

#include <map>
#include <string>

namespace sparfuse::harness {

struct QueuedBlock {
  bool running = false;
  std::string job;    // number of the array
  std::string where;  // its nodes, or why it waits
};

// By block, of each array's name: those of this user that wait or run. Throws Error{kConfig} where
// squeue does not answer: nobody knows then what is queued.
using Queue = std::map<std::string, std::map<int, QueuedBlock>>;
Queue QueuedBlocks();

// How Slurm's accounting says that the blocks ended ("TIMEOUT", "NODE_FAIL"), by block; empty where
// it is off.
std::map<int, std::string> EndedBlocks(const std::string& name);

// What squeue --format='%j|%K|%T|%F|%R' and sacct --format=JobID,State --parsable2 print, a line a
// task. Lines of other forms are left out.
Queue ParseQueue(const std::string& lines);
std::map<int, std::string> ParseAccounting(const std::string& lines);

}  // namespace sparfuse::harness
