# Installing brrr, so that find_package(brrr) gives brrr::brrr. Headers go under include/brrr as they are in the tree.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS brrr EXPORT brrrTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(BRRR_BUILD_CLI)
  install(TARGETS brrr_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  set_target_properties(brrr_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()

install(FILES include/brrr/brrr.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/brrr)
foreach(room tensor dispatch ops autograd graph nn measure)
  install(DIRECTORY ${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/brrr
    FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "*.inl"
    PATTERN cpu EXCLUDE PATTERN cuda EXCLUDE)
endforeach()

set(brrr_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/brrr)
install(EXPORT brrrTargets NAMESPACE brrr:: DESTINATION ${brrr_package_dir})
configure_package_config_file(cmake/brrrConfig.cmake.in ${PROJECT_BINARY_DIR}/brrrConfig.cmake
  INSTALL_DESTINATION ${brrr_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/brrrConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/brrrConfig.cmake ${PROJECT_BINARY_DIR}/brrrConfigVersion.cmake
  DESTINATION ${brrr_package_dir})

# A project of its own uses brrr both ways: installed, and as a part of its tree.
if(BRRR_BUILD_TESTS)
  foreach(way installed subdirectory)
    add_test(NAME consumer_${way} COMMAND ${CMAKE_COMMAND} -DWAY=${way} -DSOURCE=${PROJECT_SOURCE_DIR}
      -DBUILD=${PROJECT_BINARY_DIR} -DWORK=${PROJECT_BINARY_DIR}/consumer/${way} -DGENERATOR=${CMAKE_GENERATOR}
      -DCONFIG=${CMAKE_BUILD_TYPE} -DCOMPILER=${CMAKE_CXX_COMPILER} -DLAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
      -DSANITIZE=${BRRR_SANITIZE} -DWERROR=${BRRR_WERROR} -DCUDA=${BRRR_CUDA}
      -P ${PROJECT_SOURCE_DIR}/tests/consumer/check.cmake)
    set_tests_properties(consumer_${way} PROPERTIES TIMEOUT 900 LABELS consumer)
  endforeach()
endif()
