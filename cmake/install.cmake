# Installs brrr for find_package(brrr), pkg-config and plain -I and -l flags. Headers are installed under include/brrr
# with the paths of the tree.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS brrr brrr_measure EXPORT brrrTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set_target_properties(brrr_measure PROPERTIES EXPORT_NAME measure INSTALL_RPATH "$ORIGIN")
if(BRRR_BUILD_CLI)
  install(TARGETS brrr_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  set_target_properties(brrr_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()

# The public headers are brrr.h, those of measure/, and what they include, as it is when the install runs.
install(CODE "set(BRRR_HEADERS ${PROJECT_SOURCE_DIR}/include)\nset(BRRR_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})")
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/brrr)

set(brrr_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/brrr)
install(EXPORT brrrTargets NAMESPACE brrr:: DESTINATION ${brrr_package_dir})
configure_package_config_file(cmake/brrrConfig.cmake.in ${PROJECT_BINARY_DIR}/brrrConfig.cmake
  INSTALL_DESTINATION ${brrr_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/brrrConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/brrrConfig.cmake ${PROJECT_BINARY_DIR}/brrrConfigVersion.cmake
  DESTINATION ${brrr_package_dir})

# brrr.pc has a relative prefix, since `cmake --install --prefix` may change it.
file(RELATIVE_PATH brrr_pc_up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(brrr_pc_libdir "\${prefix}")
cmake_path(APPEND brrr_pc_libdir ${CMAKE_INSTALL_LIBDIR})
set(brrr_pc_includedir "\${prefix}")
cmake_path(APPEND brrr_pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
# Programs that link the static library must link its dependencies.
if(brrr_kind STREQUAL "STATIC_LIBRARY")
  set(brrr_pc_requires fmt)
  list(JOIN BRRR_BLAS_LIBRARIES " " brrr_pc_libs)
  string(APPEND brrr_pc_libs " ${CMAKE_THREAD_LIBS_INIT}")
  foreach(library IN LISTS CMAKE_DL_LIBS)
    string(APPEND brrr_pc_libs " -l${library}")
  endforeach()
  string(APPEND brrr_pc_libs " -lstdc++ -lm")
endif()
foreach(package brrr brrr-measure)
  configure_file(cmake/${package}.pc.in ${PROJECT_BINARY_DIR}/${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# Tests: another project uses brrr, installed and as a subdirectory.
if(BRRR_BUILD_TESTS)
  foreach(way installed subdirectory)
    add_test(NAME consumer_${way} COMMAND ${CMAKE_COMMAND} -DWAY=${way} -DSOURCE=${PROJECT_SOURCE_DIR}
      -DBUILD=${PROJECT_BINARY_DIR} -DWORK=${PROJECT_BINARY_DIR}/consumer/${way} -DGENERATOR=${CMAKE_GENERATOR}
      -DCONFIG=${CMAKE_BUILD_TYPE} -DCOMPILER=${CMAKE_CXX_COMPILER} -DLAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
      -DSANITIZE=${BRRR_SANITIZE} -DWERROR=${BRRR_WERROR} -DCUDA=${BRRR_CUDA} -DLIBDIR=${CMAKE_INSTALL_LIBDIR}
      -DSHARED=${BUILD_SHARED_LIBS} -P ${PROJECT_SOURCE_DIR}/tests/consumer/check.cmake)
    set_tests_properties(consumer_${way} PROPERTIES TIMEOUT 900 LABELS consumer)
  endforeach()
endif()
