// A tool as NVTX loads it (NVTX_INJECTION64_PATH): writes ranges to the file NVTX_LOG, indented.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

std::FILE* file = nullptr;
thread_local int depth = 0;

int push(const char* name) {
  std::fprintf(file, "%*s%s\n", 2 * depth, "", name);
  return depth++;
}
int pop() {
  if (depth == 0) std::fprintf(file, "a range ended that did not start\n");
  return --depth;
}

template <class Function>
NvtxFunctionPointer pointer_to(Function function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const char* name = std::getenv("NVTX_LOG");
  file = name ? std::fopen(name, "w") : nullptr;
  const auto* table = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (!file || !table || !table->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size))
    return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = pointer_to(push);
  *functions[NVTX_CBID_CORE_RangePop] = pointer_to(pop);
  return 1;
}
