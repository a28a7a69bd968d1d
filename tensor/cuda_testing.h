// What tests of the CUDA runtime need: a fake driver in place of the libraries, calls that fail,
// and a runtime that ends and starts again. No layer of the library calls it; cuda_api.cpp and
// cuda_runtime.cpp define it.
#pragma once

#include <string_view>

#include <brrr/tensor/cuda_api.h>

namespace brrr::cu {

// The k-th call (1 is the next one) of that name returns `code` instead of being made, once.
void fail_call(std::string_view name, long k, int code);
void clear_faults();

// Entries that are not null replace the table's, until `uninstall_table`. Shut the runtime down
// before: its handles belong to the driver that made them.
void install_table(const Table& entries);
void uninstall_table();

// Returns all resources of all devices to the driver; the next use initializes them again. Throws
// if storages are alive.
void shut_down();
// Drops every device without calling the driver. Tensors on them must not be used any more.
void abandon() noexcept;

}  // namespace brrr::cu
