// Holds the cost tables that the authors of SAFusion, SSFusion and ADTopk publish with their code:
// measurements of their cluster of eight nodes, with which their planners plan wherever they run.
// Seconds. Pure functions; curves are straight lines between the published points, the last segment
// extended, the first value below the first point.
#pragma once

#include <cstddef>
#include <string_view>

namespace sparfuse {

// Start-up time of one exchange.
inline constexpr double kAuthorsStartupSeconds = 0.003780956268310547;

// Backward of `elements` of a model of `total`, in proportion. `model` is one of resnet50,
// resnet101, resnet152, vgg16, vgg19, lstm, transformer, bert_base; any other takes no time.
double AuthorsBackwardSeconds(std::string_view model, std::size_t elements, std::size_t total);

// All-gather of density * elements values of 4 bytes a rank, in whole KiB; indices are not counted.
double AuthorsCommunicationSeconds(std::size_t elements, double density);

// Selection from `elements`, in whole KiB, at least one. `sparsifier` is one of topk, dgc,
// gaussiank, redsync, randomk, sidco; the authors' planners take topk's curve whatever they
// sparsify with. Throws Error{kConfig} for any other.
double AuthorsCompressionSeconds(std::string_view sparsifier, std::size_t elements);

}  // namespace sparfuse
