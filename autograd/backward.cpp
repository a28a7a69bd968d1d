// backward and grad: checks of their arguments around a Run; anomaly mode.

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/run.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_work.h"

namespace brrr {
namespace autograd {
namespace {

void require_gradient(const char* what, const Tensor& x) {
  require_defined(what, x);
  if (requires_grad(x)) return;
  const bool replayed = TensorImpl::of(x)->word.bits & kReplayed;
  fail("[{}] expected a tensor that was computed from one that requires a gradient, got {}{}", what,
       x.describe(),
       replayed         ? ", a result of a compiled step, which carries no gradient: call "
                          "backward in the step"
       : grad_enabled() ? ""
                        : "; a NoGrad is active on this thread");
}

Tensor seed_for(const char* what, const Tensor& output, const Tensor& gradient) {
  if (!gradient.defined()) {
    if (output.numel() != 1) {
      fail("[{}] expected an output of one element, or its gradient, got {}", what,
           output.describe());
    }
    return ones_like(output);
  }
  if (!alike(gradient, output)) {
    fail("[{}] expected a gradient like the output {}, got {}", what, output.describe(),
         described(gradient));
  }
  return gradient;
}

}  // namespace
}  // namespace autograd

void backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients,
              BackwardOptions options) {
  using namespace autograd;
  if (outputs.empty() || (!gradients.empty() && gradients.size() != outputs.size())) {
    fail("[backward] expected outputs and as many gradients or none, got {} and {}", outputs.size(),
         gradients.size());
  }
  for (const Tensor& output : outputs) require_gradient("backward", output);
  const HostScope scope(HostActivity::backward, "backward");
  const GradMode recording(options.create_graph);
  Run run(options.create_graph, options.retain_graph.value_or(options.create_graph));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    run.seed(outputs[i],
             seed_for("backward", outputs[i], gradients.empty() ? Tensor() : gradients[i]));
  }
  run.go();
  run.commit();
}

void backward(const Tensor& output, const Tensor& gradient, BackwardOptions options) {
  backward(std::span(&output, 1), std::span(&gradient, 1), options);
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         GradOptions options) {
  using namespace autograd;
  if (outputs.empty() || inputs.empty() ||
      (!options.gradients.empty() && options.gradients.size() != outputs.size())) {
    fail(
        "[grad] expected outputs, inputs, and as many gradients as outputs or none, got {}, {} and "
        "{}",
        outputs.size(), inputs.size(), options.gradients.size());
  }
  std::vector<Wanted> wanted;
  for (const Tensor& input : inputs) {
    require_gradient("grad", input);
    const History& history = *history_of(input);
    wanted.push_back(
        {history.node, history.node ? nullptr : TensorImpl::of(input), history.output, {}});
  }
  for (const Tensor& output : outputs) require_gradient("grad", output);
  const HostScope scope(HostActivity::backward, "grad");
  const GradMode recording(options.create_graph);
  Run run(options.create_graph, options.retain_graph.value_or(options.create_graph));
  run.restrict_to(wanted, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    run.seed(outputs[i], seed_for("grad", outputs[i],
                                  options.gradients.empty() ? Tensor() : options.gradients[i]));
  }
  run.go();
  run.collect();
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Tensor& gradient = wanted[i].gradient;
    if (!gradient.defined() && !options.allow_unused) {
      if (!run.reaches(wanted[i])) {
        fail(
            "[grad] expected outputs that depend on every input, got input {}, {}, that none "
            "depends on; pass allow_unused",
            i, inputs[i].describe());
      }
      gradient = zeros_like(inputs[i]);
    }
    result.push_back(std::move(gradient));
  }
  return result;
}

std::vector<Tensor> grad(const Tensor& output, std::initializer_list<Tensor> inputs,
                         GradOptions options) {
  return grad(std::span(&output, 1), std::span(inputs.begin(), inputs.size()), std::move(options));
}

Tensor grad(const Tensor& output, const Tensor& input, GradOptions options) {
  return grad(std::span(&output, 1), std::span(&input, 1), std::move(options))[0];
}

DetectAnomaly::DetectAnomaly() : before_(std::exchange(thread_context.detect_anomaly, true)) {}
DetectAnomaly::~DetectAnomaly() { thread_context.detect_anomaly = before_; }

}  // namespace brrr
