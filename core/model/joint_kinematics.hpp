// T, S, dS/dq and d2S/dq2 of one joint, from the chain of factors that the recursions see.
// docs/derivations/joints_with_S_of_q.md.
#pragma once
#include "model/joints.hpp"

namespace torsor {

// `m` is a chain. T: 4 x 4; S: 6 x n; dS: 6 x n x n; d2S: 6 x n x n x n, row-major; S, dS and d2S may be null together.
// When a factor with columns s_k follows, columns x of the factors before it change by A = Ad of its inverse, and
//   d_k (A x) = (A x) x s_k   for k in the new factor.
template <class S>
void joint_terms(const Model& m, Arena& arena, const S* q, S* T, S* Sm, S* dS, S* d2S) {
  const int n = m.nv;
  auto* s = arena.get<Motion<S>>(n);
  auto* ds = arena.get<Motion<S>>(n * n);
  auto* d2s = arena.get<Motion<S>>(n * n * n);
  for (int k = 0; k < n * n; ++k) ds[k] = zero_motion<S>();
  for (int k = 0; k < n * n * n; ++k) d2s[k] = zero_motion<S>();
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto ds_at = [&](int j, int k) -> Motion<S>& { return ds[n * j + k]; };
  const auto d2s_at = [&](int j, int k, int l) -> Motion<S>& { return d2s[n * (n * j + k) + l]; };
  const auto x = coordinates(m, arena, q);
  const int levels = Sm == nullptr ? 1 : 3;
  SE3<S> X{identity3<S>(), zero3<S>()};
  Motion<S> own_s[6], own_ds[36], own_d2s[216];
  for (const Model::Body& body : m.bodies) {
    const int old = body.iv, end = body.iv + body.nv;
    SE3<S> step{};
    visit<S>(m, body, general, [&](auto joint) {
      if constexpr (decltype(joint)::constant) {
        step = joint.transform(body.M, x + body.iq);
        const Mat3<S> unit = identity3<S>();
        for (int k = 0; k < joint.nv; ++k) own_s[k] = joint.column(unit, k);
        for (int k = 0; k < joint.nv * joint.nv; ++k) own_ds[k] = zero_motion<S>();
        for (int k = 0; k < joint.nv * joint.nv * joint.nv; ++k) own_d2s[k] = zero_motion<S>();
      } else {
        evaluate(joint.joint, q + body.iq, levels, GeneralTerms<S>{step, own_s, own_ds, own_d2s});
        step = body.M * step;
      }
    });
    X = X * step;
    if (levels == 1) continue;
    for (int j = 0; j < old; ++j) s[j] = step.act_inverse(s[j]);
    for (int j = 0; j < old; ++j)
      for (int k = 0; k < old; ++k) ds_at(j, k) = step.act_inverse(ds_at(j, k));
    for (int j = 0; j < old; ++j)
      for (int k = 0; k < old; ++k)
        for (int l = 0; l < old; ++l) d2s_at(j, k, l) = step.act_inverse(d2s_at(j, k, l));
    for (int k = old; k < end; ++k) {
      const Motion<S>& sk = own_s[k - old];
      for (int j = 0; j < old; ++j) {
        ds_at(j, k) = cross(s[j], sk);
        for (int l = 0; l < old; ++l) d2s_at(j, l, k) = d2s_at(j, k, l) = cross(ds_at(j, l), sk);
        for (int l = old; l < end; ++l)
          d2s_at(j, k, l) = cross(cross(s[j], own_s[l - old]), sk) + cross(s[j], own_ds[body.nv * (k - old) + l - old]);
      }
    }
    for (int j = 0; j < body.nv; ++j) {
      s[old + j] = own_s[j];
      for (int k = 0; k < body.nv; ++k) {
        ds_at(old + j, old + k) = own_ds[body.nv * j + k];
        for (int l = 0; l < body.nv; ++l) d2s_at(old + j, old + k, old + l) = own_d2s[body.nv * (body.nv * j + k) + l];
      }
    }
  }
  const SE3<S> C = lift<S>(m.frames[0].pose);
  X = X * C;
  if (T != nullptr) write_pose(X, T);
  if (levels == 1) return;
  const auto put = [&](const Motion<S>* from, int count, S* to) {
    for (int k = 0; k < count; ++k) {
      S column[6];
      write(C.act_inverse(from[k]), column);
      for (int r = 0; r < 6; ++r) to[r * count + k] = column[r];
    }
  };
  put(s, n, Sm);
  put(ds, n * n, dS);
  put(d2s, n * n * n, d2S);
}

}  // namespace torsor
