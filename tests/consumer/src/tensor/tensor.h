// The consumer's own header, whose path brrr has a header of too: each project must find its own.
#pragma once

namespace consumer {
struct Tensor {
  int values = 3;
};
}  // namespace consumer
