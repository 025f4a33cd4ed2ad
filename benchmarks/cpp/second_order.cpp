// Pinocchio's second derivatives of inverse dynamics, which it has in C++ alone, with a face that ctypes can call.
//
// Models come as numbers and not as files: the compiled part of the installed Pinocchio was not built for this
// machine's vectors, so its Eigen aligns otherwise and no object of it may be handed to what is compiled here.

// As Pinocchio's own build has them: more kinds of joints than Boost's lists hold otherwise.
#define BOOST_FUSION_INVOKE_MAX_ARITY 12
#define BOOST_MPL_CFG_NO_PREPROCESSED_HEADERS
#define BOOST_MPL_LIMIT_LIST_SIZE 30
#define BOOST_MPL_LIMIT_VECTOR_SIZE 30

#include <pinocchio/algorithm/rnea-second-order-derivatives.hpp>
#include <pinocchio/multibody.hpp>

#include <algorithm>
#include <string>

namespace {

using Vector = Eigen::Map<const Eigen::VectorXd>;
using RowMajor = Eigen::Map<const Eigen::Matrix<double, 3, 3, Eigen::RowMajor>>;

struct Peer {
  pinocchio::Model model;
  pinocchio::Data data;
};

pinocchio::JointModel joint(char kind) {
  switch (kind) {
    case 'x':
      return pinocchio::JointModelRX();
    case 'y':
      return pinocchio::JointModelRY();
    case 'z':
      return pinocchio::JointModelRZ();
    default:
      return pinocchio::JointModelFreeFlyer();
  }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// A model of n joints. A kind is x, y or z, the axis of a revolute, or f for a free joint. Of each joint come 25
// numbers: its placement's rotation (by rows) and translation; mass, centre of mass and inertia there (by rows).
EXPORT Peer* peer_new(int n, const char* kinds, const int* parents, const double* numbers, const double* gravity) {
  pinocchio::Model model;
  model.gravity.linear() = Eigen::Vector3d(gravity);
  for (int i = 0; i < n; ++i) {
    const double* x = numbers + 25 * i;
    const pinocchio::SE3 placement(RowMajor(x).eval(), Eigen::Vector3d(x + 9));
    const pinocchio::Inertia inertia(x[12], Eigen::Vector3d(x + 13), RowMajor(x + 16).eval());
    const auto id = model.addJoint(parents[i], joint(kinds[i]), placement, "joint" + std::to_string(i));
    model.appendBodyToJoint(id, inertia, pinocchio::SE3::Identity());
  }
  return new Peer{model, pinocchio::Data(model)};
}

EXPORT void peer_delete(Peer* peer) { delete peer; }

// Compute at each of `states` states, one after the other, and all of it `repeats` times. This is the overload that
// writes the zeros too, as ours do: without them, Talos takes a tenth less and UR5 the same.
EXPORT void peer_run(Peer* peer, int states, int repeats, const double* q, const double* v, const double* a) {
  const int nq = peer->model.nq, nv = peer->model.nv;
  for (int r = 0; r < repeats; ++r)
    for (int s = 0; s < states; ++s)
      pinocchio::ComputeRNEASecondOrderDerivatives(peer->model, peer->data, Vector(q + s * nq, nq),
                                                   Vector(v + s * nv, nv), Vector(a + s * nv, nv));
}

// The tensors of the last state: dqdq, dqdv, dvdv, dadq, each nv^3 numbers with the first index running fastest.
EXPORT void peer_tensors(const Peer* peer, double* out) {
  const auto& d = peer->data;
  for (const auto* tensor : {&d.d2tau_dqdq, &d.d2tau_dqdv, &d.d2tau_dvdv, &d.d2tau_dadq})
    out = std::copy_n(tensor->data(), tensor->size(), out);
}
