// Undefined tensors: a handle without a tensor answers no question, and says which one was asked.

#include "brrr/tensor/error.h"
#include "brrr/tensor/tensor.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;

TEST_CASE("every accessor of an undefined tensor names itself", "[bad-input]") {
  const Tensor undefined, defined = make_tensor(f32, Dims{2}, cpu);
#define REFUSES(name, call)                             \
  CHECK(test::error_of([&] { (void)call; }) == "[" name \
                                               "] expected a tensor, got an undefined one");
  REFUSES("dtype", undefined.dtype())
  REFUSES("device", undefined.device())
  REFUSES("rank", undefined.rank())
  REFUSES("numel", undefined.numel())
  REFUSES("shape", undefined.shape())
  REFUSES("strides", undefined.strides())
  REFUSES("size", undefined.size(0))
  REFUSES("stride", undefined.stride(0))
  REFUSES("is_contiguous", undefined.is_contiguous())
  REFUSES("is_meta", undefined.is_meta())
  REFUSES("bytes", undefined.bytes())
  REFUSES("storage_offset", undefined.storage_offset())
  REFUSES("version", undefined.version())
  REFUSES("shares_storage_with", undefined.shares_storage_with(defined))
  REFUSES("shares_storage_with", defined.shares_storage_with(undefined))
  REFUSES("same_view_as", undefined.same_view_as(defined))
  REFUSES("same_view_as", defined.same_view_as(undefined))
  REFUSES("data", undefined.data())
  REFUSES("data", undefined.data<float>())
#undef REFUSES
  CHECK_FALSE(undefined.defined());
  CHECK(TensorImpl::of(undefined) == nullptr);
  CHECK(undefined.describe() == "an undefined tensor");
  CHECK_FALSE(defined.shares_storage_with(make_meta_tensor(f32, Dims{2}, cpu)));
}
