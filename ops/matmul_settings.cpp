// The precision and the choice of algorithm of matrix products, which ops/matmul.h declares: set
// for the process, or by guards for a thread.
#include <atomic>
#include <utility>

#include "brrr/ops/matmul.h"
#include "brrr/tensor/thread_context.h"

namespace brrr {
namespace {

std::atomic<Precision> precision_of_all{Precision::full};
std::atomic<MatmulChoice> choice_of_all{MatmulChoice::first};

}  // namespace

void set_matmul_precision(Precision precision) { precision_of_all = precision; }
Precision matmul_precision() {
  return thread_context.matmul_precision >= 0
             ? static_cast<Precision>(thread_context.matmul_precision)
             : precision_of_all.load(std::memory_order_relaxed);
}

MatmulPrecisionGuard::MatmulPrecisionGuard(Precision precision)
    : before_(std::exchange(thread_context.matmul_precision, static_cast<std::int8_t>(precision))) {
}
MatmulPrecisionGuard::~MatmulPrecisionGuard() { thread_context.matmul_precision = before_; }

void set_matmul_choice(MatmulChoice choice) { choice_of_all = choice; }
MatmulChoice matmul_choice() {
  return thread_context.matmul_choice >= 0 ? static_cast<MatmulChoice>(thread_context.matmul_choice)
                                           : choice_of_all.load(std::memory_order_relaxed);
}

MatmulChoiceGuard::MatmulChoiceGuard(MatmulChoice choice)
    : before_(std::exchange(thread_context.matmul_choice, static_cast<std::int8_t>(choice))) {}
MatmulChoiceGuard::~MatmulChoiceGuard() { thread_context.matmul_choice = before_; }

}  // namespace brrr
