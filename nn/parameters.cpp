#include "brrr/nn/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <map>

#include "brrr/dispatch/tracing.h"
#include "brrr/nn/live_modules.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::nn {
namespace {

// A parameter, and every member of the module that refers to it.
struct Shared {
  std::string name;
  std::vector<Tensor*> members;

  const Tensor& tensor() const { return *members[0]; }
};

std::size_t alignment_of(const Tensor& x) {
  constexpr std::size_t most = 256;
  const std::size_t bytes = x.bytes();
  return bytes == 0 ? most : std::min(most, std::size_t{1} << std::countr_zero(bytes));
}

// The parameters by dtype and device, in order of first appearance.
std::vector<std::vector<Shared>> parameters_by_buffer(const Module& module) {
  std::vector<std::vector<Shared>> buffers;
  std::map<const TensorImpl*, std::pair<std::size_t, std::size_t>> found;
  for (const Module::RegisteredTensor& entry : module.named_tensors()) {
    Tensor& x = *entry.tensor;
    if (!entry.parameter || !requires_grad(x)) continue;
    if (GradientGroup::holds(x)) {
      fail(
          "[parameters] expected a module that is packed once at a time, got {} of {}, which "
          "another Parameters or an Optimizer has packed",
          entry.name, module.path());
    }
    if (const auto again = found.find(TensorImpl::of(x)); again != found.end()) {
      buffers[again->second.first][again->second.second].members.push_back(&x);
      continue;
    }
    std::size_t buffer = 0;
    while (buffer < buffers.size() && (buffers[buffer][0].tensor().dtype() != x.dtype() ||
                                       buffers[buffer][0].tensor().device() != x.device())) {
      ++buffer;
    }
    if (buffer == buffers.size()) buffers.emplace_back();
    found[TensorImpl::of(x)] = {buffer, buffers[buffer].size()};
    buffers[buffer].push_back({entry.name, {&x}});
  }
  for (auto& buffer : buffers) {
    std::ranges::stable_sort(buffer, std::greater{},
                             [](const Shared& s) { return alignment_of(s.tensor()); });
  }
  return buffers;
}

}  // namespace

Parameters::Parameters(Module& module) : module_(&module) {
  const NoGrad constant;
  const std::vector<std::vector<Shared>> buffers = parameters_by_buffer(module);
  if (buffers.empty()) {
    fail("[parameters] expected parameters that require a gradient, got none in {}", module.path());
  }
  std::vector<std::vector<Tensor>> leaves;
  for (const std::vector<Shared>& buffer : buffers) {
    std::vector<Tensor> parts;
    parts.reserve(buffer.size());
    for (const Shared& shared : buffer) parts.push_back(flatten(shared.tensor()));
    const Tensor flat = cat(parts);
    std::vector<Tensor>& views = leaves.emplace_back();
    std::int64_t at = 0;
    for (const Shared& shared : buffer) {
      const Tensor& x = shared.tensor();
      ranges_.push_back({shared.name, values_.size(), at, x.numel()});
      views.push_back(requires_grad_(view(narrow(flat, 0, at, x.numel()), Dims(x.shape()))));
      at += x.numel();
    }
    groups_.push_back(std::make_unique<GradientGroup>(views));
    values_.push_back(flat);
  }
  // Nothing can fail from here on.
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    for (std::size_t i = 0; i < buffers[b].size(); ++i) {
      for (Tensor* member : buffers[b][i].members) replace(*member, leaves[b][i]);
    }
  }
}

void Parameters::report_assigned() const {
  if (!is_alive(module_)) return;
  std::vector<std::string> names;
  for (const Module::RegisteredTensor& entry : module_->named_tensors()) {
    // A leaf in its place gets gradients, and an optimizer reports it.
    const Tensor& x = *entry.tensor;
    if (!entry.parameter || (x.defined() && requires_grad(x)) ||
        std::ranges::find(ranges_, entry.name, &ParameterRange::name) == ranges_.end())
      continue;
    names.push_back(module_->path() + "." + entry.name);
  }
  if (names.empty()) return;
  reported_ = true;
  const std::string line = fmt::format(
      "[parameters] {} was assigned after the module's parameters had been packed and is not "
      "trained: write into it with copy_, or assign before making the optimizer\n",
      fmt::join(names, ", "));
  std::fputs(line.c_str(), stderr);
}

std::vector<Tensor> Parameters::gradients() const {
  if (!reported_ && std::has_single_bit(++reads_)) report_assigned();
  std::vector<Tensor> gradients;
  for (const auto& group : groups_) gradients.push_back(group->flat());
  return gradients;
}

void Parameters::zero_grad() {
  for (const auto& group : groups_) group->clear();
}

const Parameters::ParameterRange& Parameters::range_at(std::size_t buffer,
                                                       std::int64_t element) const {
  if (buffer < values_.size() && element >= 0 && element < values_[buffer].numel()) {
    for (const ParameterRange& range : ranges_) {
      if (range.buffer == buffer && element < range.start + range.length) return range;
    }
  }
  fail("[parameters] expected an element of one of {} flat tensors, got {} of {}", values_.size(),
       element, buffer);
}

std::int64_t Parameters::numel() const {
  std::int64_t total = 0;
  for (const Tensor& flat : values_) total += flat.numel();
  return total;
}

}  // namespace brrr::nn
