#include <nanobind/stl/complex.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bind/user_code.hpp"
#include "dynamics/inverse_dynamics.hpp"
#include "model/lane_models.hpp"

namespace torsor {

namespace {

// Reads numbers of a model: real ones, or value and tangent as a complex number whose imaginary part is `step` times
// the tangent.
template <class C>
struct NumberReader {
  double step;
  C one(nb::handle value) const {
    if constexpr (std::is_same_v<C, double>) {
      return nb::cast<double>(value);
    } else {
      const auto z = nb::cast<std::complex<double>>(value);
      return {z.real(), z.imag() / step};
    }
  }
  std::vector<C> list(nb::handle values, std::size_t size = 0) const {
    std::vector<C> out;
    for (nb::handle value : values) out.push_back(one(value));
    if (size != 0 && out.size() != size)
      throw std::invalid_argument("torsor: a list of a model's numbers has the wrong length");
    return out;
  }
};
template <class C>
SE3<C> read_pose(const C* x) {  // rotation by rows, then translation
  return {{{x[0], x[3], x[6]}, {x[1], x[4], x[7]}, {x[2], x[5], x[8]}}, {x[9], x[10], x[11]}};
}
template <class C>
RigidInertia<C> read_inertia(const C* x) {  // m, h, Jxx, Jxy, Jyy, Jxz, Jyz, Jzz
  return {x[0], {x[1], x[2], x[3]}, {x[4], x[6], x[9], x[5], x[7], x[8]}};
}
bool equals(double x, double value) { return x == value; }
bool equals(const Dual<double>& x, double value) { return x.v == value && x.d == 0; }
template <class C>
bool is_zero(const Vec3<C>& v) {
  return equals(v.x, 0) && equals(v.y, 0) && equals(v.z, 0);
}
// A lower bound of the least principal moment about the centre of mass, and at least a third of it.
template <class C>
double least_moment(const RigidInertia<C>& I) {
  const double m = value_of(I.m);
  if (!(m > 0.0)) return 0.0;
  const double x = value_of(I.h.x) / m, y = value_of(I.h.y) / m, z = value_of(I.h.z) / m;
  const double a = value_of(I.J.xx) - m * (y * y + z * z), b = value_of(I.J.yy) - m * (x * x + z * z),
               c = value_of(I.J.zz) - m * (x * x + y * y), d = value_of(I.J.xy) + m * x * y,
               e = value_of(I.J.xz) + m * x * z, f = value_of(I.J.yz) + m * y * z;
  const double minors = a * b - d * d + a * c - e * e + b * c - f * f;
  return (a * (b * c - f * f) - d * (d * c - e * f) + e * (d * f - b * e)) / minors;
}
template <class C>
bool is_zero(const RigidInertia<C>& I) {
  const Sym3<C>& J = I.J;
  return equals(I.m, 0) && is_zero(I.h) && is_zero(Vec3<C>{J.xx, J.yy, J.zz}) && is_zero(Vec3<C>{J.xy, J.xz, J.yz});
}
template <class C>
bool is_identity(const SE3<C>& T) {
  const Mat3<C>& R = T.R;
  return is_zero(T.p) && equals(R.x.x, 1) && equals(R.y.y, 1) && equals(R.z.z, 1) && equals(R.y.x, 0) &&
         equals(R.z.x, 0) && equals(R.x.y, 0) && equals(R.z.y, 0) && equals(R.x.z, 0) && equals(R.y.z, 0);
}
bool translates(Kind kind) { return kind != Kind::revolute && kind != Kind::spherical && kind != Kind::exponential; }

// A joint whose T, S, dS and d2S are computed by the method _evaluate(q, level) of a Python object.
class PythonJoint final : public CustomJoint {
 public:
  PythonJoint(nb::object joint, int n) : joint_(std::move(joint)), n_(n) {}
  void evaluate(const double* q, int lanes, int level, double* out) const override {
    call(q, lanes, level, out, NPY_DOUBLE);
  }
  void evaluate(const Complex* q, int lanes, int level, Complex* out) const override {
    call(q, lanes, level, out, NPY_CDOUBLE);
  }
  bool equals(const CustomJoint& other) const override {
    nb::gil_scoped_acquire acquire;
    const int same = PyObject_RichCompareBool(joint_.ptr(), static_cast<const PythonJoint&>(other).joint_.ptr(), Py_EQ);
    if (same < 0) PyErr_Clear();  // joints that cannot be compared are different
    return same == 1;
  }

 private:
  template <class T>
  void call(const T* q, int lanes, int level, T* out, int type) const {
    nb::gil_scoped_acquire acquire;
    npy_intp dims[2] = {lanes, n_};
    nb::object rows = nb::steal(PyArray_SimpleNew(2, dims, type));
    if (!rows.is_valid()) throw nb::python_error();
    std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(rows.ptr())), q, sizeof(T) * lanes * n_);
    nb::object result = joint_.attr("_evaluate")(rows, level);
    auto* array = reinterpret_cast<PyArrayObject*>(result.ptr());
    const npy_intp size = lanes * (16 + 6 * n_ * (1 + n_ * (1 + n_)));
    if (!PyArray_Check(result.ptr()) || PyArray_TYPE(array) != type || !PyArray_ISCARRAY_RO(array) ||
        PyArray_SIZE(array) != size)
      throw std::logic_error("torsor: a custom joint's _evaluate must return one array");
    std::memcpy(static_cast<void*>(out), PyArray_DATA(array), sizeof(T) * size);
  }
  nb::object joint_;
  int n_;
  friend int traverse(PyObject*, visitproc, void*);
  friend int clear(PyObject*);
};

template <class C>
GeneralJointT<C> read_general(const NumberReader<C>& read, nb::tuple spec) {  // (kind, nv, data)
  GeneralJointT<C> joint;
  joint.kind = static_cast<Kind>(nb::cast<int>(spec[0]));
  joint.nv = nb::cast<int>(spec[1]);
  switch (joint.kind) {
    case Kind::spline_curve: {  // (poses, steps), flat
      nb::tuple data = nb::cast<nb::tuple>(spec[2]);
      const auto poses = read.list(data[0]), steps = read.list(data[1]);
      for (std::size_t i = 0; i + 12 <= poses.size(); i += 12) joint.frames.push_back(read_pose(&poses[i]));
      for (std::size_t i = 0; i + 6 <= steps.size(); i += 6) joint.steps.push_back(read_motion(&steps[i]));
      break;
    }
    case Kind::spline_surface: {  // (nu, nw, values), flat
      nb::tuple data = nb::cast<nb::tuple>(spec[2]);
      joint.nu = nb::cast<int>(data[0]);
      joint.nw = nb::cast<int>(data[1]);
      joint.values = read.list(data[2]);
      break;
    }
    case Kind::custom:
      joint.custom = std::make_shared<PythonJoint>(nb::object(spec[2]), joint.nv);
      break;
    default:
      break;
  }
  return joint;
}

// bodies: (parent, kind, iq, iv, nv, joint, general, pitch, pose, inertia); frames: (body, parent, pose, inertia,
// placement); armature: by velocity.
template <class C>
void build(const NumberReader<C>& read, ModelT<C>* m, int nq, int nv, nb::list gravity, nb::list bodies,
           nb::list frames, const std::vector<int>& order, nb::list general, nb::list armature) {
  new (m) ModelT<C>();
  m->nq = nq;
  m->nv = nv;
  m->order = order;
  m->gravity = read3(read.list(gravity, 3).data());
  m->armature = read.list(armature, nv);
  if (std::all_of(m->armature.begin(), m->armature.end(), [](const C& x) { return equals(x, 0); })) m->armature.clear();
  for (nb::handle g : general) m->general.push_back(read_general(read, nb::cast<nb::tuple>(g)));
  for (nb::handle item : bodies) {
    nb::tuple t = nb::cast<nb::tuple>(item);
    typename ModelT<C>::Body b{};
    b.parent = nb::cast<int>(t[0]);
    b.kind = static_cast<Kind>(nb::cast<int>(t[1]));
    b.iq = nb::cast<int>(t[2]);
    b.iv = nb::cast<int>(t[3]);
    b.nv = nb::cast<int>(t[4]);
    b.joint = nb::cast<int>(t[5]);
    b.general = nb::cast<int>(t[6]);
    b.pitch = read.one(t[7]);
    b.M = read_pose(read.list(t[8], 12).data());
    b.I = read_inertia(read.list(t[9], 10).data());
    b.Sigma = pseudo_inertia(b.I.J);
    b.subtree_mass = b.I.m;
    b.massless = is_zero(b.I);
    b.offset = translates(b.kind) || !is_zero(b.M.p);
    if (b.kind == Kind::revolute || b.kind == Kind::screw) m->angles.push_back(b.iq);
    if (b.kind == Kind::spherical || b.kind == Kind::free)
      m->quaternions.push_back({b.kind == Kind::free ? b.iq + 3 : b.iq, b.joint});
    m->bodies.push_back(b);
    const int above = b.parent >= 0 ? m->links[b.parent].above + m->links[b.parent].nv : 0;
    m->links.push_back({b.parent, b.iv, b.nv, above, b.nv});
    m->depth = std::max(m->depth, above + b.nv);
    m->has_weak = m->has_weak || (b.general >= 0 && b.nv > 1);  // columns of S(q) can be linearly dependent
  }
  std::sort(m->angles.begin(), m->angles.end());
  std::vector<bool> seen(m->n(), false);
  std::vector<double> carried(m->n(), 0.0);  // trace of the inertia of the subtree about the origin: an upper bound
  for (int i = m->n() - 1; i >= 0; --i) {
    auto& b = m->bodies[i];
    const double mass = value_of(b.subtree_mass), p = std::sqrt(value_of(dot(b.M.p, b.M.p)));
    carried[i] += value_of(b.I.J.xx + b.I.J.yy + b.I.J.zz);
    m->has_weak = m->has_weak || !(value_of(b.I.m) > 1e-8 * mass) || !(least_moment(b.I) > 1e-8 * carried[i]);
    if (b.parent >= 0) carried[b.parent] += std::pow(std::sqrt(carried[i]) + p * std::sqrt(2.0 * mass), 2);
    b.leaf = !seen[i];
    b.last_child = b.parent >= 0 && !seen[b.parent];
    if (b.parent >= 0) {
      seen[b.parent] = true;
      m->bodies[b.parent].subtree_mass += b.subtree_mass;
      m->links[b.parent].below += m->links[i].below;
    }
  }
  for (nb::handle item : frames) {
    nb::tuple t = nb::cast<nb::tuple>(item);
    typename ModelT<C>::Frame f{};
    f.body = nb::cast<int>(t[0]);
    f.parent = nb::cast<int>(t[1]);
    f.pose = read_pose(read.list(t[2], 12).data());
    f.same = is_identity(f.pose);
    f.I = read_inertia(read.list(t[3], 10).data());
    f.massless = is_zero(f.I);
    f.placement = read_pose(read.list(t[4], 12).data());
    m->frames.push_back(f);
  }
}
void build_plain(Model* m, int nq, int nv, nb::list gravity, nb::list bodies, nb::list frames,
                 const std::vector<int>& order, nb::list general, nb::list armature) {
  build(NumberReader<double>{}, m, nq, nv, gravity, bodies, frames, order, general, armature);
}
void build_dual(ModelT<Dual<double>>* m, double step, int nq, int nv, nb::list gravity, nb::list bodies,
                nb::list frames, const std::vector<int>& order, nb::list general, nb::list armature) {
  build(NumberReader<Dual<double>>{step}, m, nq, nv, gravity, bodies, frames, order, general, armature);
}

// A coupling whose function is computed by the methods _evaluate and _vary of a Python object.
class PythonMap final : public CustomMap, public PythonCode {
 public:
  PythonMap(nb::object object, int inputs, int outputs)
      : PythonCode(std::move(object)), m_(inputs), size_(outputs * (1 + inputs * (1 + inputs * (1 + inputs)))) {}
  void evaluate(const double* s, int lanes, int level, double* out) const override { call(s, lanes, level, out); }
  void evaluate(const Complex* s, int lanes, int level, Complex* out) const override { call(s, lanes, level, out); }
  void vary(const double* s, int lanes, int level, int parameter, double* out) const override {
    nb::gil_scoped_acquire acquire;
    read_rows(object.attr("_vary")(new_rows(lanes, s, m_), level, parameter), lanes, size_, out);
  }
  bool equals(const CustomMap& other) const override {
    nb::gil_scoped_acquire acquire;
    const int same = PyObject_RichCompareBool(object.ptr(), static_cast<const PythonMap&>(other).object.ptr(), Py_EQ);
    if (same < 0) PyErr_Clear();  // functions that cannot be compared are different
    return same == 1;
  }

 private:
  template <class T>
  void call(const T* s, int lanes, int level, T* out) const {
    nb::gil_scoped_acquire acquire;
    read_rows(object.attr("_evaluate")(new_rows(lanes, s, m_), level), lanes, size_, out);
  }
  int m_, size_;
};

// The manifold of reduced coordinates: bodies (kind, iq, iv, nv, joint).
Model read_coordinates(int nq, int nv, nb::list bodies) {
  Model m;
  m.nq = nq;
  m.nv = nv;
  for (nb::handle item : bodies) {
    nb::tuple t = nb::cast<nb::tuple>(item);
    Model::Body b{};
    b.parent = -1;
    b.general = -1;
    b.kind = static_cast<Kind>(nb::cast<int>(t[0]));
    b.iq = nb::cast<int>(t[1]);
    b.iv = nb::cast<int>(t[2]);
    b.nv = nb::cast<int>(t[3]);
    b.joint = nb::cast<int>(t[4]);
    if (b.kind == Kind::revolute || b.kind == Kind::screw) m.angles.push_back(b.iq);
    if (b.kind == Kind::spherical || b.kind == Kind::free)
      m.quaternions.push_back({b.kind == Kind::free ? b.iq + 3 : b.iq, b.joint});
    m.bodies.push_back(b);
    m.links.push_back({-1, b.iv, b.nv, 0, b.nv});
  }
  std::sort(m.angles.begin(), m.angles.end());
  return m;
}

// The solver of forward dynamics that is expected to be the fastest, by nanoseconds that chains of 20 to 1000 bodies
// and robots took (eight lanes, one core).
Coupling::Solver fastest_solver(const Model& m, const Coupling& c) {
  const double nv = m.nv, nr = c.nv(), followers = static_cast<double>(c.rows.size());
  double entries = 0.0;  // of P in rows of followers
  for (const Coupling::Row& row : c.rows) entries += c.start[row.iv + 1] - c.start[row.iv];
  const double factors = 0.009 * nr * nr * nr;
  const double dense = factors + 0.8 * nv * m.depth + 0.1 * entries * (nv + nr);
  const double columns = factors + nr * (8.0 * nv + 0.5 * entries);
  const double multipliers = nv * (18.0 + 4.0 * followers);
  if (c.added.empty() && multipliers < std::min(dense, columns)) return Coupling::Solver::multipliers;
  return columns < dense ? Coupling::Solver::columns : Coupling::Solver::dense;
}

// coordinates: (nq, nv, bodies); runs: (tree, reduced, count) of coordinates, and of velocities; position, by reduced
// velocity; rows: (iq, iv, joint, block, output, scale, offset, columns, values); blocks: (outputs, constants, columns,
// B, coefficients, object or None, number of its parameters); solver: -1 for the one that is expected to be fastest.
void couple(Model& m, nb::tuple coordinates, nb::list runs_q, nb::list runs_v, const std::vector<int>& position,
            nb::list rows, nb::list blocks, int solver) {
  auto made = std::make_shared<Coupling>();
  Coupling& c = *made;
  c.coordinates = read_coordinates(nb::cast<int>(coordinates[0]), nb::cast<int>(coordinates[1]),
                                   nb::cast<nb::list>(coordinates[2]));
  c.position = position;
  const auto read_runs = [](nb::list given, std::vector<Coupling::Run>& runs) {
    for (nb::handle item : given) {
      nb::tuple t = nb::cast<nb::tuple>(item);
      runs.push_back({nb::cast<int>(t[0]), nb::cast<int>(t[1]), nb::cast<int>(t[2])});
    }
  };
  read_runs(runs_q, c.runs_q);
  read_runs(runs_v, c.runs_v);
  for (nb::handle item : blocks) {
    nb::tuple t = nb::cast<nb::tuple>(item);
    Coupling::Block b;
    b.outputs = nb::cast<int>(t[0]);
    b.constants = nb::cast<std::vector<double>>(t[1]);
    b.inputs = static_cast<int>(b.constants.size());
    b.columns = nb::cast<std::vector<int>>(t[2]);
    b.B = nb::cast<std::vector<double>>(t[3]);
    b.coefficients = nb::cast<std::vector<double>>(t[4]);
    if (!t[5].is_none()) b.custom = std::make_shared<PythonMap>(nb::object(t[5]), b.inputs, b.outputs);
    b.parameters = nb::cast<int>(t[6]);
    b.begin = c.terms;
    c.terms += b.size();
    c.blocks.push_back(std::move(b));
  }
  std::vector<std::vector<std::pair<int, double>>> P(m.nv);
  for (const Coupling::Run& run : c.runs_v)
    for (int k = 0; k < run.count; ++k) P[run.tree + k].push_back({run.reduced + k, 1.0});
  for (nb::handle item : rows) {
    nb::tuple t = nb::cast<nb::tuple>(item);
    Coupling::Row r{nb::cast<int>(t[0]), nb::cast<int>(t[1]),    nb::cast<int>(t[2]),    nb::cast<int>(t[3]),
                    nb::cast<int>(t[4]), nb::cast<double>(t[5]), nb::cast<double>(t[6]), {}};
    const auto columns = nb::cast<std::vector<int>>(t[7]);
    const auto values = nb::cast<std::vector<double>>(t[8]);
    for (std::size_t k = 0; k < columns.size(); ++k) {
      r.terms.push_back({columns[k], values[k]});
      P[r.iv].push_back({columns[k], values[k]});
    }
    if (r.block >= 0) {
      c.blocks[r.block].rows.push_back(static_cast<int>(c.rows.size()));
      for (int column : c.blocks[r.block].columns) P[r.iv].push_back({column, 0.0});
      c.bent.push_back(r.iv);
    }
    c.numbers += 1 + (r.block >= 0 ? 1 : static_cast<int>(r.terms.size()));
    if (r.block < 0) {
      const bool first = c.linear.empty(), diagonal = !first && c.linear.back().diagonal;
      const bool same = !first && c.linear.back().columns == columns && (!diagonal || columns.size() == 1);
      const bool joins = diagonal && columns.size() == 1;
      if (!same && !joins) c.linear.push_back({});
      Coupling::Linear& group = c.linear.back();
      if (!same)
        for (int column : columns) {
          group.columns.push_back(column);
          group.positions.push_back(c.position[column]);
        }
      group.iq.push_back(r.iq);
      group.iv.push_back(r.iv);
      group.offset.push_back(r.offset);
      group.values.insert(group.values.end(), values.begin(), values.end());
      group.diagonal = columns.size() == 1 && group.columns.size() == group.iv.size();
    }
    c.rows.push_back(std::move(r));
  }
  for (const Coupling::Block& b : c.blocks)
    c.numbers += static_cast<int>(b.B.size() + b.constants.size() + b.coefficients.size()) + b.parameters;
  for (const Coupling::Row& row : c.rows) c.coupled.push_back(row.iv);
  std::sort(c.coupled.begin(), c.coupled.end());
  std::sort(c.bent.begin(), c.bent.end());
  c.start.push_back(0);
  for (const auto& row : P) {
    for (const auto& [column, value] : row) {
      c.column.push_back(column);
      c.constant.push_back(value);
    }
    c.start.push_back(static_cast<int>(c.column.size()));
  }
  c.joint_of.resize(c.nv());
  c.tree_of.assign(c.nv(), -1);
  for (const Model::Body& body : c.coordinates.bodies)
    for (int k = 0; k < body.nv; ++k) c.joint_of[body.iv + k] = body.joint;
  for (const Coupling::Run& run : c.runs_v)
    for (int k = 0; k < run.count; ++k) c.tree_of[run.reduced + k] = run.tree + k;
  for (int k = 0; k < c.nv(); ++k)
    if (c.tree_of[k] < 0) c.added.push_back(k);
  c.solver = solver < 0 ? fastest_solver(m, c) : static_cast<Coupling::Solver>(solver);
  m.coupling = std::move(made);
}

// For the garbage collector: a user-defined joint may refer back to a model that contains it.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const auto& general : nb::inst_ptr<Model>(self)->general)
    if (general.custom) Py_VISIT(static_cast<PythonJoint*>(general.custom.get())->joint_.ptr());
  if (const auto& coupling = nb::inst_ptr<Model>(self)->coupling)
    for (const Coupling::Block& block : coupling->blocks)
      if (block.custom) Py_VISIT(static_cast<PythonMap*>(block.custom.get())->object.ptr());
  return 0;
}
int clear(PyObject* self) {
  for (auto& general : nb::inst_ptr<Model>(self)->general)
    if (general.custom) static_cast<PythonJoint*>(general.custom.get())->joint_ = nb::none();
  if (const auto& coupling = nb::inst_ptr<Model>(self)->coupling)
    for (const Coupling::Block& block : coupling->blocks)
      if (block.custom) static_cast<PythonMap*>(block.custom.get())->object = nb::none();
  return 0;
}
PyType_Slot model_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

}  // namespace

PyTypeObject* bind_model(nb::module_& module) {
  nb::enum_<Kind>(module, "JointKind", nb::is_arithmetic())
      .value("revolute", Kind::revolute)
      .value("prismatic", Kind::prismatic)
      .value("screw", Kind::screw)
      .value("spherical", Kind::spherical)
      .value("free", Kind::free)
      .value("exponential", Kind::exponential)
      .value("spline_curve", Kind::spline_curve)
      .value("spline_surface", Kind::spline_surface)
      .value("custom", Kind::custom);
  nb::class_<Model> model(module, "Model", nb::type_slots(model_slots));
  model.def("__init__", build_plain);
  model.def("same_tree", same_tree);
  model.def_prop_ro("coupling_numbers", [](const Model& m) { return m.coupling ? m.coupling->numbers : 0; });
  model.def("couple", couple);
  nb::class_<ModelT<Dual<double>>>(module, "DualModel").def("__init__", build_dual);
  return reinterpret_cast<PyTypeObject*>(model.ptr());
}

}  // namespace torsor
