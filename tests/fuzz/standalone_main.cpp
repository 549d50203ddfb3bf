// Runs a fuzz target without libFuzzer: replays a corpus, then random mutations of it.
//
//   payload_decoder_fuzz CORPUS_FOLDER [--iterations N] [--seconds S] [--seed S]
//
// It ends after N mutations or S seconds. Equal seeds try equal inputs. On a failure it prints the
// input in hex and ends with status 1, or with the sanitizer's status.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

const Input* current = nullptr;  // printed if the target crashes

void PrintCurrent() {
  std::fprintf(stderr, "input of %zu bytes: ", current->size());
  for (const std::uint8_t byte : *current) std::fprintf(stderr, "%02x", byte);
  std::fprintf(stderr, "\n");
}

void OnSignal(int signal) {
  PrintCurrent();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void Run(const Input& input) {
  current = &input;
  // A block of exactly this size, so that a read past it is detected.
  const auto copy = std::make_unique<std::uint8_t[]>(input.size());
  std::copy(input.begin(), input.end(), copy.get());
  try {
    LLVMFuzzerTestOneInput(copy.get(), input.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    PrintCurrent();
    std::exit(1);
  }
}

std::vector<Input> ReadCorpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Input> corpus;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  Input Mutate(const std::vector<Input>& corpus) {
    Input input = corpus[Below(corpus.size())];
    for (std::size_t changes = 1 + Below(4); changes > 0; --changes) Change(input, corpus);
    return input;
  }

 private:
  std::size_t Below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  void Change(Input& input, const std::vector<Input>& corpus) {
    static constexpr std::uint32_t kEdges[] = {
        0,      1,      2,       0x7f,       0x80,       0xff,       0x7c00,    0x7fff,
        0xfffe, 0xffff, 0x10000, 0x7f800000, 0x7fffffff, 0x80000000, 0xffffffff};
    // Tokens that readers of text must refuse or count.
    static constexpr std::string_view kTokens[] = {"0",
                                                   "-1",
                                                   "1e308",
                                                   "1e-308",
                                                   "2147483648",
                                                   "9223372036854775807",
                                                   "18446744073709551615",
                                                   "nan",
                                                   "inf",
                                                   "null",
                                                   "true",
                                                   "\"\"",
                                                   "[]",
                                                   "{}",
                                                   "[[",
                                                   "]]",
                                                   "\n",
                                                   "\"~\"",
                                                   "\"a/b\"",
                                                   "\\",
                                                   "'",
                                                   "= 1",
                                                   "..",
                                                   "#",
                                                   ",",
                                                   ":",
                                                   "\xff",
                                                   "99999999999999999999"};
    const std::size_t at = input.empty() ? 0 : Below(input.size());
    const auto here = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (Below(10)) {
      case 0:
        if (!input.empty()) input[at] ^= static_cast<std::uint8_t>(1u << Below(8));
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<std::uint8_t>(random_());
        break;
      case 2:
        input.resize(at);
        break;
      case 3:
        input.insert(here, 1 + Below(8), static_cast<std::uint8_t>(random_()));
        break;
      case 4:
        input.erase(here,
                    here + static_cast<std::ptrdiff_t>(std::min(1 + Below(8), input.size() - at)));
        break;
      case 5: {  // an edge of a number or its neighbour, in two or four bytes
        const std::uint32_t number =
            kEdges[Below(std::size(kEdges))] + static_cast<std::uint32_t>(Below(3)) - 1;
        const std::size_t width = Below(2) == 0 ? 2 : 4;
        for (std::size_t i = 0; i < width && at + i < input.size(); ++i) {
          input[at + i] = static_cast<std::uint8_t>(number >> (8 * i));
        }
        break;
      }
      case 6: {
        const std::string_view token = kTokens[Below(std::size(kTokens))];
        const std::size_t replaced = Below(2) == 0 ? 0 : std::min(token.size(), input.size() - at);
        input.erase(here, here + static_cast<std::ptrdiff_t>(replaced));
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), token.begin(), token.end());
        break;
      }
      case 7:  // a line twice, or gone
      case 8: {
        const auto begin = std::find(std::make_reverse_iterator(here), input.rend(), '\n').base();
        const auto end = std::find(here, input.end(), '\n');
        const Input line(begin, end == input.end() ? end : end + 1);
        if (Below(2) == 0) {
          input.erase(begin, begin + static_cast<std::ptrdiff_t>(line.size()));
        } else {
          input.insert(begin, line.begin(), line.end());
        }
        break;
      }
      default: {  // the end of another input
        const Input& other = corpus[Below(corpus.size())];
        if (other.empty()) break;
        input.resize(at);
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(Below(other.size())),
                     other.end());
      }
    }
  }

  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  unsigned long long iterations = 100'000;
  unsigned long long seed = 1;
  double seconds = 1e9;
  bool usage = argc < 2 || argc % 2 != 0;
  for (int i = 2; !usage && i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--iterations") {
      iterations = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (option == "--seconds") {
      seconds = std::strtod(argv[i + 1], nullptr);
    } else if (option == "--seed") {
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      usage = true;
    }
  }
  if (usage) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER [--iterations N] [--seconds S] [--seed S]\n",
                 argv[0]);
    return 2;
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) std::signal(signal, OnSignal);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(PrintCurrent);
#endif
  const std::vector<Input> corpus = ReadCorpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no files; expected a corpus\n", argv[1]);
    return 2;
  }
  for (const Input& input : corpus) Run(input);
  Mutator mutator(seed);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  unsigned long long done = 0;
  while (done < iterations &&
         std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    Run(mutator.Mutate(corpus));
    ++done;
  }
  std::printf("%zu inputs and %llu mutations of them, seed %llu: no failure\n", corpus.size(), done,
              seed);
  return 0;
}
