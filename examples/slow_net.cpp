// The program that docs/guide.md makes fast: as one writes it first, and after each change.
//
//   slow_net                     # parses the rows of each batch, and trains eagerly
//   slow_net kept                # has parsed all rows before
//   slow_net kept graph          # and compiles the step; or: fused
//   slow_net kept fused 512      # with larger batches
//   slow_net kept fused 512 9999 # for so many steps
//
//   BRRR_REPORT=- slow_net       # where its time goes
#include <brrr/brrr.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

using namespace brrr;

namespace {

constexpr std::int64_t kFeatures = 16, kRows = 4096;
constexpr int kWarm = 10;  // steps before the clock starts: the first ones compile

// Lines as a file has them: the features, and the sum of their sines.
std::vector<std::string> make_table() {
  std::vector<std::string> lines;
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::ostringstream line;
    double label = 0;
    for (std::int64_t i = 0; i < kFeatures; ++i) {
      const double x = std::sin(static_cast<double>(row * kFeatures + i) * 1.7);
      line << x << ' ';
      label += std::sin(x);
    }
    line << label;
    lines.push_back(line.str());
  }
  return lines;
}

Tensor parse_rows(const std::vector<std::string>& lines, std::int64_t from, std::int64_t rows) {
  std::vector<float> values;
  for (std::int64_t row = from; row < from + rows; ++row) {
    std::istringstream line(lines[static_cast<std::size_t>(row)]);
    for (float value = 0; line >> value;) values.push_back(value);
  }
  return tensor(values, {rows, kFeatures + 1});
}

struct Net {
  nn::MLP model{{kFeatures, 64, 64, 1}};
  optim::Optimizer optimizer{model, optim::adam(1e-3)};

  Tensor train(const Tensor& rows) {
    const Tensor x = narrow(rows, 1, 0, kFeatures), y = narrow(rows, 1, kFeatures, 1);
    const Tensor loss = nn::mse_loss(model(x), y);
    optimizer.zero_grad();
    backward(loss);
    optimizer.step();
    return detach(loss);
  }
};

void run(const std::string& data, const std::string& how, std::int64_t batch, int steps) {
  const bool kept = data == "kept";
  const Mode mode = how == "eager" ? Mode::eager : how == "graph" ? Mode::graph : Mode::fused;
  const std::vector<std::string> lines = make_table();
  const Tensor all = parse_rows(lines, 0, kRows);
  Net net;
  auto step =
      compile([&](const Tensor& rows) { return net.train(rows); }, {.mode = mode, .name = "train"});
  std::chrono::steady_clock::time_point start;
  double loss = 0;
  for (int i = -kWarm; i < steps; ++i) {
    if (i == 0) start = std::chrono::steady_clock::now();
    const std::int64_t from = (i + kWarm) * batch % (kRows - batch + 1);
    const Tensor rows = kept ? narrow(all, 0, from, batch) : parse_rows(lines, from, batch);
    const Tensor now = step(rows);
    if (i % 100 == 0 || i == steps - 1) loss = item(now);
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  const double step_us = time.count() / steps, row_us = step_us / static_cast<double>(batch);
  std::printf("%s %s: %.1f us a step, %.2f a row, loss %.1e\n", data.c_str(), how.c_str(), step_us,
              row_us, loss);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string data = argc > 1 ? argv[1] : "parsed", mode = argc > 2 ? argv[2] : "eager";
    const std::int64_t batch = argc > 3 ? std::atoi(argv[3]) : 32;
    const int steps = argc > 4 ? std::atoi(argv[4]) : 3000;
    const bool known = (data == "parsed" || data == "kept") &&
                       (mode == "eager" || mode == "graph" || mode == "fused");
    if (!known || batch < 1 || batch > kRows || steps < 1) {
      std::fprintf(stderr, "slow_net [parsed|kept] [eager|graph|fused] [rows, 1 to %d] [steps]\n",
                   static_cast<int>(kRows));
      return 1;
    }
    run(data, mode, batch, steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
