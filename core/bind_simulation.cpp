#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "adjoint.hpp"
#include "bind.hpp"
#include "variational_simulation.hpp"

namespace torsor {
namespace {

// The data of an array in C order of `size` numbers, as torsor/simulation.py makes them; null for None.
template <class T>
T* data(nb::handle object, int64_t size) {
  if (object.is_none()) return nullptr;
  constexpr int type = std::is_same_v<std::remove_const_t<T>, double>    ? NPY_DOUBLE
                       : std::is_same_v<std::remove_const_t<T>, int64_t> ? NPY_INT64
                                                                         : NPY_INT32;
  auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
  if (!PyArray_Check(object.ptr()) || PyArray_TYPE(array) != type || !PyArray_ISCARRAY_RO(array) ||
      PyArray_SIZE(array) != size || (!std::is_const_v<T> && !PyArray_ISWRITEABLE(array)))
    throw std::invalid_argument("torsor: an array of a simulation has the wrong type or size");
  return static_cast<T*>(PyArray_DATA(array));
}

Scheme read_scheme(nb::tuple t) {  // (method, h, tolerance, iterations, substeps)
  return {static_cast<Method>(nb::cast<int>(t[0])), nb::cast<double>(t[1]), nb::cast<double>(t[2]), nb::cast<int>(t[3]),
          nb::cast<int>(t[4])};
}

// Arrays of all trajectories of a batch, and those of them that are meant.
struct Tracks {
  int64_t steps, count;
  const int64_t* index;
  double *q, *v, *a;
  const double* u;
  int u_rows;
  bool u_shared;
  int* divisions;
  const double *previous_q, *previous_v;  // for each of those that are meant, or null

  Tracks(const Model& m, nb::dict d)
      : steps(nb::cast<int64_t>(d["steps"])),
        count(nb::cast<int64_t>(d["count"])),
        index(data<const int64_t>(d["index"], count)),
        u_rows(nb::cast<int>(d["u_rows"])),
        u_shared(nb::cast<bool>(d["u_shared"])) {
    const auto batch = nb::cast<int64_t>(d["batch"]);
    for (int64_t i = 0; i < count; ++i)
      if (index[i] < 0 || index[i] >= batch) throw std::invalid_argument("torsor: no such trajectory");
    q = data<double>(d["q"], batch * (steps + 1) * m.nq);
    v = data<double>(d["v"], batch * (steps + 1) * m.nv);
    a = data<double>(d["a"], batch * (steps + 1) * m.nv);
    u = data<const double>(d["u"], (u_shared ? 1 : batch) * steps * u_rows * m.nv);
    divisions = data<int>(d["divisions"], batch * steps);
    previous_q = data<const double>(d["previous_q"], count * m.nq);
    previous_v = data<const double>(d["previous_v"], count * m.nv);
  }
  Track at(const Model& m, int64_t i) const {
    const int64_t b = index[i];
    return {q + b * (steps + 1) * m.nq,
            v + b * (steps + 1) * m.nv,
            a + b * (steps + 1) * m.nv,
            u == nullptr ? nullptr : u + (u_shared ? 0 : b) * steps * u_rows * m.nv,
            u_rows,
            divisions + b * steps,
            previous_q == nullptr ? nullptr : previous_q + i * m.nq,
            previous_v == nullptr ? nullptr : previous_v + i * m.nv};
  }
};

// The forces of a scene: their set, or None, and their parameters.
struct Forces {
  const ForceSet* set;
  const double* p;
  explicit Forces(nb::tuple t)
      : set(t[0].is_none() ? nullptr : force_set(t[0])),
        p(set == nullptr ? nullptr : data<const double>(t[1], set->parameters)) {}
};

// Calls work(worker, i) for all i below count, over threads. W: worker, made from the scene for each thread.
template <class W, class Scene, class F>
void for_each_track(const Scene& scene, const double* p, int64_t count, int threads, F&& work) {
  nb::gil_scoped_release release;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto caller = std::this_thread::get_id();
  in_parallel(count == 1 ? 1 : threads, [&] {
    try {
      W worker(scene);
      worker.p = p;
      for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
        if (std::this_thread::get_id() == caller) check_signals();
        work(worker, i);
      }
    } catch (...) {
      next = count;
      std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

// Runs the trajectories that are meant from rows first[i] to `last`; says in outcome[i] and row[i] how and where each ended, and in
// error[i] what Newton's method had reached and should have.
void simulate(nb::handle model, nb::tuple forces_, nb::tuple scheme_, double t0, nb::dict tracks_, nb::handle first_,
              int64_t last, const std::vector<std::tuple<int, int>>& limits_, nb::handle outcome_, nb::handle row_,
              nb::handle error_, nb::handle threads) {
  const nb::object core = core_model(model);
  const Forces forces(forces_);
  const Scene scene{*nb::inst_ptr<Model>(core), forces.set};
  const Scheme scheme = read_scheme(scheme_);
  const Tracks tracks(scene.m, tracks_);
  const auto* first = data<const int64_t>(first_, tracks.count);
  auto* outcome = data<int>(outcome_, tracks.count);
  auto* row = data<int64_t>(row_, tracks.count);
  auto* error = data<double>(error_, 2 * tracks.count);
  std::vector<ChartLimit> limits;
  for (const auto& [iq, kind] : limits_) limits.push_back({iq, kind});
  for (int64_t i = 0; i < tracks.count; ++i)
    if (first[i] < 0 || last > tracks.steps) throw std::invalid_argument("torsor: no such step");
  for_each_track<Worker>(scene, forces.p, tracks.count, thread_count(threads), [&](Worker& worker, int64_t i) {
    const Progress end = run(worker, scheme, t0, first[i], last, tracks.at(scene.m, i), limits);
    outcome[i] = static_cast<int>(end.outcome);
    row[i] = end.row;
    error[2 * i] = worker.error;
    error[2 * i + 1] = worker.allowed;
  });
}

// Where the gradients of all trajectories go.
struct Gradient {
  int64_t rows, controls;
  int bodies;
  int64_t parameters;
  double *q, *v, *u, *inertia, *placement, *gravity, *forces, *previous_q, *previous_v;

  Gradient(const Model& m, const Forces& set, const Tracks& tracks, int64_t batch, nb::dict d)
      : rows((tracks.steps + 1) * m.nv),
        controls(tracks.steps * tracks.u_rows * m.nv),
        bodies(m.nframes()),
        parameters(set.set == nullptr ? 0 : set.set->parameters) {
    q = data<double>(d["q"], batch * rows);
    v = data<double>(d["v"], batch * rows);
    u = data<double>(d["u"], batch * controls);
    inertia = data<double>(d["inertia"], batch * 10 * bodies);
    placement = data<double>(d["placement"], batch * 6 * bodies);
    gravity = data<double>(d["gravity"], batch * 3);
    forces = data<double>(d["forces"], batch * parameters);
    previous_q = data<double>(d["previous_q"], tracks.count * m.nv);
    previous_v = data<double>(d["previous_v"], tracks.count * m.nv);
  }
  // Of trajectory b, the i-th of those that are meant.
  Sensitivities at(const Model& m, int64_t b, int64_t i) const {
    const auto part = [](double* p, int64_t offset) { return p == nullptr ? nullptr : p + offset; };
    return {q + b * rows,
            v + b * rows,
            part(u, b * controls),
            part(inertia, b * 10 * bodies),
            part(placement, b * 6 * bodies),
            part(gravity, b * 3),
            part(forces, b * parameters),
            part(previous_q, i * m.nv),
            part(previous_v, i * m.nv)};
  }
};

// Takes the trajectories that are meant back from rows last[i] to first[i]: back(worker, i, b, first, last, row) does so for one, or
// is false. Returns the first one that cannot be, and its step; or (-1, -1).
template <class W, class Scene, class F>
std::tuple<int64_t, int64_t> go_back(const Scene& scene, const double* p, const Tracks& tracks, nb::handle first_,
                                     nb::handle last_, nb::handle threads, F&& back) {
  const auto *first = data<const int64_t>(first_, tracks.count), *last = data<const int64_t>(last_, tracks.count);
  for (int64_t i = 0; i < tracks.count; ++i)
    if (first[i] < 0 || last[i] > tracks.steps) throw std::invalid_argument("torsor: no such step");
  std::mutex mutex;
  std::tuple<int64_t, int64_t> failed{-1, -1};
  for_each_track<W>(scene, p, tracks.count, thread_count(threads), [&](W& worker, int64_t i) {
    const int64_t b = tracks.index[i];
    int64_t row = 0;
    if (back(worker, i, b, first[i], last[i], row)) return;
    std::lock_guard<std::mutex> lock(mutex);
    if (std::get<0>(failed) < 0 || b < std::get<0>(failed)) failed = {b, row};
  });
  return failed;
}
std::tuple<int64_t, int64_t> adjoint(nb::handle model, nb::tuple forces_, nb::tuple scheme_, double t0,
                                     nb::dict tracks_, nb::handle first, nb::handle last, nb::dict out_,
                                     nb::handle threads) {
  const nb::object core = core_model(model);
  const Forces forces(forces_);
  const Scene scene{*nb::inst_ptr<Model>(core), forces.set};
  const Scheme scheme = read_scheme(scheme_);
  const Tracks tracks(scene.m, tracks_);
  const Gradient out(scene.m, forces, tracks, nb::cast<int64_t>(tracks_["batch"]), out_);
  return go_back<Worker>(scene, forces.p, tracks, first, last, threads,
                         [&](Worker& worker, int64_t i, int64_t b, int64_t from, int64_t to, int64_t& row) {
                           return reverse(worker, scheme, t0, from, to, tracks.at(scene.m, i), out.at(scene.m, b, i),
                                          row);
                         });
}

// The same two for variational steps; tracks have "p" too.
void simulate_variational(nb::handle model, nb::tuple forces_, nb::handle scheme_, double t0, nb::dict tracks_,
                          nb::handle first_, int64_t last, const std::vector<std::tuple<int, int>>& limits_,
                          nb::handle outcome_, nb::handle row_, nb::handle error_, nb::handle threads) {
  const nb::object core = core_model(model);
  const Forces forces(forces_);
  const VariationalScheme& scheme = *variational_scheme(scheme_);
  const VariationalScene scene{*nb::inst_ptr<Model>(core), forces.set, scheme.rule, scheme.h};
  const Tracks tracks(scene.m, tracks_);
  const int64_t rows = (tracks.steps + 1) * scene.m.nv;
  auto* momenta = data<double>(tracks_["p"], nb::cast<int64_t>(tracks_["batch"]) * rows);
  const auto* first = data<const int64_t>(first_, tracks.count);
  auto* outcome = data<int>(outcome_, tracks.count);
  auto* row = data<int64_t>(row_, tracks.count);
  auto* error = data<double>(error_, 2 * tracks.count);
  std::vector<ChartLimit> limits;
  for (const auto& [iq, kind] : limits_) limits.push_back({iq, kind});
  for (int64_t i = 0; i < tracks.count; ++i)
    if (first[i] < 0 || last > tracks.steps) throw std::invalid_argument("torsor: no such step");
  for_each_track<VariationalStep>(
      scene, forces.p, tracks.count, thread_count(threads), [&](VariationalStep& step, int64_t i) {
        const Progress end = run_variational(step, scheme, t0, first[i], last, tracks.at(scene.m, i),
                                             momenta + tracks.index[i] * rows, limits);
        outcome[i] = static_cast<int>(end.outcome);
        row[i] = end.row;
        error[2 * i] = step.error;
        error[2 * i + 1] = step.allowed;
      });
}
std::tuple<int64_t, int64_t> adjoint_variational(nb::handle model, nb::tuple forces_, nb::handle scheme_, double t0,
                                                 nb::dict tracks_, nb::handle first, nb::handle last, nb::dict out_,
                                                 nb::handle threads) {
  const nb::object core = core_model(model);
  const Forces forces(forces_);
  const VariationalScheme& scheme = *variational_scheme(scheme_);
  const VariationalScene scene{*nb::inst_ptr<Model>(core), forces.set, scheme.rule, scheme.h};
  const Tracks tracks(scene.m, tracks_);
  const auto batch = nb::cast<int64_t>(tracks_["batch"]);
  const int64_t rows = (tracks.steps + 1) * scene.m.nv;
  const auto* momenta = data<const double>(tracks_["p"], batch * rows);
  const auto* on_momenta = data<const double>(out_["p"], batch * rows);
  const auto by_momentum = nb::cast<bool>(out_["by_momentum"]);
  const Gradient out(scene.m, forces, tracks, batch, out_);
  return go_back<VariationalStep>(
      scene, forces.p, tracks, first, last, threads,
      [&](VariationalStep& step, int64_t i, int64_t b, int64_t from, int64_t to, int64_t& row) {
        return VariationalReverse(step, scheme)
            .run(t0, from, to, tracks.at(scene.m, i), momenta + b * rows,
                 on_momenta == nullptr ? nullptr : on_momenta + b * rows, by_momentum && from == 0,
                 out.at(scene.m, b, i), row);
      });
}

// One step and its derivatives; with the state before, if given, for BDF2.
struct StepDerivatives {
  static constexpr int inputs = 8, outputs = 12;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"u", 1, {m.nv}, true};
    in[3] = {"t", 0, {}};
    in[4] = {"scheme", 1, {5}};
    in[5] = {"parameters", 1, {options.forces == nullptr ? 0 : options.forces->parameters}, true};
    in[6] = {"previous q", 1, {m.nq}, true};
    in[7] = {"previous v", 1, {m.nv}, true};
    out[0] = {"q1", 1, {m.nq}};
    out[1] = {"v1", 1, {m.nv}};
    for (int k = 2; k < outputs; ++k) out[k] = {"derivative", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const int nv = m.nv;
    const Scene scene{m, options.forces};
    const Scheme scheme{static_cast<Method>(static_cast<int>(in[4][0])), in[4][1], in[4][2], static_cast<int>(in[4][3]),
                        static_cast<int>(in[4][4])};
    const bool previous = in[6] != nullptr;
    Worker w(scene);
    w.p = in[5];
    plus(m, in[0], w.zero.data(), w.nodes.q(1));  // quaternions of unit length
    std::copy_n(in[1], nv, w.nodes.v(1));
    if (previous) {
      plus(m, in[6], w.zero.data(), w.nodes.q(0));
      std::copy_n(in[7], nv, w.nodes.v(0));
    }
    const Controls controls{in[2], 1};
    const int columns = (previous ? 5 : 3) * nv;
    std::vector<double> dq(std::size_t(nv) * columns), dv(std::size_t(nv) * columns);
    if (take_step(w, scheme, 0, previous, false, *in[3], controls) == 0 ||
        !step_derivatives(w, scheme, *in[3], controls, previous, dq.data(), dv.data()))
      throw std::range_error("the step could not be taken");
    const int end = w.stages.back().to;
    std::copy_n(w.nodes.q(end), m.nq, out[0]);
    std::copy_n(w.nodes.v(end), nv, out[1]);
    for (int block = 0; block < columns / nv; ++block)
      for (int r = 0; r < nv; ++r) {
        // dq1 and dv1 by q, v, u, then both by the state before
        const int at = block < 3 ? 2 + block : 5 + block, other = block < 3 ? 5 + block : 7 + block;
        std::copy_n(&dq[r * columns + block * nv], nv, out[at] + r * nv);
        std::copy_n(&dv[r * columns + block * nv], nv, out[other] + r * nv);
      }
  }
};

}  // namespace

void bind_simulation(nb::module_& module) {
  module.def("simulate", simulate, nb::arg("model"), nb::arg("forces"), nb::arg("scheme"), nb::arg("t0"),
             nb::arg("tracks"), nb::arg("first"), nb::arg("last"), nb::arg("limits"), nb::arg("outcome"),
             nb::arg("row"), nb::arg("error"), nb::arg("threads"));
  module.def("adjoint", adjoint, nb::arg("model"), nb::arg("forces"), nb::arg("scheme"), nb::arg("t0"),
             nb::arg("tracks"), nb::arg("first"), nb::arg("last"), nb::arg("out"), nb::arg("threads"));
  module.def("simulate_variational", simulate_variational, nb::arg("model"), nb::arg("forces"), nb::arg("scheme"),
             nb::arg("t0"), nb::arg("tracks"), nb::arg("first"), nb::arg("last"), nb::arg("limits"), nb::arg("outcome"),
             nb::arg("row"), nb::arg("error"), nb::arg("threads"));
  module.def("adjoint_variational", adjoint_variational, nb::arg("model"), nb::arg("forces"), nb::arg("scheme"),
             nb::arg("t0"), nb::arg("tracks"), nb::arg("first"), nb::arg("last"), nb::arg("out"), nb::arg("threads"));
  def_kernel<StepDerivatives>(module, "step_derivatives");
}

}  // namespace torsor
