# The library targets brrr, with its part brrr_cold, and brrr_measure: flags, the kernel loops for each instruction set,
# link libraries.
set(brrr_soversion 0)
set_target_properties(brrr brrr_measure PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${brrr_soversion})
target_include_directories(brrr INTERFACE $<INSTALL_INTERFACE:include>)
foreach(part brrr brrr_cold brrr_measure)
  # DEFINE_SYMBOL is empty, so that objects of static and shared libraries are equal.
  set_target_properties(${part} PROPERTIES POSITION_INDEPENDENT_CODE ON DEFINE_SYMBOL "")
  target_include_directories(${part} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_compile_features(${part} PUBLIC cxx_std_20)
  target_compile_definitions(${part} PRIVATE BRRR_HAS_CUDA=${BRRR_HAS_CUDA} BRRR_OPENBLAS=${BRRR_OPENBLAS})
  # fmt's library: its header-only form doubled the compile time of each file.
  target_link_libraries(${part} PRIVATE $<BUILD_INTERFACE:brrr_inside> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
    fmt::fmt ${BRRR_BLAS_LIBRARIES} Threads::Threads ${CMAKE_DL_LIBS})
  if(BRRR_HAS_CUDA)
    target_include_directories(${part} SYSTEM PRIVATE ${BRRR_CUDA_INCLUDE})
  endif()
  # Thread-locals cost one load (of a library that is opened later, there may be no room for them), and calls inside the
  # library go straight to their target.
  target_compile_options(${part} PRIVATE $<$<NOT:$<STREQUAL:${part},brrr_measure>>:-ftls-model=initial-exec>
    -fno-semantic-interposition)
endforeach()
target_link_options(brrr PRIVATE -Wl,-Bsymbolic-functions)
target_link_libraries(brrr_measure PUBLIC brrr PRIVATE $<BUILD_INTERFACE:CLI11::CLI11>)
get_target_property(brrr_kind brrr TYPE)
if(brrr_kind STREQUAL "SHARED_LIBRARY")
  set_property(SOURCE tensor/measure_library.cpp APPEND PROPERTY COMPILE_DEFINITIONS
    "BRRR_MEASURE_LIBRARY=\"libbrrr_measure.so.${brrr_soversion}\"")
endif()

# A step does not wait for what plans, renders, reads or measures: -O1 compiles it in half the time.
foreach(part brrr_cold brrr_measure)
  target_compile_options(${part} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
endforeach()
set_property(SOURCE measure/cpu_limits.cpp APPEND PROPERTY COMPILE_OPTIONS -O3)  # the loops that are limits
target_sources(brrr PRIVATE $<TARGET_OBJECTS:brrr_cold>)

# Kernels are compiled each alone (cmake/unity.cmake): what is inlined in one does not depend on the others.
file(GLOB brrr_kernels CONFIGURE_DEPENDS ops/cpu/*.cpp)
set_source_files_properties(${brrr_kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

# Copies, reductions and elementwise calls on short rows spend their time in loops of a few instructions. Unaligned,
# these took up to 60 % more time in some builds, by where the linker put them.
set(brrr_align_loops -falign-functions=64 -falign-loops=32)
set_property(SOURCE ops/cpu/copy.cpp ops/cpu/reduction.cpp ops/cpu/tiles.cpp APPEND PROPERTY COMPILE_OPTIONS
  ${brrr_align_loops})

# The elementwise loops, compiled for each level of the instruction set and chosen at run time.
set(brrr_isas baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND brrr_isas v3)
endif()
foreach(isa IN LISTS brrr_isas)
  add_library(brrr_loops_${isa} OBJECT ops/cpu/loops_stamped.cpp ops/cpu/vector_math.cpp)
  set_target_properties(brrr_loops_${isa} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(brrr_loops_${isa} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(brrr_loops_${isa} PRIVATE brrr_inside)
  target_compile_definitions(brrr_loops_${isa} PRIVATE BRRR_ISA=${isa})
  target_compile_options(brrr_loops_${isa} PRIVATE -O3 -fno-math-errno -fno-trapping-math -fwrapv -ftls-model=initial-exec
    ${brrr_align_loops} $<$<STREQUAL:${isa},v3>:-march=x86-64-v3>)
  target_sources(brrr PRIVATE $<TARGET_OBJECTS:brrr_loops_${isa}>)
  string(TOUPPER ${isa} ISA)
  foreach(part brrr brrr_cold)
    target_compile_definitions(${part} PRIVATE BRRR_HAS_ISA_${ISA}=1)
  endforeach()
endforeach()

set_property(SOURCE measure/machine.cpp APPEND PROPERTY COMPILE_DEFINITIONS
  "BRRR_VERSION=\"${PROJECT_VERSION}\"" "BRRR_BUILD_TYPE=\"$<CONFIG>\"" "BRRR_BLAS=\"${BRRR_BLAS}\"")
