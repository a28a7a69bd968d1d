# Clang's build of the CPU loops calls libmvec's vector functions, as g++'s does, and no scalar ones: tanh took 30 times as
# long there once. `./dev check clang` builds and tests everything; this looks at the one object, and takes seconds.
# In: SOURCE, WORK.
find_program(CLANG clang++)
find_program(NM nm)
cmake_host_system_information(RESULT platform QUERY OS_PLATFORM)
if(NOT CLANG OR NOT NM OR NOT platform STREQUAL "x86_64")
  message(STATUS "SKIPPED: clang_vectors: needs clang++ and nm on x86-64")
  return()
endif()
file(MAKE_DIRECTORY ${WORK})
execute_process(COMMAND ${CLANG} -std=c++20 -O0 -march=x86-64-v3 -ffp-contract=off -Wall -Wextra -Werror -DBRRR_ISA=v3
  -I ${SOURCE}/include -include ${SOURCE}/tensor/core_names.h -c ${SOURCE}/ops/cpu/loops_stamped.cpp -o ${WORK}/loops.o COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NM} --undefined-only ${WORK}/loops.o OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
foreach(name exp expm1 log log1p sin cos tan tanh erf pow)
  if(NOT symbols MATCHES " _ZGVdN8vv?_[a-z_]*${name}f\n" OR NOT symbols MATCHES " _ZGVdN4vv?_[a-z_]*${name}\n")
    message(FATAL_ERROR "expected calls of vector functions for ${name} among\n${symbols}")
  endif()
  if(symbols MATCHES " ${name}f?\n")
    message(FATAL_ERROR "expected no calls of scalar functions for ${name}, got\n${symbols}")
  endif()
endforeach()
