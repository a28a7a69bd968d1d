#include <atomic>
#include <utility>

#include "brrr/ops/matmul.h"

namespace brrr {
namespace {

std::atomic<Precision> precision_of_all{Precision::full};
std::atomic<Choice> choice_of_all{Choice::first};

// What a guard asks for on this thread; -1 is nothing.
constinit thread_local std::int8_t precision_here = -1;
constinit thread_local std::int8_t choice_here = -1;

}  // namespace

void set_matmul_precision(Precision precision) { precision_of_all = precision; }
Precision matmul_precision() {
  return precision_here >= 0 ? static_cast<Precision>(precision_here)
                             : precision_of_all.load(std::memory_order_relaxed);
}

MatmulPrecisionGuard::MatmulPrecisionGuard(Precision precision)
    : before_(std::exchange(precision_here, static_cast<std::int8_t>(precision))) {}
MatmulPrecisionGuard::~MatmulPrecisionGuard() { precision_here = before_; }

void set_matmul_choice(Choice choice) { choice_of_all = choice; }
Choice matmul_choice() {
  return choice_here >= 0 ? static_cast<Choice>(choice_here)
                          : choice_of_all.load(std::memory_order_relaxed);
}

MatmulChoiceGuard::MatmulChoiceGuard(Choice choice)
    : before_(std::exchange(choice_here, static_cast<std::int8_t>(choice))) {}
MatmulChoiceGuard::~MatmulChoiceGuard() { choice_here = before_; }

}  // namespace brrr
