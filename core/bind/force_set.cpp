#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/user_code.hpp"
#include "forces/energy_balance.hpp"
#include "forces/force_placements.hpp"

namespace torsor {
namespace {

// A spring whose tension is computed by the method _tension(x, p) of a Python object, at rows x = (l, ldot), and its
// energy by _energy(l, p).
class PythonSpringLaw final : public SpringLaw, public PythonCode {
 public:
  explicit PythonSpringLaw(nb::object spring)
      : PythonCode(std::move(spring)), has_energy_(nb::cast<bool>(object.attr("has_energy"))) {}
  void evaluate(int lanes, const double* x, const double* p, int n, double* out) const override {
    call("_tension", lanes, x, 2, p, n, out, 3 + n);
  }
  void evaluate(int lanes, const Complex* x, const Complex* p, int n, Complex* out) const override {
    call("_tension", lanes, x, 2, p, n, out, 3 + n);
  }
  bool has_energy() const override { return has_energy_; }
  void energy(int lanes, const double* l, const double* p, int n, double* E) const override {
    call("_energy", lanes, l, 1, p, n, E, 1);
  }
  void energy(int lanes, const Complex* l, const Complex* p, int n, Complex* E) const override {
    call("_energy", lanes, l, 1, p, n, E, 1);
  }

 private:
  const bool has_energy_;
  template <class T>
  void call(const char* method, int lanes, const T* x, int columns, const T* p, int n, T* out, int results) const {
    nb::gil_scoped_acquire acquire;
    read_rows(object.attr(method)(new_rows(lanes, x, columns), new_rows(lanes, p, n)), lanes, results, out);
  }
};

// A force in reduced coordinates, computed by a Python object.
class PythonForce final : public CustomForce, public PythonCode {
 public:
  PythonForce(nb::object force, const Model& m, int count)
      : PythonCode(std::move(force)), nq_(m.nq), nv_(m.nv), n_(count) {}
  void value(int lanes, const double* q, const double* v, double t, const double* p, double* tau) const override {
    call_value(lanes, q, v, t, p, tau);
  }
  void value(int lanes, const Complex* q, const Complex* v, double t, const Complex* p, Complex* tau) const override {
    call_value(lanes, q, v, t, p, tau);
  }
  void derivatives(int lanes, const double* q, const double* v, double t, const double* p, double* K,
                   double* D) const override {
    call_derivatives(lanes, q, v, t, p, K, D);
  }
  void derivatives(int lanes, const Complex* q, const Complex* v, double t, const Complex* p, Complex* K,
                   Complex* D) const override {
    call_derivatives(lanes, q, v, t, p, K, D);
  }
  void energy(int lanes, const double* q, double t, const double* p, double* E) const override {
    call_energy(lanes, q, t, p, E);
  }
  void energy(int lanes, const Complex* q, double t, const Complex* p, Complex* E) const override {
    call_energy(lanes, q, t, p, E);
  }
  void gradient(int lanes, const double* q, const double* v, double t, const double* p, const double* w,
                double* g) const override {
    call_gradient(lanes, q, v, t, p, w, g);
  }
  void gradient(int lanes, const Complex* q, const Complex* v, double t, const Complex* p, const Complex* w,
                Complex* g) const override {
    call_gradient(lanes, q, v, t, p, w, g);
  }

 private:
  template <class T>
  void call_value(int lanes, const T* q, const T* v, double t, const T* p, T* tau) const {
    nb::gil_scoped_acquire acquire;
    read_rows(object.attr("_value")(new_rows(lanes, q, nq_), new_rows(lanes, v, nv_), t, new_rows(lanes, p, n_)), lanes,
              nv_, tau);
  }
  template <class T>
  void call_derivatives(int lanes, const T* q, const T* v, double t, const T* p, T* K, T* D) const {
    nb::gil_scoped_acquire acquire;
    nb::tuple both = nb::cast<nb::tuple>(
        object.attr("_derivatives")(new_rows(lanes, q, nq_), new_rows(lanes, v, nv_), t, new_rows(lanes, p, n_)));
    read_rows(both[0], lanes, nv_ * nv_, K);
    read_rows(both[1], lanes, nv_ * nv_, D);
  }
  template <class T>
  void call_energy(int lanes, const T* q, double t, const T* p, T* E) const {
    nb::gil_scoped_acquire acquire;
    read_rows(object.attr("_energy")(new_rows(lanes, q, nq_), t, new_rows(lanes, p, n_)), lanes, 1, E);
  }
  template <class T>
  void call_gradient(int lanes, const T* q, const T* v, double t, const T* p, const T* w, T* g) const {
    nb::gil_scoped_acquire acquire;
    read_rows(object.attr("_gradient")(new_rows(lanes, q, nq_), new_rows(lanes, v, nv_), t, new_rows(lanes, p, n_),
                                       new_rows(lanes, w, nv_)),
              lanes, n_, g);
  }
  int nq_, nv_, n_;
};

// A table is (times, offset, size), a parameter for each velocity is (offset, stride).
Table read_table(nb::handle item) {
  nb::tuple t = nb::cast<nb::tuple>(item);
  return {nb::cast<int>(t[1]), nb::cast<int>(t[2]), nb::cast<std::vector<double>>(t[0])};
}
PerVelocity read_per_velocity(nb::handle item) {
  const auto [offset, stride] = nb::cast<std::pair<int, int>>(item);
  return {offset, stride};
}
// The kind of a law; `names` are in the order of the enumeration.
template <class Kind>
Kind read_kind(nb::handle item, std::initializer_list<const char*> names) {
  const auto name = nb::cast<std::string>(item);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw nb::value_error(("torsor: no law of kind " + name).c_str());
  return static_cast<Kind>(found - names.begin());
}
// Number of places of two shapes, by the names of their kinds; 0 if there are no formulas for them.
int count_places(const std::string& a, const std::string& b) {
  const auto kind = [](const std::string& name) { return std::find(kShapeNames.begin(), kShapeNames.end(), name); };
  if (kind(a) == kShapeNames.end() || kind(b) == kShapeNames.end()) return 0;
  const auto shape = [&](auto found) { return Shape{static_cast<ShapeKind>(found - kShapeNames.begin()), 0}; };
  return place_count(shape(kind(a)), shape(kind(b)));
}
// Attachments are (index of the user's body or -1, offset).
std::vector<Attachment> read_attachments(const Model& m, nb::handle items) {
  std::vector<Attachment> out;
  for (nb::handle item : items) {
    const auto [frame, offset] = nb::cast<std::pair<int, int>>(item);
    if (frame < 0)
      out.push_back({-1, offset, -1});
    else
      out.push_back({m.frames[frame].body, offset, frame});
  }
  return out;
}

// Reads the parts of forces: tuples (name, ...), whose other entries are listed above each method.
struct PartReader {
  const Model& m;
  int force;
  nb::tuple t;
  ForceSet& set;
  int integer(int k) const { return nb::cast<int>(t[k]); }

  // A parameter for each velocity, from that of the velocity v0 on: of the velocities from iv on.
  PerVelocity per_velocity(int k, int v0, int iv) const {
    const PerVelocity p = read_per_velocity(t[k]);
    return {p.offset < 0 ? -1 : p.offset + p.stride * (iv - v0), p.stride};
  }

  // (kind, joint or -1 for all, its first coordinate and velocity, stiffness, damping, rest or lower, upper,
  // dissipation, onset); the last six are offsets of the parameters of the first coordinate and velocity.
  void joint() const {
    const auto kind = read_kind<JointLaw::Kind>(t[1], {"spring", "limits", "damper"});
    const int joint = integer(2), q0 = integer(3), v0 = integer(4);
    for (int i = 0; i < m.n(); ++i) {
      const Model::Body& body = m.bodies[i];
      if (joint >= 0 && body.joint != joint) continue;
      if (kind == JointLaw::limits && rotation_velocities(body.kind) > 0) continue;
      JointLaw law{{force}, kind, i, per_velocity(5, v0, body.iv), per_velocity(6, v0, body.iv)};
      law.rest = law.lower = integer(7) + body.iq - q0;
      law.upper = integer(8) + body.iq - q0;
      law.dissipation = per_velocity(9, v0, body.iv);
      law.onset = per_velocity(10, v0, body.iv);
      set.add(law);
    }
  }
  // (joint or -1 for all, its first velocity, torque, slip)
  void friction() const {
    const int joint = integer(1), v0 = integer(2);
    for (int i = 0; i < m.n(); ++i)
      if (joint < 0 || m.bodies[i].joint == joint)
        set.add(FrictionLaw{{force}, i, per_velocity(3, v0, m.bodies[i].iv), per_velocity(4, v0, m.bodies[i].iv)});
  }
  // (joint, offset)
  void bearing() const {
    for (int i = 0; i < m.n(); ++i) {
      if (m.bodies[i].joint != integer(1)) continue;
      const Kind kind = m.bodies[i].kind;
      if (kind != Kind::revolute && kind != Kind::prismatic && kind != Kind::spherical)
        throw nb::value_error("torsor: no bearing of this joint");
      const auto bearing = kind == Kind::revolute    ? BearingLaw::journal
                           : kind == Kind::prismatic ? BearingLaw::slider
                                                     : BearingLaw::ball;
      set.bearings.push_back({force, bearing, i, integer(2)});
    }
  }
  // (first velocity, table)
  void torque() const { set.add(TorqueLaw{{force}, integer(1), read_table(t[2])}); }
  // (kind, body, table)
  void body() const {
    const auto kind = read_kind<BodyLaw::Kind>(t[1], {"body", "world", "local_world_aligned", "damper"});
    const int body = m.frames[integer(2)].body;
    if (body < 0) return;  // fixed to the world
    set.add(BodyLaw{{force}, kind, body, read_table(t[3]), integer(2)});
  }
  // (attachments, table)
  void push() const { set.add(PointLaw{{force}, read_attachments(m, t[1]), PushLaw{read_table(t[2])}}); }
  // (attachments, offset)
  void pull() const { set.add(PointLaw{{force}, read_attachments(m, t[1]), PullLaw{integer(2)}}); }
  void contact() const { set.add(PointLaw{{force}, read_attachments(m, t[1]), ContactLaw{integer(2)}}); }
  // (shape, shape, offset); shapes are (index of the user's body or -1, kind, offset of its numbers) and, if it has
  // any, its data
  void pair() const {
    const auto shape = [&](nb::handle item) -> ShapeOn {
      nb::tuple x = nb::cast<nb::tuple>(item);
      const int frame = nb::cast<int>(x[0]);
      const auto kind = read_kind<ShapeKind>(x[1], kShapeNames);
      const auto surface = nb::len(x) > 3 ? read_surface(kind, x[3]) : nullptr;
      return {frame < 0 ? -1 : m.frames[frame].body, frame, {kind, nb::cast<int>(x[2]), surface}};
    };
    const ShapeOn a = shape(t[1]), b = shape(t[2]);
    if (a.body == b.body) return;  // they do not move relative to each other
    set.add(PairLaw{{force}, a, b, integer(3)});
  }
  // (attachments, kind, offset, count, spring or None)
  void path() const {
    PathLaw law{read_kind<PathLaw::Kind>(t[2], {"strain", "cable", "custom"}), integer(3), integer(4), nullptr};
    if (law.kind == PathLaw::custom) law.law = std::make_shared<PythonSpringLaw>(nb::object(t[5]));
    set.add(PointLaw{{force}, read_attachments(m, t[1]), std::move(law)});
  }
  // (force, offset, count)
  void custom() const {
    const int count = integer(3);
    set.add(CustomLaw{{force}, integer(2), count, std::make_shared<PythonForce>(nb::object(t[1]), m, count)});
  }
};
constexpr std::pair<const char*, void (PartReader::*)() const> kReaders[] = {
    {"joint", &PartReader::joint},   {"friction", &PartReader::friction}, {"bearing", &PartReader::bearing},
    {"torque", &PartReader::torque}, {"body", &PartReader::body},         {"push", &PartReader::push},
    {"pull", &PartReader::pull},     {"path", &PartReader::path},         {"contact", &PartReader::contact},
    {"pair", &PartReader::pair},     {"custom", &PartReader::custom}};

// parts: tuples (force, part).
void build_forces(ForceSet* set, const Model& m, int forces, int parameters, nb::list parts) {
  new (set) ForceSet();
  set->forces = forces;
  set->parameters = parameters;
  for (nb::handle item : parts) {
    const auto [force, part] = nb::cast<std::pair<int, nb::tuple>>(item);
    const auto name = nb::cast<std::string>(part[0]);
    const auto* reader =
        std::find_if(std::begin(kReaders), std::end(kReaders), [&](auto& r) { return r.first == name; });
    if (reader == std::end(kReaders)) throw nb::value_error(("torsor: no law named " + name).c_str());
    (PartReader{m, force, part, *set}.*reader->second)();
  }
  const auto part = [&](auto&& keeps) { return std::make_shared<const ForceSet>(part_of(*set, keeps)); };
  if (has_balance(*set)) set->given = part([](const auto& law) { return law.work() == Work::given; });
  if (!set->bearings.empty() || set->any([](const auto& law) { return law.is_stiff(); }))
    set->smooth = part([](const auto& law) { return !law.is_stiff(); });
}

// For the garbage collector: a user-defined force may refer back to an object that contains it.
template <class F>
int for_each_object(PyObject* self, F&& f) {
  int result = 0;
  nb::inst_ptr<ForceSet>(self)->for_each([&](const auto& law) {
    if (auto* code = dynamic_cast<PythonCode*>(law.user_code()); code != nullptr && result == 0)
      result = f(code->object);
  });
  return result;
}
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  return for_each_object(self, [&](nb::object& object) { return visit(object.ptr(), arg); });
}
int clear(PyObject* self) {
  return for_each_object(self, [](nb::object& object) {
    object = nb::none();
    return 0;
  });
}
PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

}  // namespace

const ForceSet* force_set(nb::handle set) { return nb::cast<const ForceSet*>(set); }

void bind_force_set(nb::module_& module) {
  module.def("contact_places", count_places);
  module.def("has_potential", [](const std::string& a, const std::string& b) {
    const auto kind = [](const std::string& name) {
      return static_cast<ShapeKind>(std::find(kShapeNames.begin(), kShapeNames.end(), name) - kShapeNames.begin());
    };
    return has_potential(kind(a), kind(b));
  });
  nb::class_<ForceSet>(module, "ForceSet", nb::type_slots(slots))
      .def("__init__", build_forces)
      .def_prop_ro("depends_on_place", depends_on_place)
      .def_prop_ro("on_single_bodies", on_single_bodies)
      .def_prop_ro("contact_forces", contact_forces)
      .def_prop_ro("stiff", [](const ForceSet& set) { return set.smooth != nullptr; })
      .def("keeps_branches", [](const ForceSet& set, const Model& m) { return keeps_branches(m, set); });
}

}  // namespace torsor
