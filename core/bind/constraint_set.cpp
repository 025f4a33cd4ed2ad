// torsor._core.ConstraintSet: constraints compiled for one model, from the parts that torsor/constraints describes.
#include "constraints/constraint_set.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/user_code.hpp"

namespace torsor {
namespace {

// A function t -> array of numbers.
class PythonTimeFunction final : public TimeFunction, public PythonCode {
 public:
  PythonTimeFunction(nb::object function, int size) : PythonCode(std::move(function)), size_(size) {}
  void evaluate(double t, double* out) const override {
    nb::gil_scoped_acquire acquire;
    read_rows(object(t), 1, size_, out);
  }

 private:
  int size_;
};

// Rows that methods of a Python object compute.
class PythonConstraint final : public CustomConstraint, public PythonCode {
 public:
  PythonConstraint(nb::object object, const Model& m, int rows, int count)
      : PythonCode(std::move(object)), nq_(m.nq), nv_(m.nv), rows_(rows), count_(count) {}
  void evaluate(int lanes, const double* q, const double* v, const double* a, double t, double* out) const override {
    call("_evaluate", rows_ * (3 + nv_), lanes, q, v, a, t, out);
  }
  void evaluate(int lanes, const Complex* q, const Complex* v, const Complex* a, double t,
                Complex* out) const override {
    call("_evaluate", rows_ * (3 + nv_), lanes, q, v, a, t, out);
  }
  void derivatives(int lanes, const double* q, const double* v, const double* a, double t, double* out) const override {
    call("_derivatives", 3 * rows_ * nv_, lanes, q, v, a, t, out);
  }
  void derivatives(int lanes, const Complex* q, const Complex* v, const Complex* a, double t,
                   Complex* out) const override {
    call("_derivatives", 3 * rows_ * nv_, lanes, q, v, a, t, out);
  }
  void stiffness(int lanes, const double* q, double t, const double* lambda, double* out) const override {
    call_stiffness(lanes, q, t, lambda, out);
  }
  void stiffness(int lanes, const Complex* q, double t, const Complex* lambda, Complex* out) const override {
    call_stiffness(lanes, q, t, lambda, out);
  }
  void gradient(int lanes, const double* q, const double* v, const double* a, double t, const double* weights,
                double* out) const override {
    call_gradient(lanes, q, v, a, t, weights, out);
  }
  void gradient(int lanes, const Complex* q, const Complex* v, const Complex* a, double t, const Complex* weights,
                Complex* out) const override {
    call_gradient(lanes, q, v, a, t, weights, out);
  }

 private:
  template <class T>
  void call(const char* method, int size, int lanes, const T* q, const T* v, const T* a, double t, T* out) const {
    nb::gil_scoped_acquire acquire;
    read_rows(object.attr(method)(new_rows(lanes, q, nq_), new_rows(lanes, v, nv_), new_rows(lanes, a, nv_), t), lanes,
              size, out);
  }
  template <class T>
  void call_stiffness(int lanes, const T* q, double t, const T* lambda, T* out) const {
    nb::gil_scoped_acquire acquire;
    read_rows(object.attr("_stiffness")(new_rows(lanes, q, nq_), t, new_rows(lanes, lambda, rows_)), lanes, nv_ * nv_,
              out);
  }
  // The weights of each lane are those of g, gdot and gamma, one after the other.
  template <class T>
  void call_gradient(int lanes, const T* q, const T* v, const T* a, double t, const T* weights, T* out) const {
    nb::gil_scoped_acquire acquire;
    std::vector<T> each[3];
    for (int part = 0; part < 3; ++part)
      for (int l = 0; l < lanes; ++l)
        each[part].insert(each[part].end(), weights + (3 * l + part) * rows_, weights + (3 * l + part + 1) * rows_);
    const auto rows = [&](int part) { return new_rows(lanes, each[part].data(), rows_); };
    read_rows(object.attr("_parameter_gradient")(new_rows(lanes, q, nq_), new_rows(lanes, v, nv_),
                                                 new_rows(lanes, a, nv_), t, rows(0), rows(1), rows(2)),
              lanes, count_, out);
  }
  int nq_, nv_, rows_, count_;
};

Vec3<double> read_vector(const std::vector<double>& x, std::size_t at) {
  return {x.at(at), x.at(at + 1), x.at(at + 2)};
}

// (index of the user's body or -1, R by rows and p)
Marker read_marker(const Model& m, nb::handle item) {
  const auto [frame, x] = nb::cast<std::pair<int, std::vector<double>>>(item);
  if (frame < -1 || frame >= m.nplaces() || x.size() != 12) throw nb::value_error("torsor: no such marker");
  const SE3<double> pose{{{x[0], x[3], x[6]}, {x[1], x[4], x[7]}, {x[2], x[5], x[8]}}, read_vector(x, 9)};
  return {frame, frame < 0 ? -1 : m.frames[frame].body, pose};
}

// Reads parts: tuples (name, ...), whose other entries are listed above each method.
struct PartReader {
  const Model& m;
  nb::tuple t;
  ConstraintSet& set;

  ConstraintPart begin(int constraint, int rows, int parameters) {
    const ConstraintPart part{constraint, set.rows, rows, set.parameters};
    set.rows += rows;
    set.parameters += parameters;
    return part;
  }
  TimeSlot read_motion(nb::handle function, int size) {
    if (function.is_none()) return {};
    const TimeSlot slot{set.times, size};
    set.motions.emplace_back(slot, std::make_shared<PythonTimeFunction>(nb::borrow(function), size));
    set.times += size;
    return slot;
  }
  void require_velocity(int iv) const {
    if (iv < 0 || iv >= m.nv) throw nb::value_error("torsor: no such velocity");
  }

  static RowTerm read_term(const std::vector<double>& x) {
    RowTerm term{x.at(0), read_vector(x, 1), read_vector(x, 4), x.at(7)};
    term.axis = unit_vector(term.a);
    if (term.s == 0.0) term.seen = unit_vector(term.b);
    if (term.s == 1.0 && term.b.x == 0.0 && term.b.y == 0.0 && term.b.z == 0.0) term.seen = 3;
    return term;
  }
  // (marker A, marker B, rows, motion of A or None); rows: ("linear", [(coefficient, a, b, s), ...], offset) or
  // ("norm", offset).
  void pair(int constraint) {
    PairPart part;
    part.A = read_marker(m, t[1]);
    part.B = read_marker(m, t[2]);
    for (nb::handle item : t[3]) {
      nb::tuple row = nb::cast<nb::tuple>(item);
      const bool is_distance = nb::cast<std::string>(row[0]) == "norm";
      PairRow out{is_distance, {}, nb::cast<double>(row[row.size() - 1])};
      if (!is_distance)
        for (nb::handle term : row[1]) {
          const auto x = nb::cast<std::vector<double>>(term);
          out.terms.push_back(read_term(x));
        }
      part.each.push_back(std::move(out));
    }
    part.lanes = row_lanes(part.each);
    const int rows = static_cast<int>(part.each.size());
    static_cast<ConstraintPart&>(part) = begin(constraint, rows, 12 + rows);
    part.motion = read_motion(t[4], 24);
    part.moves_A = moves_alone(m, part.A.body, part.B.body);
    part.moves_B = moves_alone(m, part.B.body, part.A.body);
    const auto root = [&](const std::vector<int>& moves) { return moves.empty() ? -1 : m.links[moves.back()].parent; };
    part.has_common = root(part.moves_A) >= 0 || root(part.moves_B) >= 0;
    part.needs_velocity = !part.A_rests();
    part.has_other_terms = false;
    std::fill_n(part.sees, 4, false);
    for (const PairRow& row : part.each) {
      part.needs_velocity = part.needs_velocity || row.is_distance;
      part.sees[3] = part.sees[3] || row.is_distance;
      for (const RowTerm& term : row.terms) (term.seen >= 0 ? part.sees[term.seen] : part.has_other_terms) = true;
    }
    set.pairs.push_back(std::move(part));
  }
  // ([(coefficient, coordinate, velocity), ...], offset, motion or None)
  void coupling(int constraint) {
    CouplingPart part;
    for (nb::handle item : t[1]) {
      const auto [c, iq, iv] = nb::cast<std::tuple<double, int, int>>(item);
      if (iq < 0 || iq >= m.nq) throw nb::value_error("torsor: no such coordinate");
      require_velocity(iv);
      part.terms.push_back({c, iq, iv});
    }
    static_cast<ConstraintPart&>(part) = begin(constraint, 1, static_cast<int>(part.terms.size()) + 1);
    part.offset = nb::cast<double>(t[2]);
    part.motion = read_motion(t[3], 3);
    set.couplings.push_back(std::move(part));
  }
  // ([(index of the user's body, w), ...], [(coefficient, velocity), ...], motion or None)
  void twist(int constraint) {
    TwistPart part;
    for (nb::handle item : t[1]) {
      const auto [frame, w] = nb::cast<std::pair<int, std::vector<double>>>(item);
      if (frame < 0 || frame >= m.nplaces()) throw nb::value_error("torsor: no such body");
      const int body = m.frames[frame].body;
      const SE3<double> same{identity3<double>(), zero3<double>()};
      part.bodies.push_back({{frame, body, same}, {read_vector(w, 0), read_vector(w, 3)}, moves_alone(m, body, -1)});
    }
    for (nb::handle item : t[2]) {
      const auto [c, iv] = nb::cast<std::pair<double, int>>(item);
      require_velocity(iv);
      part.terms.push_back({c, iv});
    }
    static_cast<ConstraintPart&>(part) =
        begin(constraint, 1, static_cast<int>(6 * part.bodies.size() + part.terms.size()));
    part.motion = read_motion(t[3], 2);
    set.twists.push_back(std::move(part));
  }
  // (object, rows, number of parameters)
  void custom(int constraint) {
    CustomPart part;
    const int rows = nb::cast<int>(t[2]), count = nb::cast<int>(t[3]);
    static_cast<ConstraintPart&>(part) = begin(constraint, rows, count);
    part.count = count;
    part.custom = std::make_shared<PythonConstraint>(nb::object(t[1]), m, rows, count);
    set.custom.push_back(std::move(part));
  }
};
constexpr std::pair<const char*, void (PartReader::*)(int)> kReaders[] = {{"pair", &PartReader::pair},
                                                                          {"coupling", &PartReader::coupling},
                                                                          {"twist", &PartReader::twist},
                                                                          {"custom", &PartReader::custom}};

// parts: tuples (constraint, part), in the order of the rows.
void build_constraints(ConstraintSet* set, const Model& m, int constraints, nb::list parts) {
  new (set) ConstraintSet();
  set->constraints = constraints;
  for (nb::handle item : parts) {
    const auto [constraint, part] = nb::cast<std::pair<int, nb::tuple>>(item);
    const auto name = nb::cast<std::string>(part[0]);
    const auto* reader =
        std::find_if(std::begin(kReaders), std::end(kReaders), [&](auto& r) { return r.first == name; });
    if (reader == std::end(kReaders)) throw nb::value_error(("torsor: no rows named " + name).c_str());
    PartReader one{m, part, *set};
    (one.*reader->second)(constraint);
  }
  set->needs_velocity = !set->twists.empty();
  for (const PairPart& pair : set->pairs) set->needs_velocity = set->needs_velocity || pair.needs_velocity;
  set->one_by_one = plan_rows(m, *set, 1);
  set->in_vectors = plan_rows(m, *set, kLanes);
}

// For the garbage collector: user-defined code may refer back to an object that contains it.
template <class F>
int for_each_object(PyObject* self, F&& f) {
  int result = 0;
  const auto visit = [&](UserCode* user_code) {
    if (auto* code = dynamic_cast<PythonCode*>(user_code); code != nullptr && result == 0) result = f(code->object);
  };
  auto& set = *nb::inst_ptr<ConstraintSet>(self);
  for (auto& motion : set.motions) visit(motion.second.get());
  for (auto& part : set.custom) visit(part.custom.get());
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

std::vector<std::string> row_names(const ConstraintSet* set) {
  std::vector<std::string> names = set->row_names;
  for (int r = static_cast<int>(names.size()); r < set->rows; ++r) names.push_back("row " + std::to_string(r));
  return names;
}
const ConstraintSet* constraint_set(nb::handle set) { return nb::cast<const ConstraintSet*>(set); }

void bind_constraint_set(nb::module_& module) {
  nb::class_<ConstraintSet>(module, "ConstraintSet", nb::type_slots(slots))
      .def("__init__", build_constraints)
      .def_ro("rows", &ConstraintSet::rows)
      .def_ro("size", &ConstraintSet::parameters)
      .def_rw("row_names", &ConstraintSet::row_names);
}

}  // namespace torsor
