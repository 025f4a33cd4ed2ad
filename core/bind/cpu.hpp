// Instruction sets beyond the baseline that the core may be compiled for, as X(name, macro): the name for
// __builtin_cpu_supports, and the macro that the compiler defines for it.
#pragma once
#if defined(__x86_64__)
#define TORSOR_INSTRUCTION_SETS(X)          \
  X("sse3", __SSE3__)                       \
  X("ssse3", __SSSE3__)                     \
  X("sse4.1", __SSE4_1__)                   \
  X("sse4.2", __SSE4_2__)                   \
  X("sse4a", __SSE4A__)                     \
  X("popcnt", __POPCNT__)                   \
  X("bmi", __BMI__)                         \
  X("bmi2", __BMI2__)                       \
  X("avx", __AVX__)                         \
  X("fma4", __FMA4__)                       \
  X("xop", __XOP__)                         \
  X("fma", __FMA__)                         \
  X("avx2", __AVX2__)                       \
  X("avx512f", __AVX512F__)                 \
  X("avx512cd", __AVX512CD__)               \
  X("avx512dq", __AVX512DQ__)               \
  X("avx512bw", __AVX512BW__)               \
  X("avx512vl", __AVX512VL__)               \
  X("avx512ifma", __AVX512IFMA__)           \
  X("avx512vbmi", __AVX512VBMI__)           \
  X("avx512vbmi2", __AVX512VBMI2__)         \
  X("avx512vnni", __AVX512VNNI__)           \
  X("avx512bitalg", __AVX512BITALG__)       \
  X("avx512vpopcntdq", __AVX512VPOPCNTDQ__) \
  X("gfni", __GFNI__)
#else
#define TORSOR_INSTRUCTION_SETS(X)
#endif

struct InstructionSet {
  const char *name, *value;  // value of the macro: "1" if the core is compiled for it
};
extern const InstructionSet torsor_target[];  // ends with a null name
