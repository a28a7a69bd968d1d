// The fake driver: modules, kernels, capture and graphs. A graph runs its nodes in a random order
// that its edges allow, so a missing edge shows.
#include <cstring>

#include "tests/fake_cuda/state.h"

namespace brrr::testing {

void FakeState::run_graph(const std::shared_ptr<FakeGraph>& graph) {
  const int count = static_cast<int>(graph->nodes.size());
  std::vector<int> missing(count);
  std::vector<std::vector<int>> next(count);
  std::vector<int> ready;
  for (int i = 0; i < count; ++i) {
    missing[i] = static_cast<int>(graph->nodes[i].after.size());
    for (int before : graph->nodes[i].after) next[before].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const int node = ready.back();
    ready.pop_back();
    clock += kEntryTime;
    in_host_work = graph->nodes[node].host;
    if (graph->nodes[node].run) graph->nodes[node].run();
    in_host_work = false;
    for (int after : next[node]) {
      if (--missing[after] == 0) ready.push_back(after);
    }
  }
}

namespace {

// --- Modules and kernels ---

CUresult module_load(CUmodule* out, const void* image) {
  FAKE_ENTER();
  FAKE_NEED_CONTEXT();
  // A cubin starts as an ELF file, and is not text.
  const char* text = static_cast<const char*>(image);
  *out = reinterpret_cast<CUmodule>(
      fake->modules.add(FakeModule{std::memcmp(text, "\177ELF", 4) == 0 ? "" : text}));
  return CUDA_SUCCESS;
}
CUresult module_unload(CUmodule module) {
  FAKE_ENTER();
  return fake->modules.drop(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult module_get_function(CUfunction* out, CUmodule module, const char* name) {
  FAKE_ENTER();
  const std::string& image = reinterpret_cast<FakeModule*>(module)->image;
  auto kernel = fake->kernels.find(name);
  if (kernel == fake->kernels.end() && !image.empty() && image.find(name) == std::string::npos) {
    return CUDA_ERROR_NOT_FOUND;
  }
  FakeKernel* found = kernel == fake->kernels.end() ? nullptr : &kernel->second;
  fake->functions.push_back(std::make_unique<FakeFunction>(FakeFunction{name, found}));
  *out = reinterpret_cast<CUfunction>(fake->functions.back().get());
  return CUDA_SUCCESS;
}
// Every kernel has 40 registers and nothing that spills.
CUresult func_get_attribute(int* value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 40 : 0;
  return CUDA_SUCCESS;
}
CUresult func_set_attribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }

// Refuses what the driver's documentation does not allow; nothing reads the map.
CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const bool halves =
      type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const cuuint32_t row = box[0] * (halves ? 2 : 4);
  const cuuint32_t most = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
                          : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                                                                 : 32;
  bool allowed = rank >= 3 && rank <= 5 && reinterpret_cast<std::uintptr_t>(address) % 16 == 0 &&
                 row % 16 == 0 && row <= most;
  for (cuuint32_t i = 0; i < rank; ++i) {
    allowed &= sizes[i] >= 1 && sizes[i] <= cuuint64_t{1} << 32 && box[i] >= 1 && box[i] <= 256;
    if (i > 0) allowed &= strides[i - 1] % 16 == 0 && strides[i - 1] < cuuint64_t{1} << 40;
  }
  *map = {};
  return allowed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

std::shared_ptr<FakeKernelCall> call_of(CUfunction function, const unsigned (&grid)[3],
                                        const unsigned (&block)[3], unsigned shared_bytes,
                                        void** arguments) {
  auto call = std::make_shared<FakeKernelCall>();
  if (const FakeKernel* kernel = reinterpret_cast<FakeFunction*>(function)->kernel) {
    for (std::size_t i = 0; i < kernel->argument_sizes.size(); ++i) {
      const char* bytes = static_cast<const char*>(arguments[i]);
      call->arguments.emplace_back(bytes, bytes + kernel->argument_sizes[i]);
    }
  }
  for (auto& argument : call->arguments) call->pointers.push_back(argument.data());
  CUDA_KERNEL_NODE_PARAMS& params = call->params;
  params.func = function;
  params.gridDimX = grid[0], params.gridDimY = grid[1], params.gridDimZ = grid[2];
  params.blockDimX = block[0], params.blockDimY = block[1], params.blockDimZ = block[2];
  params.sharedMemBytes = shared_bytes;
  params.kernelParams = call->pointers.data();
  return call;
}
void run_kernel(const FakeKernelCall& call) {
  const CUDA_KERNEL_NODE_PARAMS& p = call.params;
  const FakeKernel* kernel = reinterpret_cast<FakeFunction*>(p.func)->kernel;
  if (!kernel) return;
  kernel->run({{p.gridDimX, p.gridDimY, p.gridDimZ},
               {p.blockDimX, p.blockDimY, p.blockDimZ},
               p.sharedMemBytes,
               call.pointers.data()});
}
bool good_shape(const unsigned (&grid)[3], const unsigned (&block)[3]) {
  for (int i = 0; i < 3; ++i) {
    if (grid[i] == 0 || block[i] == 0) return false;
  }
  return grid[1] <= 65535 && grid[2] <= 65535 && block[0] * block[1] * block[2] <= 1024;
}
CUresult launch_kernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream,
                       void** arguments, void**) {
  FAKE_ENTER();
  if (current_fake_device != stream_of(stream)->device) return CUDA_ERROR_INVALID_CONTEXT;
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  if (!good_shape(grid, block)) return CUDA_ERROR_INVALID_VALUE;
  const auto call = call_of(function, grid, block, shared_bytes, arguments);
  fake->add(*stream_of(stream), {FakeEntry::work, [call] { run_kernel(*call); }, nullptr, call});
  return CUDA_SUCCESS;
}
CUresult launch_kernel_ex(const CUlaunchConfig* c, CUfunction function, void** arguments,
                          void** extra) {
  return launch_kernel(function, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
                       c->blockDimZ, c->sharedMemBytes, c->hStream, arguments, extra);
}

// --- Capture ---

CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_ENTER();
  const auto& capture = stream_of(stream)->capture;
  *status = !capture          ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                              : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}
#if CUDA_VERSION >= 13000
CUresult capture_info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph* graph,
                      const CUgraphNode**, const CUgraphEdgeData**, std::size_t*) {
#else
CUresult capture_info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph* graph,
                      const CUgraphNode**, std::size_t*) {
#endif
  const CUresult code = is_capturing(stream, status);
  FAKE_ENTER();
  FakeStream& s = *stream_of(stream);
  if (!s.capture) return code;
  if (!s.capture->handle) s.capture->handle = std::make_shared<FakeGraphHandle>();
  // The handle of a capture under way does not own its graph.
  s.capture->handle->graph = std::shared_ptr<FakeGraph>(std::shared_ptr<void>(), s.capture.get());
  *graph = reinterpret_cast<CUgraph>(s.capture->handle.get());
  return code;
}
CUresult func_get_name(const char** name, CUfunction function) {
  FAKE_ENTER();
  *name = reinterpret_cast<FakeFunction*>(function)->name.c_str();
  return CUDA_SUCCESS;
}
CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode) {
  FAKE_ENTER();
  FakeStream& s = *stream_of(stream);
  if (s.capture) return CUDA_ERROR_ILLEGAL_STATE;
  s.capture = std::make_shared<FakeGraph>();
  s.mode = mode;
  s.origin = true;
  s.capture_tail.clear();
  return CUDA_SUCCESS;
}
CUresult end_capture(CUstream stream, CUgraph* out) {
  FAKE_ENTER();
  FakeStream& s = *stream_of(stream);
  *out = nullptr;
  if (!s.capture || !s.origin) return CUDA_ERROR_ILLEGAL_STATE;
  auto graph = s.capture;
  bool joined = true;  // every stream that took part must have come back
  std::vector<char> reached(graph->nodes.size());
  std::vector<int> todo = s.capture_tail;
  while (!todo.empty()) {
    const int node = todo.back();
    todo.pop_back();
    if (reached[node]) continue;
    reached[node] = 1;
    todo.insert(todo.end(), graph->nodes[node].after.begin(), graph->nodes[node].after.end());
  }
  for (char r : reached) joined &= r;
  for (auto& other : fake->streams) {
    if (other->capture == graph) {
      other->capture = nullptr;
      other->origin = false;
      other->capture_tail.clear();
    }
  }
  if (graph->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *out = reinterpret_cast<CUgraph>(fake->graphs.add(FakeGraphHandle{graph}));
  return CUDA_SUCCESS;
}
CUresult exchange_mode(CUstreamCaptureMode* mode) {
  std::swap(*mode, fake_capture_mode);
  return CUDA_SUCCESS;
}

// --- Graphs ---

FakeGraphHandle* graph_of(CUgraph graph) { return reinterpret_cast<FakeGraphHandle*>(graph); }

CUresult graph_destroy(CUgraph graph) {
  FAKE_ENTER();
  return fake->graphs.drop(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult get_nodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  FAKE_ENTER();
  FakeGraph& g = *graph_of(graph)->graph;
  if (nodes) {
    for (std::size_t i = 0; i < *count && i < g.nodes.size(); ++i) {
      fake->nodes.push_back(
          std::make_unique<FakeNodeHandle>(FakeNodeHandle{&g, static_cast<int>(i)}));
      nodes[i] = reinterpret_cast<CUgraphNode>(fake->nodes.back().get());
    }
  }
  *count = g.nodes.size();
  return CUDA_SUCCESS;
}
CUresult kernel_node_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params) {
  FAKE_ENTER();
  const auto* handle = reinterpret_cast<FakeNodeHandle*>(node);
  const auto& call = handle->graph->nodes[static_cast<std::size_t>(handle->index)].kernel;
  if (!call) return CUDA_ERROR_INVALID_VALUE;
  *params = call->params;
  return CUDA_SUCCESS;
}
// No launch has attributes that a node keeps.
CUresult kernel_node_attribute(CUgraphNode, CUlaunchAttributeID, CUlaunchAttributeValue* value) {
  FAKE_ENTER();
  *value = {};
  return CUDA_SUCCESS;
}
CUresult instantiate(CUgraphExec* out, CUgraph graph, unsigned long long) {
  FAKE_ENTER();
  *out = reinterpret_cast<CUgraphExec>(
      fake->executables.add(FakeGraphHandle{std::make_shared<FakeGraph>(*graph_of(graph)->graph)}));
  return CUDA_SUCCESS;
}
CUresult exec_destroy(CUgraphExec exec) {
  FAKE_ENTER();
  return fake->executables.drop(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult exec_kernel_node_set_params(CUgraphExec exec, CUgraphNode node,
                                     const CUDA_KERNEL_NODE_PARAMS* p) {
  FAKE_ENTER();
  // A launch in flight runs the graph that it was launched with.
  auto& graph = reinterpret_cast<FakeGraphHandle*>(exec)->graph;
  graph = std::make_shared<FakeGraph>(*graph);
  FakeNode& changed =
      graph->nodes[static_cast<std::size_t>(reinterpret_cast<FakeNodeHandle*>(node)->index)];
  if (!changed.kernel) return CUDA_ERROR_INVALID_VALUE;
  const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
  const unsigned block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
  const auto call = call_of(p->func, grid, block, p->sharedMemBytes, p->kernelParams);
  changed.run = [call] { run_kernel(*call); };
  changed.kernel = call;
  return CUDA_SUCCESS;
}
CUresult upload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
CUresult graph_launch(CUgraphExec exec, CUstream stream) {
  FAKE_ENTER();
  auto graph = reinterpret_cast<FakeGraphHandle*>(exec)->graph;
  fake->add(*stream_of(stream), {FakeEntry::work, [graph] { fake->run_graph(graph); }, nullptr});
  return CUDA_SUCCESS;
}

}  // namespace

void add_fake_graph_calls(cu::Table& t) {
  t.cuModuleLoadData = module_load;
  t.cuModuleUnload = module_unload;
  t.cuModuleGetFunction = module_get_function;
  t.cuFuncGetAttribute = func_get_attribute;
  t.cuFuncSetAttribute = func_set_attribute;
  t.cuTensorMapEncodeTiled = encode_tiled;
  t.cuLaunchKernel = launch_kernel;
  t.cuLaunchKernelEx = launch_kernel_ex;
  t.cuStreamIsCapturing = is_capturing;
  t.cuStreamGetCaptureInfo = capture_info;
  t.cuFuncGetName = func_get_name;
  t.cuStreamBeginCapture = begin_capture;
  t.cuStreamEndCapture = end_capture;
  t.cuThreadExchangeStreamCaptureMode = exchange_mode;
  t.cuGraphDestroy = graph_destroy;
  t.cuGraphGetNodes = get_nodes;
  t.cuGraphKernelNodeGetParams = kernel_node_params;
  t.cuGraphKernelNodeGetAttribute = kernel_node_attribute;
  t.cuGraphInstantiate = instantiate;
  t.cuGraphExecKernelNodeSetParams = exec_kernel_node_set_params;
  t.cuGraphExecDestroy = exec_destroy;
  t.cuGraphUpload = upload;
  t.cuGraphLaunch = graph_launch;
}

}  // namespace brrr::testing
