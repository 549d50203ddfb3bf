// Holds the cost tables that the authors of SAFusion, SSFusion and ADTopk publish with their code:
// measurements of their cluster of eight nodes, with which their planners plan on any cluster.
// Times are in seconds; functions are pure. Curves are straight lines between the published points,
// with the last segment extended, and constant below the first point.
#pragma once

#include <cstddef>
#include <string_view>

namespace sparfuse {

// Start-up time of each exchange.
inline constexpr double kAuthorsStartupSeconds = 0.003780956268310547;

// Backward of `elements` out of `total` elements of a model, in proportion. `model` is one of
// resnet50, resnet101, resnet152, vgg16, vgg19, lstm, transformer, bert_base; any other takes no
// time.
double AuthorsBackwardSeconds(std::string_view model, std::size_t elements, std::size_t total);

// All-gather of density * elements values of 4 bytes a rank, in whole KiB; indices are not counted.
double AuthorsCommunicationSeconds(std::size_t elements, double density);

// Selection from `elements`, in whole KiB, at least one. `sparsifier` is one of topk, dgc,
// gaussiank, redsync, randomk, sidco; the authors' planners use topk's curve for any sparsifier.
// Throws Error{kConfig} for any other name.
double AuthorsCompressionSeconds(std::string_view sparsifier, std::size_t elements);

}  // namespace sparfuse
