// Why kernels of a fused step pass a value through memory.
#pragma once

#include <cstdint>
#include <string>

namespace brrr::core {

enum class WhyNotFused : std::uint8_t {
  opaque_call,        // one of the two calls is computed by a kernel of its own
  no_correspondence,  // an element of the consumer needs no single element of the producer
  different_reads,    // two reads of the producer move through it in different ways
  recomputes,         // elements would be computed several times, and they are not cheap
  needed_outside,     // others read the value, and the consumer does not visit each of its elements
  delays_readers,     // others would wait for the consumer's reduction
  part_of_rows,       // the consumer reads only part of the results of a reduction
  few_rows,           // too few rows to fill the device
  unequal_rows,       // the two reduce over different elements
  reduces_rows,       // a result of rows would be reduced again
  partial_store,      // a result would be stored by only some of the kernel's elements
  mixed_directions,   // rows of some operands are columns of others in memory
  matrix_product,     // factors come from memory, and what follows needs single results
  gathered,           // elements at computed places come from memory, inside of its bounds
  checked,            // a kernel that reports bad indices writes to a tensor from outside
  in_place,           // the kernel would read elements that its other threads write
  cycle,              // a third call depends on one of them, and the other depends on that call
  too_many_operands,
  too_many_values,  // calls, scalars or values in one kernel
  not_profitable,   // one kernel is predicted to take as long as the two
  made_early,       // rematerialization computes the consumer again, later than the producer
  no_kernel,        // a kernel of both would exceed a limit of the device, or does not compile
  slower,           // one kernel takes longer than kernels of its parts, by times of all
};

// "no correspondence of spaces", as explain() says it.
const char* name_of(WhyNotFused why);
// The reason as a clause: "an element of the consumer needs no single ...".
const char* describe(WhyNotFused why);

// A value that one kernel of a fused step writes and another one reads.
struct UnfusedEdge {
  WhyNotFused why = WhyNotFused::opaque_call;
  std::string value;                         // "%7 f32[64, 128]"
  std::string producer, consumer;            // names of calls
  std::string opaque;                        // the opaque call, if that is the reason
  std::string producer_line, consumer_line;  // "train.cpp:12 in train_step"
};

}  // namespace brrr::core
