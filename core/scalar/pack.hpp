// Pack<N>: N doubles computed in lock-step, one independent state per lane, in the compiler's vector types.
#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "scalar/scalar.hpp"

namespace torsor {

// Lanes of the machine. Wider packs than the registers spill and are several times slower.
#if defined(__AVX512F__)
constexpr int kLanes = 8;
#elif defined(__AVX__)
constexpr int kLanes = 4;
#else
constexpr int kLanes = 2;
#endif

// Spelled out by size: GCC drops a vector_size that depends on a template parameter in a constructor's signature.
template <int N>
struct Vectors;
template <>
struct Vectors<kLanes> {
  typedef double Native __attribute__((vector_size(kLanes * 8)));
  typedef int64_t Mask __attribute__((vector_size(kLanes * 8)));
  typedef uint64_t Bits __attribute__((vector_size(kLanes * 8)));
  typedef double Unaligned __attribute__((vector_size(kLanes * 8), aligned(8)));
};

namespace detail {
template <int N>
struct LaneOps {
  using Value = typename Vectors<N>::Native;
  using Bits = typename Vectors<N>::Bits;
  static TORSOR_INLINE Value fused(const Value& a, const Value& b, const Value& c) {
#if defined(__AVX512F__)
    return (Value)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
    return (Value)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif TORSOR_FMA
    Value r;
    for (int l = 0; l < N; ++l) r[l] = __builtin_fma(a[l], b[l], c[l]);
    return r;
#else
    return a * b + c;
#endif
  }
  static TORSOR_INLINE Bits to_bits(const Value& x) { return (Bits)x; }
  static TORSOR_INLINE Value from_bits(const Bits& x) { return (Value)x; }
};
}  // namespace detail

template <int N>
struct PackMask {
  typename Vectors<N>::Mask m;

  TORSOR_INLINE friend PackMask operator&(PackMask a, PackMask b) { return {a.m & b.m}; }
  TORSOR_INLINE friend PackMask operator|(PackMask a, PackMask b) { return {a.m | b.m}; }
  TORSOR_INLINE PackMask operator!() const { return {~m}; }
};

template <int N>
TORSOR_INLINE bool any(PackMask<N> mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi64_mask((__m512i)mask.m, (__m512i)mask.m) != 0;
#elif defined(__AVX__)
  return _mm256_movemask_pd((__m256d)mask.m) != 0;
#else
  int64_t bits = 0;
  for (int l = 0; l < N; ++l) bits |= mask.m[l];
  return bits != 0;
#endif
}
template <int N>
inline int first_lane(PackMask<N> mask) {
  int l = 0;
  while (l < N - 1 && mask.m[l] == 0) ++l;
  return l;
}

template <int N>
inline bool in_lane(PackMask<N> mask, int l) {
  return mask.m[l] != 0;
}
template <int N>
inline void set_lane(PackMask<N>& mask, int l, bool value) {
  mask.m[l] = value ? -1 : 0;
}
template <int N>
inline int lane_count(PackMask<N>) {
  return N;
}

template <int N>
struct Pack {
  using Native = typename Vectors<N>::Native;
  Native x;

  Pack() = default;
  // Written out, so that a struct of packs is copied register by register; a trivial copy becomes a call of memcpy.
  TORSOR_INLINE Pack(const Pack& o) : x(o.x) {}
  TORSOR_INLINE Pack& operator=(const Pack& o) {
    x = o.x;
    return *this;
  }
  TORSOR_INLINE Pack(double s) : x(s - Native{}) {}  // s - 0 is s; s + 0 is not, for s = -0, and would be computed
  template <class V, class = std::enable_if_t<std::is_same_v<V, Native>>>
  TORSOR_INLINE Pack(V n) : x(n) {}

  TORSOR_INLINE friend Pack operator+(Pack a, Pack b) { return a.x + b.x; }
  TORSOR_INLINE friend Pack operator-(Pack a, Pack b) { return a.x - b.x; }
  TORSOR_INLINE friend Pack operator*(Pack a, Pack b) { return a.x * b.x; }
  TORSOR_INLINE friend Pack operator/(Pack a, Pack b) { return a.x / b.x; }
  TORSOR_INLINE Pack operator-() const { return -x; }
  TORSOR_INLINE Pack& operator+=(Pack b) {
    x += b.x;
    return *this;
  }
  TORSOR_INLINE Pack& operator-=(Pack b) {
    x -= b.x;
    return *this;
  }
  TORSOR_INLINE Pack& operator*=(Pack b) {
    x *= b.x;
    return *this;
  }
  TORSOR_INLINE double& lane(int l) { return reinterpret_cast<double*>(&x)[l]; }
  TORSOR_INLINE double lane(int l) const { return reinterpret_cast<const double*>(&x)[l]; }

  TORSOR_INLINE friend Pack mul_add(Pack a, Pack b, Pack c) { return detail::LaneOps<N>::fused(a.x, b.x, c.x); }
  TORSOR_INLINE friend PackMask<N> less(Pack a, Pack b) { return {a.x < b.x}; }
  TORSOR_INLINE friend PackMask<N> less_equal(Pack a, Pack b) { return {a.x <= b.x}; }
  TORSOR_INLINE friend PackMask<N> equal(Pack a, Pack b) { return {a.x == b.x}; }
  TORSOR_INLINE friend PackMask<N> is_nan(Pack a) { return {a.x != a.x}; }
  TORSOR_INLINE friend Pack select(PackMask<N> mask, Pack a, Pack b) { return mask.m ? a.x : b.x; }
  TORSOR_INLINE friend Pack absolute(Pack a) {
    return detail::LaneOps<N>::from_bits(detail::LaneOps<N>::to_bits(a.x) & uint64_t(INT64_MAX));
  }
  TORSOR_INLINE friend Pack square_root(Pack a) {
    Pack r;
    for (int l = 0; l < N; ++l) r.lane(l) = std::sqrt(a.lane(l));
    return r;
  }
  TORSOR_INLINE friend Pack arc_tangent(Pack y, Pack x) {
    Pack r;
    for (int l = 0; l < N; ++l) r.lane(l) = std::atan2(y.lane(l), x.lane(l));
    return r;
  }
  TORSOR_INLINE friend void sincos(Pack a, Pack& s, Pack& c) {
    detail::sincos_reduced<detail::LaneOps<N>>(a.x, s.x, c.x);
    const Native magnitude = absolute(a).x;
    if (__builtin_expect(any(PackMask<N>{~(magnitude < detail::sincos_range)}), 0))
      for (int l = 0; l < N; ++l)
        if (!(magnitude[l] < detail::sincos_range)) {
          s.x[l] = std::sin(a.x[l]);
          c.x[l] = std::cos(a.x[l]);
        }
  }
};

template <int N>
TORSOR_INLINE void set_lane(Pack<N>& x, int l, double value) {
  x.lane(l) = value;
}

template <int N>
struct Lanes<Pack<N>> {
  static constexpr int value = N;
};

// A V from consecutive numbers, and back: lanes of one, or the number itself.
template <class V, class S>
TORSOR_INLINE V load(const S* x) {
  if constexpr (std::is_same_v<V, S>)
    return *x;
  else
    return V(typename V::Native(*reinterpret_cast<const typename Vectors<Lanes<V>::value>::Unaligned*>(x)));
}
template <class V, class S>
TORSOR_INLINE void store(const V& v, S* x) {
  if constexpr (std::is_same_v<V, S>)
    *x = v;
  else
    *reinterpret_cast<typename Vectors<Lanes<V>::value>::Unaligned*>(x) = v.x;
}

// The first `count` of consecutive numbers, and zeros: no others are read.
template <class V>
TORSOR_INLINE V load_part(const double* x, int count) {
#if defined(__AVX512F__)
  return V(typename V::Native(_mm512_maskz_loadu_pd(static_cast<__mmask8>((1 << count) - 1), x)));
#elif defined(__AVX__)
  const typename Vectors<kLanes>::Mask lane = {0, 1, 2, 3};
  return V(typename V::Native(_mm256_maskload_pd(x, (__m256i)(lane < int64_t(count)))));
#else
  typename V::Native r{};
  for (int l = 0; l < kLanes; ++l)
    if (l < count) r[l] = x[l];
  return V(r);
#endif
}
// The first `count` lanes to consecutive numbers: no others are written.
template <class V>
TORSOR_INLINE void store_part(const V& v, double* x, int count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_pd(x, static_cast<__mmask8>((1 << count) - 1), (__m512d)v.x);
#else
  for (int l = 0; l < kLanes; ++l)
    if (l < count) x[l] = v.x[l];
#endif
}

// Rows of a batch <-> lanes --------------------------------------------------------------------------------------

namespace detail {
// One stage of an in-register N x N transpose: exchange the off-diagonal blocks of size H.
template <int N, int H, class V, std::size_t... I>
TORSOR_INLINE void exchange(V& a, V& b, std::index_sequence<I...>) {
  const V lo = __builtin_shufflevector(a, b, ((I & H) ? int(N + (I ^ H)) : int(I))...);
  const V hi = __builtin_shufflevector(a, b, ((I & H) ? int(N + I) : int(I ^ H))...);
  a = lo;
  b = hi;
}
template <int N, int H, class V>
TORSOR_INLINE void transpose(V (&r)[N]) {
  if constexpr (H > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i)
      if (!(i & H)) exchange<N, H>(r[i], r[i + H], std::make_index_sequence<N>{});
    transpose<N, H / 2>(r);
  }
}
}  // namespace detail

// dst[j] lane l = rows[l][j], j < n
template <int N>
inline void load_rows(const double* const* rows, int n, Pack<N>* dst) {
  using V = typename Pack<N>::Native;
  using U = typename Vectors<N>::Unaligned;
  int j = 0;
  for (; j + N <= n; j += N) {
    V r[N];
    for (int l = 0; l < N; ++l) r[l] = *reinterpret_cast<const U*>(rows[l] + j);
    detail::transpose<N, N / 2>(r);
    for (int l = 0; l < N; ++l) dst[j + l].x = r[l];
  }
  for (; j < n; ++j)
    for (int l = 0; l < N; ++l) dst[j].lane(l) = rows[l][j];
}
template <class S>
inline void load_rows(const S* const* rows, int n, S* dst) {
  if (n > 0) std::memcpy(static_cast<void*>(dst), rows[0], n * sizeof(S));
}

// rows[l][j] = lane l of src[j], j < n, l < lanes
template <int N>
inline void store_rows(const Pack<N>* src, int n, double* const* rows, int lanes) {
  using V = typename Pack<N>::Native;
  using U = typename Vectors<N>::Unaligned;
  int j = 0;
  if (lanes == N)
    for (; j + N <= n; j += N) {
      V r[N];
      for (int l = 0; l < N; ++l) r[l] = src[j + l].x;
      detail::transpose<N, N / 2>(r);
      for (int l = 0; l < N; ++l) *reinterpret_cast<U*>(rows[l] + j) = r[l];
    }
  for (; j < n; ++j)
    for (int l = 0; l < lanes; ++l) rows[l][j] = src[j].lane(l);
}
template <class S>
inline void store_rows(const S* src, int n, S* const* rows, int) {
  if (n > 0) std::memcpy(static_cast<void*>(rows[0]), src, n * sizeof(S));
}

// The type in which several numbers of one state are computed: a pack for doubles, S itself for all other types.
template <class S>
using Wide = std::conditional_t<std::is_same_v<S, double>, Pack<kLanes>, S>;

}  // namespace torsor
