// Instruction sets beyond the baseline of the architecture that a compiler may use in the core, as
//   X(name, macro, word, bit, state)
// `macro` is what compilers define when they use the set, `word` and `bit` are where the CPU says that it has it, and
// `state` has the bits of XCR0 by which the operating system says that it saves the registers.
#pragma once
#if defined(__x86_64__)
#define TORSOR_AVX 0x06
#define TORSOR_AVX512 0xe6
#define TORSOR_INSTRUCTION_SETS(X)                                              \
  X("sse3", __SSE3__, leaf_1_ecx, 0, 0)                                         \
  X("ssse3", __SSSE3__, leaf_1_ecx, 9, 0)                                       \
  X("sse4.1", __SSE4_1__, leaf_1_ecx, 19, 0)                                    \
  X("sse4.2", __SSE4_2__, leaf_1_ecx, 20, 0)                                    \
  X("sse4a", __SSE4A__, extended_ecx, 6, 0)                                     \
  X("popcnt", __POPCNT__, leaf_1_ecx, 23, 0)                                    \
  X("movbe", __MOVBE__, leaf_1_ecx, 22, 0)                                      \
  X("lzcnt", __LZCNT__, extended_ecx, 5, 0)                                     \
  X("bmi", __BMI__, leaf_7_ebx, 3, 0)                                           \
  X("bmi2", __BMI2__, leaf_7_ebx, 8, 0)                                         \
  X("adx", __ADX__, leaf_7_ebx, 19, 0)                                          \
  X("tbm", __TBM__, extended_ecx, 21, 0)                                        \
  X("avx", __AVX__, leaf_1_ecx, 28, TORSOR_AVX)                                 \
  X("f16c", __F16C__, leaf_1_ecx, 29, TORSOR_AVX)                               \
  X("fma4", __FMA4__, extended_ecx, 16, TORSOR_AVX)                             \
  X("xop", __XOP__, extended_ecx, 11, TORSOR_AVX)                               \
  X("fma", __FMA__, leaf_1_ecx, 12, TORSOR_AVX)                                 \
  X("avx2", __AVX2__, leaf_7_ebx, 5, TORSOR_AVX)                                \
  X("avxvnni", __AVXVNNI__, leaf_7_1_eax, 4, TORSOR_AVX)                        \
  X("avx512f", __AVX512F__, leaf_7_ebx, 16, TORSOR_AVX512)                      \
  X("avx512cd", __AVX512CD__, leaf_7_ebx, 28, TORSOR_AVX512)                    \
  X("avx512dq", __AVX512DQ__, leaf_7_ebx, 17, TORSOR_AVX512)                    \
  X("avx512bw", __AVX512BW__, leaf_7_ebx, 30, TORSOR_AVX512)                    \
  X("avx512vl", __AVX512VL__, leaf_7_ebx, 31, TORSOR_AVX512)                    \
  X("avx512ifma", __AVX512IFMA__, leaf_7_ebx, 21, TORSOR_AVX512)                \
  X("avx512vbmi", __AVX512VBMI__, leaf_7_ecx, 1, TORSOR_AVX512)                 \
  X("avx512vbmi2", __AVX512VBMI2__, leaf_7_ecx, 6, TORSOR_AVX512)               \
  X("avx512vnni", __AVX512VNNI__, leaf_7_ecx, 11, TORSOR_AVX512)                \
  X("avx512bitalg", __AVX512BITALG__, leaf_7_ecx, 12, TORSOR_AVX512)            \
  X("avx512vpopcntdq", __AVX512VPOPCNTDQ__, leaf_7_ecx, 14, TORSOR_AVX512)      \
  X("avx512vp2intersect", __AVX512VP2INTERSECT__, leaf_7_edx, 8, TORSOR_AVX512) \
  X("avx512fp16", __AVX512FP16__, leaf_7_edx, 23, TORSOR_AVX512)                \
  X("avx512bf16", __AVX512BF16__, leaf_7_1_eax, 5, TORSOR_AVX512)               \
  X("gfni", __GFNI__, leaf_7_ecx, 8, 0)
#elif defined(__aarch64__) && defined(__linux__)
#define TORSOR_INSTRUCTION_SETS(X)                              \
  X("lse", __ARM_FEATURE_ATOMICS, hwcap, 8, 0)                  \
  X("fp16", __ARM_FEATURE_FP16_VECTOR_ARITHMETIC, hwcap, 10, 0) \
  X("rdm", __ARM_FEATURE_QRDMX, hwcap, 12, 0)                   \
  X("fcma", __ARM_FEATURE_COMPLEX, hwcap, 14, 0)                \
  X("rcpc", __ARM_FEATURE_RCPC, hwcap, 15, 0)                   \
  X("dotprod", __ARM_FEATURE_DOTPROD, hwcap, 20, 0)             \
  X("sve", __ARM_FEATURE_SVE, hwcap, 22, 0)                     \
  X("sve2", __ARM_FEATURE_SVE2, hwcap2, 1, 0)                   \
  X("i8mm", __ARM_FEATURE_MATMUL_INT8, hwcap2, 13, 0)           \
  X("bf16", __ARM_FEATURE_BF16_VECTOR_ARITHMETIC, hwcap2, 14, 0)
#else  // built for the baseline, which every CPU has: all Macs with arm64, for one
#define TORSOR_INSTRUCTION_SETS(X)
#endif

struct InstructionSet {
  const char *name, *value;  // value of the macro, or its name, if the level is not compiled for the set
};
