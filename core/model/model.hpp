// A kinematic tree as flat arrays, ready for the recursions.
//
// Bodies here are those of the recursions, not the user's: a joint of several one-parameter factors is a chain of
// bodies (all but the last massless), bodies on fixed joints are merged into the body that carries them, and each frame
// is rotated so that a revolute, prismatic or screw joint moves about or along its z axis. The user's bodies are
// `frames` attached to these, and after them come frames that the user has named on bodies, which forces, constraints
// and points can refer to like bodies. Bodies are numbered depth first, parents before children; q and v keep the
// user's order through iq and iv.
#pragma once
#include <memory>
#include <vector>

#include "spatial/inertia.hpp"
#include "spatial/rotation.hpp"

namespace torsor {

enum class Kind : int {
  revolute,
  prismatic,
  screw,
  spherical,
  free,
  exponential,
  spline_curve,
  spline_surface,
  custom
};

// A user-defined joint: values of T, S, dS/dq and, at level 3, d2S/dq2 for `lanes` states at once. Row l of `out` holds
// T (4 x 4), S (6 x n), dS (6 x n x n), d2S (6 x n x n x n), row-major, column first, then derivatives.
struct CustomJoint {
  virtual ~CustomJoint() = default;
  virtual void evaluate(const double* q, int lanes, int level, double* out) const = 0;
  virtual void evaluate(const Complex* q, int lanes, int level, Complex* out) const = 0;
  virtual bool equals(const CustomJoint& other) const = 0;  // so that one of them may be called for both
};

// Constants of a joint with S(q).
template <class C>
struct GeneralJointT {
  Kind kind;
  int nv;
  int nu = 0, nw = 0;            // control values along each parameter of a spline
  std::vector<SE3<C>> frames;    // spline curve: control frames C_i
  std::vector<Motion<C>> steps;  // spline curve: log(C_{i-1}^-1 C_i)
  std::vector<C> values;         // spline surface: values[k][u][w], k = 0..5 (translations, then rotations)
  std::shared_ptr<CustomJoint> custom;
};

struct Coupling;

// C: the type of the constants, double or, for derivatives along a direction of the model, Dual<double>, or a pack, if
// lanes have models of their own (model/lane_models.hpp).
template <class C>
struct ModelT {
  struct Body {
    int parent;  // -1: the world
    Kind kind;
    int iq, iv, nv;
    bool massless;    // and nothing merged into it
    bool offset;      // the joint's frame may stand away from the parent's origin
    bool leaf;        // it has no children
    bool last_child;  // no sibling comes after it
    int joint;        // index of the user's joint
    int general;      // index into `general`, or -1
    C pitch;
    SE3<C> M;  // from the parent's frame to the joint's, at q = 0 of a z joint
    RigidInertia<C> I;
    C subtree_mass;  // of its subtree, its own included
    Sym3<C> Sigma;   // pseudo-inertia, integral of x x^T dm = tr(J)/2 1 - J
  };
  struct Frame {        // one of the user's bodies, or a frame on one
    int body;           // that carries it, or -1
    int parent;         // the user's body that is its parent, or that has the frame, or -1
    SE3<C> pose;        // its pose in the carrying body's frame (in the world's, if body is -1)
    bool same;          // that pose is the identity
    SE3<C> placement;   // of its joint's frame in the parent's
    RigidInertia<C> I;  // its own inertia, in its own frame
    bool massless;      // that is zero
  };
  struct Link {  // the data of a body for walks towards the root
    int parent, iv, nv;
    int above;  // velocities between the root and it, without its own
    int below;  // velocities of its subtree, its own included
  };
  struct Rotation {  // a quaternion among the coordinates
    int iq;
    int joint;  // the user's
  };
  int nq = 0, nv = 0;
  Vec3<C> gravity;
  std::vector<Body> bodies;
  std::vector<Link> links;
  std::vector<Frame> frames;
  std::vector<GeneralJointT<C>> general;
  std::vector<C> armature;  // by velocity: inertia of drives, the diagonal that is added to M; empty if there is none
  int depth = 0;            // velocities on the longest path from a root to a tip
  bool has_weak = false;    // whether the mass matrix may be singular: some body resists a motion little or not at all
  std::vector<int> order;   // the user's bodies, parents first, in an order that does not depend on the user's
  std::vector<int> angles;  // which coordinates are angles, in rising order
  std::vector<Rotation> quaternions;
  std::shared_ptr<const Coupling> coupling;  // of reduced coordinates (model/coupling.hpp), or null

  int n() const { return static_cast<int>(bodies.size()); }
  int nframes() const { return static_cast<int>(order.size()); }   // the user's bodies
  int nplaces() const { return static_cast<int>(frames.size()); }  // and the frames on them
};
using Model = ModelT<double>;

// Adds what acts on frames to what acts on their bodies. sums: of nplaces, about origins that a frame shares with its
// body.
template <class C, class Sum>
void add_frames_to_bodies(const ModelT<C>& m, Sum* sums) {
  for (int f = m.nframes(); f < m.nplaces(); ++f)
    if (m.frames[f].parent >= 0) sums[m.frames[f].parent] += sums[f];
}

}  // namespace torsor
