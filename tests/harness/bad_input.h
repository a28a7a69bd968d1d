// Cases of misuse. Each must throw brrr::Error with the op in brackets, what was expected and what
// came, and change no tensor.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/harness/catch.h"
#include "tests/harness/samples.h"
#include <brrr/ops/functions.h>
#include <brrr/tensor/error.h>

namespace brrr::test {

using Parts = std::vector<const char*>;

inline long cases = 0;

// The tensors that the cases misuse, and a check that they are unchanged.
struct Things {
  Tensor a = reshape(arange(6.0), {2, 3});  // f32[2, 3]
  Tensor b = reshape(arange(20.0), {4, 5});
  Tensor v = arange(3.0);
  Tensor square = reshape(arange(9.0), {3, 3});
  Tensor half = cast(a, f16);
  Tensor wide = cast(a, f64);
  Tensor whole = arange(4);  // i64[4]
  Tensor flags = zeros({2, 3}, {.dtype = boolean});
  Tensor nothing = empty({0});
  Tensor hollow = empty({2, 0, 3});
  Tensor scalar = scalar_tensor(2.0);
  Tensor shadow = meta({2, 3});
  Tensor spread = expand(arange(3.0), {4, 3});
  Tensor index = tensor(std::vector<std::int64_t>{0, 1, 1, 0, 1, 0}, {2, 3});
  Tensor past = tensor(std::vector<std::int64_t>{0, 7, 1, 0, 1, 0}, {2, 3});
  Tensor below = tensor(std::vector<std::int64_t>{0, 1, 1, 0, 1, -9}, {2, 3});
  Tensor undefined;

  std::vector<Tensor> real() const {
    return {a,       b,      v,      square, half,  wide, whole, flags,
            nothing, hollow, scalar, spread, index, past, below};
  }

  std::vector<Values> state() const {
    std::vector<Values> all;
    for (const Tensor& t : real()) {
      Values values = read(t);
      for (std::int64_t d : t.shape()) values.push_back(static_cast<double>(d));
      for (std::int64_t s : t.strides()) values.push_back(static_cast<double>(s));
      all.push_back(values);
    }
    return all;
  }
};

// `parts` must all be in the message; the first one may offer alternatives, as "[stack]".
inline void refuses(Things& things, const char* what, const std::function<void()>& action,
                    const Parts& parts) {
  ++cases;
  const std::vector<Values> before = things.state();
  std::string message;
  bool typed = false;
  try {
    action();
  } catch (const Error& error) {
    message = error.what();
    typed = true;
  } catch (const std::exception& error) {
    message = std::string("not a brrr::Error: ") + error.what();
  }
  INFO(what << ": \"" << message << "\"");
  CHECK(typed);
  if (typed) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      INFO("must say " << parts[i]);
      bool found = false;
      std::string rest = parts[i];
      for (std::size_t bar; !found; rest = rest.substr(bar + 1)) {
        bar = i == 0 ? rest.find('|') : std::string::npos;
        found = message.find(rest.substr(0, bar)) != std::string::npos;
        if (bar == std::string::npos) break;
      }
      CHECK(found);
    }
  }
  CHECK(things.state() == before);
}

}  // namespace brrr::test
