# Checks brrr explain from outside: the text, dot, JSON, refusals.
include(${CMAKE_CURRENT_LIST_DIR}/calls.cmake)

set(mlp explain mlp --device cpu --batch 8 --width 16 --layers 3)

call(0 ${mlp})
foreach(word "step: 1 of at most" "memory: arena [0-9]+ bytes" "\nforward:" "\nbackward:" "\nupdate:" "= affine\\("
    "<- adam_step_\\(" "return %")
  if(NOT out MATCHES "${word}")
    message(FATAL_ERROR "expected '${word}' in\n${out}")
  endif()
endforeach()

call(0 ${mlp} --residual --activation relu)
foreach(word "= relu\\(" "= rsqrt\\(")
  if(NOT out MATCHES "${word}")
    message(FATAL_ERROR "expected '${word}' in\n${out}")
  endif()
endforeach()

call(0 ${mlp} --mode fused)
foreach(word "[0-9]+ generated kernels:\n    0 \\[sub, square, mean" "reads [0-9]+ bytes, writes [0-9]+ bytes, [0-9]+ flop, predicted [0-9.e-]+ us \\(at "
    "  predicted by (default ceilings \\(not calibrated\\)|calibrated ceilings): [0-9.e+]+ us: [0-9]+ % overhead, [0-9]+ % bandwidth, [0-9]+ % compute\n"
    "[0-9]+ values go from kernel to kernel:" "[0-9]+ opaque call \\(computed by a kernel of its own\\): ")
  if(NOT out MATCHES "${word}")
    message(FATAL_ERROR "expected '${word}' in\n${out}")
  endif()
endforeach()
if(out MATCHES "// kernel 0")
  message(FATAL_ERROR "expected no source of kernels, got\n${out}")
endif()
call(0 ${mlp} --mode fused --source)
if(NOT out MATCHES "\n// kernel 0 \\[sub, square, mean.*extern \"C\"")
  message(FATAL_ERROR "expected the source of kernels, got\n${out}")
endif()
refused(2 "--source: needs --mode fused" ${mlp} --source)
refused(2 "source|dot" ${mlp} --mode fused --source --dot)

call(0 ${mlp} --dot)
if(NOT out MATCHES "^digraph step {\n" OR NOT out MATCHES "n0 -> n1;")
  message(FATAL_ERROR "expected a graph for dot, got\n${out}")
endif()

json(unfused ${mlp} --mode fused)
expect(unfused 0 why "opaque call")
member(unfused 0 producer_line)
json(nodes ${mlp} --remat full)
string(JSON count LENGTH "${out}" unfused)
if(NOT count EQUAL 0)
  message(FATAL_ERROR "expected no edges of a step that is not fused, got\n${out}")
endif()
json(nodes explain transformer --device cpu --batch 2 --width 16 --layers 2 --heads 2 --seq 6)
expect(device cpu)
expect(nodes 0 role forward)

call(0 ${mlp} --remat full)
if(NOT out MATCHES "rematerialization, full: [0-9]+ calls run again" OR NOT out MATCHES "live bytes by call, now:")
  message(FATAL_ERROR "expected what is computed again, got\n${out}")
endif()
call(0 ${mlp} --remat full --svg)
if(NOT out MATCHES "^<svg " OR NOT out MATCHES ">every value kept: at most [0-9]" OR
    NOT out MATCHES ">full: at most [0-9]" OR NOT out MATCHES "<style>" OR NOT out MATCHES "</svg>\n$")
  message(FATAL_ERROR "expected a picture of the memory, got\n${out}")
endif()
refused(2 "svg|dot" ${mlp} --svg --dot)
refused(2 "--svg: needs --remat" ${mlp} --svg)

refused(2 "subcommand|mlp" explain)
refused(2 "heads.*width" explain transformer --width 16 --heads 3)
