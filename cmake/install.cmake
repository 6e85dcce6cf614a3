# The installed tree: headers, libraries, .pc files and the CMake package. Nothing in it names the directory it was installed to, unless one of
# the CMAKE_INSTALL_*DIR was given as an absolute path.
set(ffn_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ffn)

install(FILES include/ffn/ffn.h include/ffn/ffn.hpp include/ffn/ffn_base.hpp include/ffn/ffn_conv.hpp include/ffn/ffn_health.hpp include/ffn/ffn_moe.hpp
  include/ffn/ffn_moe_training.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ffn)
# Two export sets: a program that links libffn.so needs neither OpenBLAS's development files nor a threads library.
install(TARGETS ffn_shared EXPORT ffn-shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ffn_static EXPORT ffn-static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT ffn-shared NAMESPACE ffn:: DESTINATION ${ffn_package_dir})
install(EXPORT ffn-static NAMESPACE ffn:: DESTINATION ${ffn_package_dir})
if(FFN_BUILD_IO)
  install(FILES include/ffn/ffn_io.h include/ffn/ffn_io.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ffn)
  install(TARGETS ffn_io_shared EXPORT ffn-io-shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS ffn_io_static EXPORT ffn-io-static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ffn-io-shared NAMESPACE ffn:: DESTINATION ${ffn_package_dir})
  install(EXPORT ffn-io-static NAMESPACE ffn:: DESTINATION ${ffn_package_dir})
endif()

configure_package_config_file(cmake/ffn-config.cmake.in ${PROJECT_BINARY_DIR}/ffn-config.cmake INSTALL_DESTINATION ${ffn_package_dir}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# As the SONAME has it: a program runs with every later library of the same major number.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ffn-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ffn-config.cmake ${PROJECT_BINARY_DIR}/ffn-config-version.cmake DESTINATION ${ffn_package_dir})

# The .pc files: paths below the prefix are written relative to it, and the prefix relative to the file.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(ffn_pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(ffn_pc_libdir "${CMAKE_INSTALL_LIBDIR}")
else()
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(ffn_pc_prefix "\${pcfiledir}/${up}")
  set(ffn_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(ffn_pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(ffn_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
list(JOIN OPENBLAS_LDFLAGS " " ffn_pc_openblas)
set(ffn_pc_files ffn)
if(FFN_BUILD_IO)
  list(JOIN JANSSON_LDFLAGS " " ffn_pc_jansson)
  list(APPEND ffn_pc_files ffn-io)
endif()
foreach(name ${ffn_pc_files})
  configure_file(${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# Of two files pkg-config takes NAME-uninstalled.pc: with the build directory in PKG_CONFIG_PATH programs are built on what was built there.
set(ffn_pc_prefix "\${pcfiledir}")
set(ffn_pc_libdir "\${prefix}")
set(ffn_pc_includedir "${PROJECT_SOURCE_DIR}/include")
foreach(name ${ffn_pc_files})
  configure_file(${name}.pc.in ${name}-uninstalled.pc @ONLY)
endforeach()
