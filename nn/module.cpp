#include "brrr/nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "brrr/autograd/autograd.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/nn/live_modules.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_work.h"

namespace brrr::nn {

namespace {

struct LiveModules {
  std::mutex mutex;
  std::set<const Module*> all;
};
LiveModules& live_modules() {
  static auto* modules = new LiveModules;
  return *modules;
}

}  // namespace

bool is_alive(const Module* module) {
  LiveModules& live = live_modules();
  const std::lock_guard lock(live.mutex);
  return live.all.contains(module);
}

std::string path_of_parameter(const TensorImpl* leaf) {
  LiveModules& live = live_modules();
  const std::lock_guard lock(live.mutex);
  // Also found through an inner module, whose path is the whole one.
  for (const Module* const module : live.all) {
    for (const Module::RegisteredTensor& entry : module->named_tensors()) {
      if (entry.parameter && TensorImpl::of(*entry.tensor) == leaf)
        return module->path() + "." + entry.name;
    }
  }
  return "";
}

Module::Module(std::string_view kind) : kind_(kind) {
  LiveModules& live = live_modules();
  const std::lock_guard lock(live.mutex);
  live.all.insert(this);
}

Module::~Module() {
  {
    LiveModules& live = live_modules();
    const std::lock_guard lock(live.mutex);
    live.all.erase(this);
  }
  if (parent_) std::erase_if(parent_->children_, [&](const Child& c) { return c.module == this; });
  for (const Child& child : children_) child.module->parent_ = nullptr;
}

void Module::train(bool on) {
  training_.set(on);
  for (const Child& child : children_) child.module->train(on);
}

bool Module::training() const {
  if (TraceListener* trace = thread_context.trace_listener)
    trace->on_setting_read(training_, path() + ".training()");
  return training_.value();
}

Tensor Module::operator()(const Tensor& x) {
  TraceListener* trace = thread_context.trace_listener;
  if (!trace) {
    const HostScope scope(HostActivity::module, [this] { return path(); });
    return forward(x);
  }
  const std::string name = path();
  for (const RegisteredTensor& entry : own_)
    trace->on_tensor_named(*entry.tensor, name + "." + entry.name);
  const struct Scope {
    TraceListener* trace;
    ~Scope() { trace->on_module_exit(); }
  } scope{trace};
  trace->on_module_enter(name);
  return forward(x);
}

std::vector<Module::RegisteredTensor> Module::named_tensors() const {
  std::vector<RegisteredTensor> found;
  collect("", found);
  return found;
}

void Module::collect(const std::string& prefix, std::vector<RegisteredTensor>& found) const {
  for (const RegisteredTensor& entry : own_) {
    found.push_back({prefix + entry.name, entry.tensor, entry.parameter});
  }
  for (const Child& child : children_) child.module->collect(prefix + child.name + ".", found);
}

std::vector<std::pair<std::string, Tensor>> Module::named_parameters() const {
  std::vector<std::pair<std::string, Tensor>> named;
  std::set<const TensorImpl*> seen;
  for (const RegisteredTensor& entry : named_tensors()) {
    if (entry.parameter && seen.insert(TensorImpl::of(*entry.tensor)).second) {
      named.emplace_back(entry.name, *entry.tensor);
    }
  }
  return named;
}

std::string Module::path() const {
  if (!parent_) return kind_;
  const auto in_parent = std::ranges::find(parent_->children_, this, &Child::module);
  return parent_->path() + "." + in_parent->name;
}

void Module::expect_new(const std::string& name) const {
  if (name.empty()) fail("[{}] expected a name, got an empty one", path());
  if (std::ranges::find(own_, name, &RegisteredTensor::name) != own_.end() ||
      std::ranges::find(children_, name, &Child::name) != children_.end()) {
    fail("[{}] expected each name once, got \"{}\" again", path(), name);
  }
}

void Module::parameter(std::string name, Tensor& tensor) {
  expect_new(name);
  if (!tensor.defined() || !is_floating(tensor.dtype()) || !is_leaf(tensor)) {
    fail("[{}] expected a floating tensor that is no op's result for \"{}\", got {}{}", path(),
         name, tensor.describe(),
         tensor.defined() && !is_leaf(tensor) ? ", which was computed" : "");
  }
  requires_grad_(tensor);
  own_.push_back({std::move(name), &tensor, true});
}

void Module::buffer(std::string name, Tensor& tensor) {
  expect_new(name);
  if (!tensor.defined()) {
    fail("[{}] expected a tensor for \"{}\", got an undefined one", path(), name);
  }
  own_.push_back({std::move(name), &tensor, false});
}

void Module::child(std::string name, Module& module) {
  expect_new(name);
  for (const Module* ancestor = this; ancestor; ancestor = ancestor->parent_) {
    if (ancestor == &module) {
      fail("[{}] expected \"{}\" to be another module, got this one or one around it", path(),
           name);
    }
  }
  if (module.parent_) {
    fail("[{}] expected \"{}\" to be a module without a parent, got {}", path(), name,
         module.path());
  }
  module.parent_ = this;
  children_.push_back({std::move(name), &module});
}

void Module::expect_input(const Tensor& x, std::int64_t width, const Tensor& like) const {
  if (x.defined() && x.rank() > 0 && x.shape().back() == width && x.dtype() == like.dtype() &&
      x.device() == like.device()) [[likely]] {
    return;
  }
  const std::string device =
      like.device().is_cpu() ? "" : fmt::format(" on {}", to_string(like.device()));
  refuse_input(fmt::format("{}[..., {}]{}", name_of(like.dtype()), width, device), x);
}

void Module::refuse_input(std::string_view expected, const Tensor& got) const {
  fail("[{}] expected input {}, got {}", path(), expected, got.describe());
}

}  // namespace brrr::nn
