// BRRR_EACH(f, (x, y, z)) is f(x) f(y) f(z): what rows of ops.def that have lists are stamped with.
// Lists have up to 27 elements.
#pragma once

#define BRRR_EACH(f, list) BRRR_EACH_OF(f, BRRR_ELEMENTS list)
#define BRRR_ELEMENTS(...) __VA_ARGS__
#define BRRR_EACH_OF(f, ...) __VA_OPT__(BRRR_RESCAN(BRRR_EACH_STEP(f, __VA_ARGS__)))
#define BRRR_EACH_STEP(f, x, ...) f(x) __VA_OPT__(BRRR_EACH_REST BRRR_NOTHING(f, __VA_ARGS__))
#define BRRR_EACH_REST() BRRR_EACH_STEP
#define BRRR_NOTHING ()
// A macro does not expand within itself, so each element of a list needs a scan of its own.
#define BRRR_RESCAN(...) BRRR_RESCAN_9(BRRR_RESCAN_9(BRRR_RESCAN_9(__VA_ARGS__)))
#define BRRR_RESCAN_9(...) BRRR_RESCAN_3(BRRR_RESCAN_3(BRRR_RESCAN_3(__VA_ARGS__)))
#define BRRR_RESCAN_3(...) BRRR_RESCAN_1(BRRR_RESCAN_1(BRRR_RESCAN_1(__VA_ARGS__)))
#define BRRR_RESCAN_1(...) __VA_ARGS__
