// A program that opens brrr's namespace and the standard library's, and has types, functions and
// variables of common names, which it uses without a namespace. It compiles without warnings.
#include <brrr/brrr.h>

#include <cstdio>
#include <string>
#include <vector>

using namespace brrr;
using namespace std;

// clang-format off
#define TYPES(X)                                                                                \
  X(Attr)                                                                                       \
  X(Body)                                                                                       \
  X(Call) X(Category) X(Choice) X(Config) X(Context) X(Cost) X(CudaKernel) X(Edge) X(Fixed)     \
      X(Gradient) X(GradMode) X(Grain) X(Graph) X(Handle) X(Kernel) X(Key) X(LaunchConfig)      \
          X(Layer) X(Like) X(Literal) X(Loss) X(Matrix) X(Model) X(Module) X(Node) X(Number)    \
              X(Observer) X(Observing) X(Op) X(Operand) X(Optimizer) X(OutputSpec) X(Parameter) \
                  X(Plan) X(Program) X(Range) X(Result) X(Results) X(Roofline) X(Scalar)        \
                      X(Schedule) X(Setting) X(Shape) X(Sizes) X(State) X(Static) X(Step)       \
                          X(StepTime) X(Storage) X(Tape) X(Task) X(Tile) X(Timer) X(Token)      \
                              X(Trainer) X(Value) X(Variable) X(Vector) X(Weights)
#define DEFINE(name) \
  struct name {      \
    int number = 1;  \
  };
TYPES(DEFINE)
// clang-format on

int cpu = 1, gpu = 1, kMaxDims = 1, device = 1, rate = 1;
namespace detail {
int state = 1;
}
int fail(const string& message) { return static_cast<int>(message.size()); }
int contains(int value) { return value; }
int promote(int value) { return value; }
int describe(int value) { return value; }
int parallel_for(int value) { return value; }
struct Counts {
  bool boolean = false;
  int floating = 0, integer = 0;
};

int main() {
  int sum_of_types = 0;
#define USE(name) sum_of_types += name{}.number;
  TYPES(USE)
#define ONE(name) +1
  if (sum_of_types != 0 TYPES(ONE)) return 1;
  if (cpu + gpu + kMaxDims + device + rate + detail::state != 6) return 2;
  if (fail("four") + contains(1) + promote(1) + describe(1) + parallel_for(1) != 8) return 3;
  if (Counts().boolean) return 4;

  const Tensor x = requires_grad_(randn(3, 4)), weight = requires_grad_(ones({4}, f32));
  const Tensor loss = sum(sinh(x * weight) + tensor(3.0));
  const vector<Tensor> inputs{x, weight};
  const vector<Tensor> gradients = grad(loss, inputs);
  const bool same = gradients[0].shape() == x.shape() && gradients[1].shape() != x.shape();
  const auto cube = register_op({.name = "cube",
                                 .expression = "a * a * a",
                                 .gradient = [](auto& r) { r.set(0, r.g() * r.operand(0)); },
                                 .needs = "a"});
  const Tensor on_cpu = to(call_op(cube, {weight}), Device::cpu());
  // The first place in a message that has no line says how to have lines; the others do not.
  vector<string> messages;
  for (int i = 0; i < 2; ++i) {
    auto step = compile([](const Tensor& t) { return t * item(t); });
    try {
      step(ones({1}));
    } catch (const Error& error) {
      messages.push_back(error.what());
    }
  }
  if (messages.size() != 2) return 6;
  const bool advises[] = {messages[0].find("; compile with -g for lines)") != string::npos,
                          messages[1].find("-g") != string::npos};
  if (advises[1] || advises[0] != (messages[0].find("+0x") != string::npos)) return 7;

  const NoGrad constant;
  printf("%s\n", to_string(on_cpu + log2(tensor({1, 2, 4, 8}))).c_str());
  return same && on_cpu.device() == Device::cpu() ? 0 : 5;
}
