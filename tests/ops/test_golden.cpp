// brrr against PyTorch: values, dtypes and the promotion table. golden/make_ops.py writes the data;
// every result in it must be used here, and every row of the op table must be in it.
#include <cstdio>
#include <functional>
#include <map>
#include <set>

#include "brrr/io/safetensors.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/source_tree.h"

using namespace brrr;
using namespace brrr::test;

namespace {

const SafeTensors& golden() {
  static const SafeTensors file =
      load_safetensors(testing::source_path("tests/golden/ops.safetensors"));
  return file;
}

std::set<std::string>& asked_for() {
  static std::set<std::string> names;
  return names;
}

Tensor input(const std::string& name, DType dtype) {
  return golden().at("in/" + name + "/" + std::string(name_of(dtype)));
}

// `units`: how many roundings of the dtype, of values up to `scale`, two correct computations may
// differ by.
double slack(DType dtype, double units, double scale) {
  switch (dtype) {
    case DType::f16: return units * scale * 0x1p-11;
    case DType::bf16: return units * scale * 0x1p-8;
    case DType::f32: return units * scale * 0x1p-24;
    default: return 0;
  }
}

// Where PyTorch's CPU kernels are not the reference: the element of operand `a` at which they
// differ, and why.
struct Exception {
  const char* prefix;
  std::size_t element;
  const char* reason;
};
constexpr Exception kExceptions[] = {
    {"pointwise/sign/", 0, "PyTorch gives 0 for NaN; brrr keeps it, as NumPy does"},
    {"pointwise/gelu/", 1,
     "PyTorch's vector kernel gives NaN for infinity in some types; the limit is infinity"},
};

void check_golden(Report& report, const std::string& name, const std::function<Tensor()>& call,
                  double extra = 0) {
  const Tensor* expected = golden().find(name);
  asked_for().insert(name);
  std::string problem = "is not in ops.safetensors";
  if (expected) {
    try {
      std::vector<bool> excused(static_cast<std::size_t>(expected->numel()));
      for (const Exception& exception : kExceptions) {
        if (name.starts_with(exception.prefix) && expected->dtype() != i64)
          excused[exception.element] = true;
      }
      problem = difference(call(), expected->dtype(), Dims(expected->shape()), read(*expected),
                           {extra, false, false, &excused});
    } catch (const std::exception& error) {
      problem = std::string("threw ") + error.what();
    }
  }
  report.count(name, problem);
}

void finish(const Report& report) {
  std::printf("golden: %ld results\n", report.cells);
  INFO(report.text());
  CHECK(report.failed == 0);
}

void check_pointwise(Report& report) {
  for (const Pointwise& row : pointwise_ops()) {
    const OpInfo& info = op_info(row.op);
    const std::string op = info.name;
    for (DType dtype : kAllDTypes) {
      const std::string name = "pointwise/" + op + "/" + std::string(name_of(dtype));
      const bool select = info.rule == DTypeRule::select;
      if (!contains(info.types, dtype) && !golden().find(name)) continue;
      check_golden(report, name, [&] {
        std::vector<test::Operand> operands = {{input("a", select ? boolean : dtype), {}}};
        if (row.arity > 1) operands.push_back({input(op == "pow" ? "p" : "b", dtype), {}});
        if (row.arity > 2) operands.push_back({input("c", dtype), {}});
        return row.call(operands);
      });
    }
  }
}

void check_reduce(Report& report) {
  for (const brrr::test::Reduction& row : reduction_ops()) {
    const OpInfo& info = op_info(row.op);
    for (DType dtype : kAllDTypes) {
      if (!contains(info.types, dtype)) continue;
      const Tensor r = input("r", dtype);
      const std::string name = std::string("reduce/") + info.name,
                        type = "/" + std::string(name_of(dtype));
      const double extra = is_floating(dtype) ? slack(dtype, 1, 8) + 1e-6 : 0;
      check_golden(
          report, name + type, [&] { return row.all(r); }, extra);
      check_golden(
          report, name + ":0" + type, [&] { return row.over(r, {0}, false); }, extra);
      check_golden(
          report, name + ":1k" + type, [&] { return row.over(r, {1}, true); }, extra);
    }
  }
  for (DType dtype : kAllDTypes) {
    const std::string type = "/" + std::string(name_of(dtype));
    check_golden(
        report, "scan/cumsum:1" + type, [&] { return cumsum(input("r", dtype), 1); },
        slack(dtype, 2, 8));
    if (dtype == boolean) continue;
    const Tensor distinct = is_floating(dtype)
                                ? Tensor()
                                : cast(reshape(remainder(arange(35) * 11, 35), {5, 7}), dtype);
    const Tensor r = is_floating(dtype) ? input("r", dtype) : distinct;
    const Tensor special = is_floating(dtype) ? input("a", dtype) : distinct;
    check_golden(report, "arg/argmax:1" + type, [&] { return argmax(r, 1); });
    check_golden(report, "arg/argmin:1" + type, [&] { return argmin(r, 1); });
    check_golden(report, "arg/argmax" + type, [&] { return argmax(special); });
    check_golden(report, "arg/argmin" + type, [&] { return argmin(special); });
  }
}

void check_composites(Report& report) {
  for (DType dtype : kFloatDTypes) {
    const Tensor r = input("r", dtype), a = slice(input("a", dtype), 0, 2, 6);
    const Tensor w = slice(input("b", dtype), 0, 0, 7), b = slice(input("p", dtype), 0, 1, 8);
    const std::string type = "/" + std::string(name_of(dtype));
    const auto one = [&](const char* name, const std::function<Tensor()>& call, double units,
                         double scale) {
      check_golden(report, name + type, call, slack(dtype, units, scale));
    };
    one(
        "composite/var", [&] { return var(r); }, 8, 4);
    one(
        "composite/var:1,0", [&] { return var(r, {1}, false, 0); }, 8, 4);
    one(
        "composite/logsumexp:0", [&] { return logsumexp(r, {0}); }, 8, 4);
    one(
        "composite/softmax:1", [&] { return softmax(r, 1); }, 8, 1);
    one(
        "composite/softmax:0", [&] { return softmax(r, 0); }, 8, 1);
    one(
        "composite/log_softmax:1", [&] { return log_softmax(r, 1); }, 8, 4);
    one(
        "composite/layer_norm", [&] { return layer_norm(r, 1, w, b); }, 8, 8);
    one(
        "composite/layer_norm:2", [&] { return layer_norm(r, 2); }, 8, 4);
    one(
        "composite/rms_norm", [&] { return rms_norm(r, 1, w); }, 8, 8);
    one(
        "matmul/2d", [&] { return matmul(r, slice(transpose(a, 0, 1), 0, 0, 7)); }, 4, 60);
    one(
        "matmul/dot", [&] { return matmul(w, b); }, 4, 60);
    one(
        "matmul/row", [&] { return matmul(w, transpose(r, 0, 1)); }, 4, 60);
    one(
        "matmul/column", [&] { return matmul(r, w); }, 4, 60);
    const Tensor t = transpose(r, 0, 1);
    one(
        "matmul/batch",
        [&] {
          return matmul(stack({r, r + 1}), stack({t, t * 2}));
        },
        4, 60);
    one(
        "matmul/broadcast",
        [&] {
          return matmul(stack({r, r + 1}), t);
        },
        4, 60);
    one(
        "matmul/linear", [&] { return linear(r, r + 1, slice(w, 0, 0, 5)); }, 4, 60);
  }
}

void check_indexing(Report& report) {
  const Tensor index = golden().at("in/index"), rows = golden().at("in/rows");
  for (DType dtype : kAllDTypes) {
    const Tensor r = input("r", dtype);
    const std::string type = "/" + std::string(name_of(dtype));
    const auto one = [&](const char* name, const std::function<Tensor()>& call) {
      check_golden(report, name + type, call);
    };
    one("index/gather:0", [&] { return gather(r, 0, index); });
    one("index/select:0", [&] { return index_select(r, 0, rows); });
    one("index/select:1", [&] { return index_select(r, 1, rows); });
    one("index/embedding", [&] { return embedding(r, index); });
    one("index/nonzero", [&] { return nonzero(r); });
    one("index/tril:1", [&] { return tril(r, 1); });
    one("index/triu:-1", [&] { return triu(r, -1); });
    one("join/cat:0", [&] { return cat({r, slice(r, 0, 1, 3)}, 0); });
    one("join/cat:1", [&] { return cat({r, slice(r, 1, 2, 4)}, 1); });
    one("join/stack:1", [&] { return stack({r, r}, 1); });
    if (dtype == boolean) continue;
    check_golden(
        report, "index/scatter_add:0" + type,
        [&] { return scatter_add(r, 0, index, slice(r, 0, 0, 2)); }, slack(dtype, 2, 6));
  }
  check_golden(report, "index/one_hot", [&] { return one_hot(index, 5); });
  check_golden(report, "make/arange", [] { return arange(-3, 11, 4); });
  check_golden(report, "make/arange_f", [] { return arange(0.5, 3.0, 0.5); });
  check_golden(report, "make/linspace", [] { return linspace(-1, 2, 7); });
}

Scalar number_like(DType dtype) {
  return dtype == boolean ? Scalar(true) : is_floating(dtype) ? Scalar(1.0) : Scalar(1);
}

}  // namespace

TEST_CASE("results agree with PyTorch's", "[golden]") {
  Report report;
  check_pointwise(report);
  check_reduce(report);
  check_composites(report);
  check_indexing(report);
  finish(report);
  for (const auto& [name, tensor] : golden().tensors) {
    if (name.starts_with("in/") || name == "promotion") continue;
    INFO(name << " is never asked for");
    CHECK(asked_for().count(name) == 1);
  }
}

TEST_CASE("types promote as PyTorch's", "[golden]") {
  const Values table = read(golden().at("promotion"));
  Report report;
  std::size_t at = 0;
  for (int ra = 0; ra < 3; ++ra) {
    for (int rb = 0; rb < 3; ++rb) {
      for (DType a : kAllDTypes) {
        for (DType b : kAllDTypes) {
          const double entry = table[at++];
          if (entry < 0) continue;
          const DType expected = kAllDTypes[static_cast<int>(entry)];
          const auto typed = [](DType t, int rank) {
            const DType kind = rank < 2 || t == boolean ? t : is_floating(t) ? f64 : i64;
            return Typed{kind, static_cast<Rank>(rank)};
          };
          const Typed pair[] = {typed(a, ra), typed(b, rb)};
          const std::string cell = "rank " + std::to_string(ra) + " " + std::string(name_of(a)) +
                                   " with rank " + std::to_string(rb) + " " +
                                   std::string(name_of(b)) + ", expected " +
                                   std::string(name_of(expected));
          report.count("the tests' own rule: " + cell,
                       result_type(pair) == expected ? "" : "differs");
          const Tensor x = ones(ra == 0 ? Dims{3} : Dims{}, {.dtype = a}),
                       y = ones(rb == 0 ? Dims{3} : Dims{}, {.dtype = b});
          for (const auto& f : {std::function<Tensor()>([&] {
                                  return ra == 2   ? add(number_like(a), y)
                                         : rb == 2 ? add(x, number_like(b))
                                                   : add(x, y);
                                }),
                                std::function<Tensor()>([&] {
                                  return ra == 2   ? mul(number_like(a), y)
                                         : rb == 2 ? mul(x, number_like(b))
                                                   : mul(x, y);
                                })}) {
            std::string problem;
            try {
              const DType got = f().dtype();
              if (got != expected) problem = "gives " + std::string(name_of(got));
            } catch (const std::exception& error) {
              problem = error.what();
            }
            report.count(cell, problem);
          }
        }
      }
    }
  }
  finish(report);
}

TEST_CASE("the rule for two types is PyTorch's", "[golden]") {
  const Values table = read(golden().at("promotion"));
  std::size_t at = 0;
  for (DType a : kAllDTypes) {
    for (DType b : kAllDTypes) {
      INFO(name_of(a) << " with " << name_of(b));
      CHECK(promote(a, b) == kAllDTypes[static_cast<int>(table[at++])]);
    }
  }
}
