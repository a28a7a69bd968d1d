// A module: named parameters, buffers and submodules, and a forward function of one tensor. The
// constructor registers each of them explicitly; members are not discovered.
//
//   struct Affine : nn::Module {
//     Tensor scale = ones({3}), shift = zeros({3});
//     Affine() : Module("affine") {
//       parameter("scale", scale);
//       parameter("shift", shift);
//     }
//     Tensor forward(const Tensor& x) override { return x * scale + shift; }
//   };
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <brrr/dispatch/setting.h>
#include <brrr/tensor/tensor.h>

namespace brrr::nn {

class Module {
 public:
  // `kind` names a module without a parent in errors: "mlp".
  explicit Module(std::string_view kind = "module");
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x);

  // Training or evaluation mode, for dropout; modules start in training mode. A compiled step whose
  // function reads training() has an entry for each mode.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const;

  // Moves parameters and buffers to a device, converts the floating ones to a dtype, and returns
  // *this. Each parameter becomes a new leaf with its gradient; shared parameters stay shared. Make
  // optimizers and nn::Parameters afterwards: a packed module is refused. In derived classes write
  // brrr::to for the function of tensors.
  Module& to(Device device);
  Module& to(DType dtype);
  Module& to(Device device, DType dtype);

  // The tensors of this module, then those of its children, by dotted path: "blocks.0.norm1.bias".
  struct RegisteredTensor {
    std::string name;
    Tensor* tensor;
    bool parameter;  // false: a buffer
  };
  std::vector<RegisteredTensor> named_tensors() const;
  // Each parameter once, under its first name.
  std::vector<std::pair<std::string, Tensor>> named_parameters() const;

  // The dotted path from the outermost module, which is named by its kind: "mlp.layers.1".
  std::string path() const;

 protected:
  // Register a tensor or a submodule, which must outlive the module. Names are unique; those of a
  // list are "layers.0", "layers.1". A parameter requires a gradient from then on; a buffer is
  // state without one.
  void parameter(std::string name, Tensor& tensor);
  void buffer(std::string name, Tensor& tensor);
  void child(std::string name, Module& module);

  // Throws "[mlp.layers.1] expected input f32[..., 64], got f32[32, 63]" unless x has last
  // dimension `width` and the dtype and device of `like`.
  void expect_input(const Tensor& x, std::int64_t width, const Tensor& like) const;
  [[noreturn]] void refuse_input(std::string_view expected, const Tensor& got) const;

 private:
  struct Child {
    std::string name;
    Module* module;
  };
  Module& convert(std::optional<Device> device, std::optional<DType> dtype);
  void expect_new(const std::string& name) const;
  void collect(const std::string& prefix, std::vector<RegisteredTensor>& found) const;

  std::string kind_;
  core::Setting training_{1};
  Module* parent_ = nullptr;
  std::vector<RegisteredTensor> own_;
  std::vector<Child> children_;
};

}  // namespace brrr::nn
