// A kinematic tree as flat arrays, ready for the recursions.
//
// Bodies here are those of the recursions, not the user's: a user's joint of several one-parameter factors is a chain of
// bodies (all but the last massless), bodies on fixed joints are merged into the body that carries them, and each frame
// is turned so that a revolute, prismatic or screw joint moves about or along its z axis. The user's bodies are `frames`
// on these. Bodies are numbered depth first, parents before children; q and v keep the user's order through iq and iv.
#pragma once
#include <memory>
#include <vector>

#include "spatial.hpp"

namespace torsor {

enum class Kind : int { revolute, prismatic, screw, spherical, free, exponential, spline_curve, spline_surface, custom };

// A joint written by the user: values of T, S, dS/dq and, at level 3, d2S/dq2 for `lanes` states at once.
// Row l of `out` holds T (4 x 4), S (6 x n), dS (6 x n x n), d2S (6 x n x n x n), row-major, column first, then derivatives.
struct CustomJoint {
  virtual ~CustomJoint() = default;
  virtual void evaluate(const double* q, int lanes, int level, double* out) const = 0;
  virtual void evaluate(const Complex* q, int lanes, int level, Complex* out) const = 0;
};

// Constants of a joint whose S depends on q in a way of its own.
struct GeneralJoint {
  Kind kind;
  int nv;
  int nu = 0, nw = 0;           // control values along each parameter of a spline
  std::vector<SE3<double>> frames;    // spline curve: control frames C_i
  std::vector<Motion<double>> steps;  // spline curve: log(C_{i-1}^-1 C_i)
  std::vector<double> values;   // spline surface: values[k][u][w], k = 0..5 (translations, then rotations)
  std::shared_ptr<CustomJoint> custom;
};

struct Model {
  struct Body {
    int parent;  // -1: the world
    Kind kind;
    int iq, iv, nv;
    bool massless;   // and nothing merged into it
    bool inner;      // not the last of its joint's chain: the next body is its only child
    bool offset;     // the joint's frame may stand away from the parent's origin
    bool leaf;       // no body hangs on it
    bool last_child; // no sibling comes after it
    int joint;       // index of the user's joint
    int general;     // index into `general`, or -1
    double pitch;
    SE3<double> M;   // from the parent's frame to the joint's, at q = 0 of a z joint
    RigidInertia<double> I;
    Sym3<double> Sigma;  // pseudo-inertia, integral of x x^T dm = tr(J)/2 1 - J
  };
  struct Frame {  // a body of the user's
    int body;         // that carries it, or -1
    int parent;       // the user's body that it hangs on, or -1
    SE3<double> C;    // its pose in the carrying body's frame (in the world's, if body is -1)
    bool same;        // C is the identity
    SE3<double> placement;  // of its joint's frame in the parent's
    RigidInertia<double> I;  // its own inertia, in its own frame
  };
  int nq = 0, nv = 0;
  Vec3<double> gravity{0, 0, 0};
  std::vector<Body> bodies;
  std::vector<Frame> frames;
  std::vector<GeneralJoint> general;
  std::vector<int> angles;  // which coordinates are angles

  int n() const { return static_cast<int>(bodies.size()); }
  int nframes() const { return static_cast<int>(frames.size()); }
};

}  // namespace torsor
