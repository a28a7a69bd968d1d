# Turns sources of kernels into constants of the library: ops/jit/prelude.inl becomes
# brrr::sources::prelude_inl, ops/cuda/attention.cu becomes brrr::sources::attention_cu.
#
# Included by CMakeLists.txt it adds the generated file to brrr_sources; run as a script it writes that file.
if(CMAKE_SCRIPT_MODE_FILE)
  set(code "// Written by cmake/embed.cmake.\nnamespace brrr::sources {\n")
  string(REPLACE "|" ";" files "${BRRR_EMBED}")
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    string(MAKE_C_IDENTIFIER ${name} name)
    # As numbers: any text, of any length, means the same to every compiler.
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND code "extern const char ${name}[];\nconst char ${name}[] = {${bytes}0};\n")
  endforeach()
  string(APPEND code "}  // namespace brrr::sources\n")
  file(WRITE ${BRRR_EMBED_OUTPUT} "${code}")
  return()
endif()

file(GLOB brrr_embedded_files CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/ops/jit/*.inl ${PROJECT_SOURCE_DIR}/ops/cuda/*.inl ${PROJECT_SOURCE_DIR}/ops/cuda/*.cu
  ${PROJECT_SOURCE_DIR}/graph/*.cu ${PROJECT_SOURCE_DIR}/measure/*.cu)
foreach(source convert.inl draw_batches.inl lanes.inl scalar_math.inl vector_exp.inl)
  list(APPEND brrr_embedded_files ${PROJECT_SOURCE_DIR}/ops/cpu/${source})
endforeach()
list(APPEND brrr_embedded_files ${PROJECT_SOURCE_DIR}/dispatch/functions.def ${PROJECT_SOURCE_DIR}/tensor/half.inl
  ${PROJECT_SOURCE_DIR}/tensor/strided_space.inl)
set(brrr_embedded ${PROJECT_BINARY_DIR}/embedded_sources.cpp)
list(JOIN brrr_embedded_files "|" brrr_embedded_argument)
add_custom_command(OUTPUT ${brrr_embedded}
  COMMAND ${CMAKE_COMMAND} "-DBRRR_EMBED=${brrr_embedded_argument}" -DBRRR_EMBED_OUTPUT=${brrr_embedded}
    -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${brrr_embedded_files} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  COMMENT "Embedding kernel sources" VERBATIM)
list(APPEND brrr_sources ${brrr_embedded})
