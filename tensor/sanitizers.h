// BRRR_ASAN and BRRR_TSAN: whether these sanitizers are on. GCC and Clang define different macros.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define BRRR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BRRR_ASAN 1
#endif
#endif
#ifndef BRRR_ASAN
#define BRRR_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__)
#define BRRR_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BRRR_TSAN 1
#endif
#endif
#ifndef BRRR_TSAN
#define BRRR_TSAN 0
#endif
