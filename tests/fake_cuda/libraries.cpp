// The fake driver's libraries: an NVRTC whose cubin is its source, and a cuBLASLt that multiplies.
#include <cstring>
#include <utility>

#include "tests/fake_cuda/state.h"

namespace brrr::testing {
namespace {

// --- NVRTC ---

struct Program {
  std::string source, log;
};
Program* program_of(nvrtcProgram program) { return reinterpret_cast<Program*>(program); }

nvrtcResult version(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}
const char* error_string(nvrtcResult code) {
  return code == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_OTHER";
}
nvrtcResult create(nvrtcProgram* out, const char* source, const char*, int, const char* const*,
                   const char* const*) {
  FakeState::Lock lock(fake->mutex);
  *out = reinterpret_cast<nvrtcProgram>(fake->programs.add(Program{source, {}}));
  return NVRTC_SUCCESS;
}
nvrtcResult destroy(nvrtcProgram* program) {
  FakeState::Lock lock(fake->mutex);
  fake->programs.drop(*program);
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult compile(nvrtcProgram program, int, const char* const*) {
  FakeState::Lock lock(fake->mutex);
  fake->compiled.push_back(program_of(program)->source);
  if (program_of(program)->source.find(fake->refused) == std::string::npos) return NVRTC_SUCCESS;
  program_of(program)->log = "source(1): error: \"" + fake->refused + "\"";
  return NVRTC_ERROR_COMPILATION;
}
nvrtcResult log_size(nvrtcProgram program, std::size_t* size) {
  *size = program_of(program)->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult log_text(nvrtcProgram program, char* text) {
  std::strcpy(text, program_of(program)->log.c_str());
  return NVRTC_SUCCESS;
}
nvrtcResult cubin_size(nvrtcProgram program, std::size_t* size) {
  *size = program_of(program)->source.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult cubin(nvrtcProgram program, char* text) {
  std::strcpy(text, program_of(program)->source.c_str());
  return NVRTC_SUCCESS;
}

// --- cuBLASLt ---

// The library's descriptors are opaque structs that it makes and the caller points to.
struct Desc {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const float* bias = nullptr;  // a row of d's each
};
struct Layout {
  std::uint64_t rows, columns;
  std::int64_t leading;
  int batch = 1;
  std::int64_t batch_stride = 0;
};

template <class T, class Handle, class... Args>
cublasStatus_t make(Handle* out, Args&&... args) {
  FakeState::Lock lock(fake->mutex);
  *out = reinterpret_cast<Handle>(fake->library_objects.add(T{std::forward<Args>(args)...}));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t unmake(const void* handle) {
  FakeState::Lock lock(fake->mutex);
  fake->library_objects.drop(handle);
  return CUBLAS_STATUS_SUCCESS;
}

const char* status_text(cublasStatus_t) { return "CUBLAS_STATUS_OTHER"; }
std::size_t lt_version() { return 130000; }
cublasStatus_t lt_create(cublasLtHandle_t* handle) { return make<int>(handle); }
cublasStatus_t lt_destroy(cublasLtHandle_t handle) { return unmake(handle); }
cublasStatus_t desc_create(cublasLtMatmulDesc_t* out, cublasComputeType_t, cudaDataType_t) {
  return make<Desc>(out);
}
cublasStatus_t desc_destroy(cublasLtMatmulDesc_t desc) { return unmake(desc); }
cublasStatus_t desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                        const void* value, std::size_t size) {
  Desc& d = *reinterpret_cast<Desc*>(desc);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) std::memcpy(&d.a, value, size);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) std::memcpy(&d.b, value, size);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) std::memcpy(&d.epilogue, value, size);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) std::memcpy(&d.bias, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t layout_create(cublasLtMatrixLayout_t* out, cudaDataType type, std::uint64_t rows,
                             std::uint64_t columns, std::int64_t leading) {
  if (type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return make<Layout>(out, rows, columns, leading);
}
cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout) { return unmake(layout); }
cublasStatus_t layout_set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                          const void* value, std::size_t size) {
  Layout& l = *reinterpret_cast<Layout*>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) std::memcpy(&l.batch, value, size);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    std::memcpy(&l.batch_stride, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t preference_create(cublasLtMatmulPreference_t* out) { return make<int>(out); }
cublasStatus_t preference_destroy(cublasLtMatmulPreference_t preference) {
  return unmake(preference);
}
cublasStatus_t preference_set(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                              const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
constexpr std::uint64_t kAlgorithm = 77;  // the only one
cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t, int asked,
                         cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = asked > 0 ? 1 : 0;
  if (asked > 0) {
    results[0] = {};
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    results[0].algo.data[0] = kAlgorithm;
    results[0].workspaceSize = fake->options.workspace;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t algorithm_check(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                               cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                               cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm,
                               cublasLtMatmulHeuristicResult_t* result) {
  if (algorithm->data[0] != kAlgorithm) return CUBLAS_STATUS_INVALID_VALUE;
  *result = {};
  result->workspaceSize = fake->options.workspace;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                      cublasLtMatrixLayout_t a_layout, const void* b,
                      cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                      cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t*, void* workspace, std::size_t,
                      cudaStream_t native) {
  const Desc how = *reinterpret_cast<Desc*>(desc);
  const Layout la = *reinterpret_cast<Layout*>(a_layout), lb = *reinterpret_cast<Layout*>(b_layout);
  const Layout lc = *reinterpret_cast<Layout*>(c_layout), ld = *reinterpret_cast<Layout*>(d_layout);
  const float x = *static_cast<const float*>(alpha), y = *static_cast<const float*>(beta);
  const std::uint64_t inner = how.a == CUBLAS_OP_N ? la.columns : la.rows;
  FakeState::Lock lock(fake->mutex);
  FakeStream& stream = *stream_of(reinterpret_cast<CUstream>(native));
  if (workspace && !stream.capture) {
    FakeStream*& user = fake->workspaces[workspace];
    if (user && user != &stream && !user->queue.empty())
      fake->complain("a product was given the workspace of another stream's");
    user = &stream;
  }
  fake->add(
      stream,
      {FakeEntry::work,
       [=] {
         for (int n = 0; n < ld.batch; ++n) {
           const float* pa = static_cast<const float*>(a) + n * la.batch_stride;
           const float* pb = static_cast<const float*>(b) + n * lb.batch_stride;
           const float* pc = static_cast<const float*>(c) + n * lc.batch_stride;
           float* pd = static_cast<float*>(d) + n * ld.batch_stride;
           for (std::uint64_t j = 0; j < ld.columns; ++j) {
             for (std::uint64_t i = 0; i < ld.rows; ++i) {
               float sum = 0;
               for (std::uint64_t k = 0; k < inner; ++k) {
                 sum += (how.a == CUBLAS_OP_N ? pa[k * la.leading + i] : pa[i * la.leading + k]) *
                        (how.b == CUBLAS_OP_N ? pb[j * lb.leading + k] : pb[k * lb.leading + j]);
               }
               pd[j * ld.leading + i] = x * sum + (y != 0 ? y * pc[j * lc.leading + i] : 0) +
                                        (how.epilogue == CUBLASLT_EPILOGUE_BIAS ? how.bias[i] : 0);
             }
           }
         }
       },
       nullptr});
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

void add_fake_library_calls(cu::Table& t) {
  if (fake->options.with_nvrtc) {
    t.nvrtcVersion = version;
    t.nvrtcGetErrorString = error_string;
    t.nvrtcCreateProgram = create;
    t.nvrtcDestroyProgram = destroy;
    t.nvrtcCompileProgram = compile;
    t.nvrtcGetProgramLogSize = log_size;
    t.nvrtcGetProgramLog = log_text;
    t.nvrtcGetCUBINSize = cubin_size;
    t.nvrtcGetCUBIN = cubin;
  }
  if (fake->options.with_cublaslt) {
    t.cublasLtGetVersion = lt_version;
    t.cublasLtGetStatusName = status_text;
    t.cublasLtGetStatusString = status_text;
    t.cublasLtCreate = lt_create;
    t.cublasLtDestroy = lt_destroy;
    t.cublasLtMatmulDescCreate = desc_create;
    t.cublasLtMatmulDescDestroy = desc_destroy;
    t.cublasLtMatmulDescSetAttribute = desc_set;
    t.cublasLtMatrixLayoutCreate = layout_create;
    t.cublasLtMatrixLayoutDestroy = layout_destroy;
    t.cublasLtMatrixLayoutSetAttribute = layout_set;
    t.cublasLtMatmulPreferenceCreate = preference_create;
    t.cublasLtMatmulPreferenceDestroy = preference_destroy;
    t.cublasLtMatmulPreferenceSetAttribute = preference_set;
    t.cublasLtMatmulAlgoGetHeuristic = heuristic;
    t.cublasLtMatmulAlgoCheck = algorithm_check;
    t.cublasLtMatmul = matmul;
  }
}

}  // namespace brrr::testing
