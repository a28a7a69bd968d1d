// A picture of one screen that has what a machine computes and moves, readable by itself.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <brrr/graph/ceilings.h>
#include <brrr/measure/machine.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

inline constexpr double kCardWidth = 1200, kCardHeight = 630;

// The ceilings of a device by name, with units: "copy bandwidth", "66.6 GB/s". The knees are the
// flops a byte from which compute binds, of products and of other ops.
std::vector<std::pair<std::string, std::string>> card_figures(const graph::Ceilings& ceilings,
                                                              Device device);
// The figures beside a roofline, as SVG with a light background. Ceilings that are defaults say so.
std::string card_svg(const Machine& machine, Device device, const graph::Ceilings& ceilings);

}  // namespace brrr::measure
