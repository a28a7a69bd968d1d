#include "brrr/dispatch/call.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/dispatch/op_info.h"

namespace brrr {

bool same_signature(const Call& a, const Call& b) {
  if (a.op != b.op || a.n_attrs != b.n_attrs || a.scalars != b.scalars || a.dtype != b.dtype ||
      a.in_place != b.in_place || a.n_inputs != b.n_inputs ||
      (a.n_inputs == 0 && a.device != b.device)) {
    return false;
  }
  for (int i = 0; i < a.n_attrs; ++i) {
    if (a.attrs[i].bits != b.attrs[i].bits) return false;
  }
  for (std::uint32_t i = 0; i < a.n_inputs; ++i) {
    const Tensor &x = *a.inputs[i], &y = *b.inputs[i];
    if (x.dtype() != y.dtype() || x.device() != y.device() ||
        !std::ranges::equal(x.shape(), y.shape()) ||
        !std::ranges::equal(x.strides(), y.strides())) {
      return false;
    }
  }
  return true;
}

std::uint64_t signature_hash(const Call& call) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  mix(static_cast<std::uint64_t>(call.op) | std::uint64_t{call.n_attrs} << 16 |
      std::uint64_t{call.scalars} << 24 | static_cast<std::uint64_t>(call.dtype) << 32 |
      std::uint64_t{call.in_place} << 40);
  for (int i = 0; i < call.n_attrs; ++i) mix(static_cast<std::uint64_t>(call.attrs[i].bits));
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    const Tensor& input = *call.inputs[i];
    mix(input.impl()->word.bits & 0xfffffu);
    for (std::int64_t d : input.shape()) mix(static_cast<std::uint64_t>(d));
    for (std::int64_t s : input.strides()) mix(static_cast<std::uint64_t>(s));
  }
  if (call.n_inputs == 0)
    mix(static_cast<std::uint64_t>(call.device.type) << 8 | call.device.index);
  return hash;
}

std::string describe(const Call& call) {
  const OpInfo& info = op_info(call.op);
  std::string text = fmt::format("{}{}(", info.name, call.in_place ? "_" : "");
  const char* separator = "";
  const auto add = [&](const std::string& part) {
    text += separator + part;
    separator = ", ";
  };
  const auto scalar = [&](const Attr& attr) {
    return is_floating(call.dtype) ? fmt::format("{}", attr.d()) : fmt::format("{}", attr.i());
  };
  if (info.kind == OpKind::pointwise) {
    std::uint32_t next = 0;
    for (int i = 0; i < info.arity; ++i) {
      add(call.is_scalar(i) ? scalar(call.attrs[i]) : call.inputs[next++]->describe());
    }
    return text + ")";
  }
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) add(call.inputs[i]->describe());
  std::string_view names = info.attributes;
  for (int i = 0; i < call.n_attrs; ++i) {
    const std::string_view name = names.substr(0, names.find(' '));
    if (name.ends_with("...")) {
      add(fmt::format("{}={}", name.substr(0, name.size() - 3), to_string(call.shape_from(i))));
      break;
    }
    const std::string_view kind = name.substr(std::min(name.find(':'), name.size()));
    const std::string value = kind == ":double"   ? fmt::format("{}", call.attrs[i].d())
                              : kind == ":number" ? scalar(call.attrs[i])
                                                  : fmt::format("{}", call.attrs[i].i());
    add(fmt::format("{}={}", name.substr(0, name.size() - kind.size()), value));
    if (names.find(' ') != std::string_view::npos) names.remove_prefix(names.find(' ') + 1);
  }
  return text + ")";
}

}  // namespace brrr
