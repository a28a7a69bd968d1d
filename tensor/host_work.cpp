#include "brrr/tensor/host_work.h"

namespace brrr {

constinit std::atomic<HostListener*> host_listener{nullptr};

}  // namespace brrr
