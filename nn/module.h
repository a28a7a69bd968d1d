// A module is tensors and modules under names, and a function of one tensor. Nothing is found by
// itself: a constructor names what the module owns.
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
  // `kind` names the module in errors where it stands in no other: "mlp".
  explicit Module(std::string_view kind = "module") : kind_(kind) {}
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x);

  // Whether dropout drops; modules start in training. A compiled step whose function asked for
  // `training` has an entry for each mode.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const;

  // Moves parameters and buffers to a device, converts the floating ones to a type, and gives
  // *this. A parameter becomes another leaf, with its gradient; one that several places share stays
  // shared. Make optimizers and nn::Parameters afterwards: a packed module is refused. In a
  // module's own functions, brrr::to is the function of tensors.
  Module& to(Device device);
  Module& to(DType dtype);
  Module& to(Device device, DType dtype);

  // Every tensor of this module, then those of its children, by dotted path: "blocks.0.norm1.bias".
  struct Entry {
    std::string name;
    Tensor* tensor;
    bool parameter;  // else a buffer
  };
  std::vector<Entry> entries() const;
  // The parameters, each once, by the first of its names.
  std::vector<std::pair<std::string, Tensor>> named_parameters() const;

  // Where the module stands, from the kind of the outermost one: "mlp.layers.1".
  std::string path() const;

 protected:
  // Each name is there once; those of a list are "layers.0", "layers.1". A parameter becomes a leaf
  // that collects a gradient; a buffer is saved and loaded beside them. What is named lives as long
  // as the module.
  void parameter(std::string name, Tensor& tensor);
  void buffer(std::string name, Tensor& tensor);
  void child(std::string name, Module& module);

  // Throws "[mlp.layers.1] expected input f32[..., 64], got f32[32, 63]" unless x ends in `width`
  // and has the type and device of `like`.
  void expect_input(const Tensor& x, std::int64_t width, const Tensor& like) const;
  [[noreturn]] void refuse_input(std::string_view expected, const Tensor& got) const;

 private:
  struct Child {
    std::string name;
    Module* module;
  };
  Module& convert(std::optional<Device> device, std::optional<DType> dtype);
  void expect_new(const std::string& name) const;
  void collect(const std::string& prefix, std::vector<Entry>& found) const;

  std::string kind_;
  Setting training_{1};
  Module* parent_ = nullptr;
  std::vector<Entry> own_;
  std::vector<Child> children_;
};

}  // namespace brrr::nn
