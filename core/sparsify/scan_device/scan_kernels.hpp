// Joins the kernels of device_scan.hpp, and says what they cost.
//
// Expected on an H200 (4.8 TB/s, of which a read gets about 4.3; 132 multiprocessors), not
// measured; n = 25.6M at 1 %, without feedback:
//   Prepare    1 block           a sample of 16384 elements, two digits in shared memory     7 us
//              warm: zeroes 55 kB in L2                                                      2 us
//   Collect    1042 blocks       102 MB once; 1.4 k candidates, 3 MB                        24 us
//   Send       128 + 521 blocks  values of candidates from L2 three times, 2 MB to the slot  7 us
//   SendExact  1024 blocks       nothing: they see that they are not wanted                1.5 us
// together 1.4 to 1.6 times the read; of 110M, where Collect takes 102 us, 1.2 times. With feedback
// Collect moves 307 MB, and Send zeroes k elements: 32 bytes each, read and written. Where
// candidates do not hold the k largest, SendExact reads x five times.
//
// In Collect a thread has four 16-byte loads in flight (eight with feedback), and the 40 warps that
// 48 registers leave room for 80 kB: three times what latency times bandwidth asks of a
// multiprocessor. An element costs a handful of instructions: addition, comparison, a bit of a
// mask. Ranks within a warp come from one scan of four counts packed into a word; of barriers there
// are two for 4096 elements. Candidates go to an arena, where one atomic addition reserves room for
// a chunk: which chunk comes first depends on timing, what is read through the chunks' segments
// does not.
//
// The passes over candidates, and those over x when the exact passes are wanted, are phases of one
// launch each: a block of a later phase waits for those before, which have lower numbers and so
// have started. Where blocks write side by side, each adds up what those before it have announced
// (SumBefore); with some thousand blocks that is cheaper than a chain of look-backs.
//
// RAFT's select_k and CUB's device-wide top-k read all of x for the first digit and again for the
// next, filtering into buffers as they go (J. Zhang, A. Naruse, X. Li, Y. Wang, "Parallel top-k
// algorithms on GPU: a comprehensive study and new methods", SC 2023). The sample takes the place
// of the first digit here, which leaves one pass; and the order of the output is that of the
// indices, ties included, which theirs leaves open.
#pragma once

#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/prepare_kernels.hpp"
#include "core/sparsify/scan_device/send_exact_kernels.hpp"
#include "core/sparsify/scan_device/send_kernels.hpp"
