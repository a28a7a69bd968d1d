// Which sanitizers this is compiled under; GCC and Clang say it in different ways.
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
