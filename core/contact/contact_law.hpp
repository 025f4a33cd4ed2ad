// The law of contact at one place: a compliant normal force with dissipation, and regularised Coulomb friction
// (docs/derivations/contact.md). With the depth x = -gap, u the velocity of the first body relative to the second
// there, u_n = n.u and u_t = u - u_n n,
//   f_n = k p(x) D(d u_n),   f = f_n (n - mu F(|u_t| / v_s) u_t / |u_t|).
#pragma once
#include "contact/law_functions.hpp"
#include "spatial/vector.hpp"

namespace torsor {

// Its numbers, in this order.
template <class T>
struct ContactNumbers {
  T stiffness, dissipation, friction, slip, onset;
};
template <class T>
ContactNumbers<T> read_law(const T* p) {
  return {p[0], p[1], p[2], p[3], p[4]};
}
template <class T, class S>
ContactNumbers<T> lift(const ContactNumbers<S>& law) {
  return {T(law.stiffness), T(law.dissipation), T(law.friction), T(law.slip), T(law.onset)};
}

// The force on the first body.
template <class T>
Vec3<T> contact_force(const ContactNumbers<T>& law, const T& gap, const Vec3<T>& n, const Vec3<T>& u) {
  const T u_n = dot(n, u);
  const Vec3<T> u_t = mul_add(-u_n, n, u);
  const T f_n = law.stiffness * Onset<T>(-gap, law.onset).p * Dissipation<T>(law.dissipation * u_n).D;
  const T s = speed_of(dot(u_t, u_t)) / law.slip;
  const T across = law.friction * SlipRatio<T>(s).F_over_s / law.slip;
  return f_n * mul_add(-across, u_t, n);
}
// The energy stored at rest.
template <class T>
T contact_energy(const ContactNumbers<T>& law, const T& gap) {
  return law.stiffness * Onset<T>(-gap, law.onset).P;
}

}  // namespace torsor
