#include "brrr/measure/interrupt.h"

namespace brrr::measure {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void record(int signal) {
  received = signal;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

void listen(int signal, struct sigaction& before) {
  struct sigaction action = {};
  action.sa_handler = record;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
}

}  // namespace

Interruptible::Interruptible() {
  received = 0;
  listen(SIGINT, before_interrupt_);
  listen(SIGTERM, before_terminate_);
}

Interruptible::~Interruptible() {
  ::sigaction(SIGINT, &before_interrupt_, nullptr);
  ::sigaction(SIGTERM, &before_terminate_, nullptr);
}

int Interruptible::signal() const { return received; }

void Interruptible::stop_if_asked() const {
  if (received != 0) throw Interrupted();
}

int failure_status() { return received != 0 ? 128 + received : 1; }

}  // namespace brrr::measure
