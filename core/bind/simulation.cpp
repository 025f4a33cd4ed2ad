#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind/bind.hpp"
#include "integrators/adjoint.hpp"
#include "integrators/variational_simulation.hpp"

namespace torsor {
namespace {

// The data of an array in C order of `size` numbers, as torsor/simulation/run.py makes them; null for None.
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
  int64_t steps, start, count;
  const int64_t* index;
  double *q, *v, *a;
  const double* u;
  int u_rows;
  bool u_shared;
  int* divisions;
  const double *previous_q, *previous_v;  // for each of those that are meant, or null
  const double *feedback_q, *feedback_v;
  const double* signals;
  const int64_t* columns;
  int64_t signal_count;
  bool signals_shared;

  // `parameters`: how many the forces have
  Tracks(const Model& m, int64_t parameters, nb::dict d)
      : steps(nb::cast<int64_t>(d["steps"])),
        start(nb::cast<int64_t>(d["start"])),
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
    feedback_q = data<const double>(d["feedback_q"], batch * steps * m.nv * m.nv);
    feedback_v = data<const double>(d["feedback_v"], batch * steps * m.nv * m.nv);
    const nb::object rows = d["signals"], of = d["signal_columns"];
    signal_count = rows.is_none() ? 0 : static_cast<int64_t>(nb::len(of));
    signals_shared = !rows.is_none() && nb::len(rows) == 1;
    signals = data<const double>(rows, (signals_shared ? 1 : batch) * steps * signal_count);
    columns = data<const int64_t>(of, signal_count);
    for (int64_t k = 0; k < signal_count; ++k)
      if (columns[k] < 0 || columns[k] >= parameters) throw std::invalid_argument("torsor: no such parameter");
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
            previous_v == nullptr ? nullptr : previous_v + i * m.nv,
            start,
            {signals == nullptr ? nullptr : signals + (signals_shared ? 0 : b) * steps * signal_count, columns,
             signal_count},
            feedback_q == nullptr ? nullptr : feedback_q + b * steps * m.nv * m.nv,
            feedback_v == nullptr ? nullptr : feedback_v + b * steps * m.nv * m.nv};
  }
};

// What trajectories move in: (models, the set of forces compiled for each or None, which of these is each one's, parameters of the
// forces: a row for each, or one for all).
struct Scenes {
  std::vector<nb::object> models;
  std::vector<Scene> list;
  const int64_t* of;
  int64_t parameters = 0, stride = 0;
  const double* p = nullptr;

  Scenes(nb::tuple t, int64_t count) {
    for (nb::handle model : nb::cast<nb::list>(t[0])) models.push_back(core_model(model));
    nb::list sets = nb::cast<nb::list>(t[1]);
    if (models.empty() || sets.size() != models.size()) throw std::invalid_argument("torsor: no models");
    for (std::size_t k = 0; k < models.size(); ++k) {
      list.push_back({*nb::inst_ptr<Model>(models[k]), sets[k].is_none() ? nullptr : force_set(sets[k])});
      const Model &a = first(), &b = list[k].m;
      if (a.nq != b.nq || a.nv != b.nv || a.n() != b.n() || a.nframes() != b.nframes() ||
          parameters_of(0) != parameters_of(k))
        throw std::invalid_argument("torsor: models of a batch differ");
    }
    of = data<const int64_t>(t[2], count);
    for (int64_t i = 0; i < count; ++i)
      if (of[i] < 0 || of[i] >= static_cast<int64_t>(list.size())) throw std::invalid_argument("torsor: no such model");
    parameters = parameters_of(0);
    const bool shared = nb::len(nb::object(t[3])) == 1;
    stride = shared ? 0 : parameters;
    p = data<const double>(t[3], (shared ? 1 : count) * parameters);
  }
  const Model& first() const { return list[0].m; }

 private:
  int64_t parameters_of(std::size_t k) const { return list[k].forces == nullptr ? 0 : list[k].forces->parameters; }
};

// Calls work(worker, i) for all i below count, over threads; make(std::optional<W>&, scene) makes the worker of a scene.
template <class W, class Make, class F>
void for_each_track(const Scenes& scenes, int64_t count, int threads, Make&& make, F&& work) {
  nb::gil_scoped_release release;
  share_out(threads, count, 1, check_signals, [&](const auto& next) {
    std::optional<W> worker;
    const Scene* made = nullptr;
    int64_t i, end;
    while (next(i, end)) {
      const Scene& scene = scenes.list[scenes.of[i]];
      if (made != &scene) make(worker, scene);
      made = &scene;
      worker->p = scenes.p + i * scenes.stride;
      work(*worker, i);
    }
  });
}

// Runs the trajectories that are meant from rows first[i] to `last` by go(worker, i, first, track, limits); says in outcome[i] and
// row[i] how and where each ended, and in error[i] what Newton's method had reached and should have.
template <class W, class Make, class F>
void run_all(nb::tuple scenes_, nb::dict tracks_, nb::handle first_, int64_t last,
             const std::vector<std::tuple<int, int>>& limits_, nb::handle outcome_, nb::handle row_, nb::handle error_,
             nb::handle threads, Make&& make, F&& go) {
  const Scenes scenes(scenes_, nb::cast<int64_t>(tracks_["count"]));
  const Model& m = scenes.first();
  const Tracks tracks(m, scenes.parameters, tracks_);
  const auto* first = data<const int64_t>(first_, tracks.count);
  auto* outcome = data<int>(outcome_, tracks.count);
  auto* row = data<int64_t>(row_, tracks.count);
  auto* error = data<double>(error_, 2 * tracks.count);
  std::vector<ChartLimit> limits;
  for (const auto& [iq, kind] : limits_) limits.push_back({iq, kind});
  for (int64_t i = 0; i < tracks.count; ++i)
    if (first[i] < 0 || last > tracks.steps) throw std::invalid_argument("torsor: no such step");
  for_each_track<W>(scenes, tracks.count, thread_count(threads), make, [&](W& worker, int64_t i) {
    const Progress end = go(worker, first[i], tracks.at(m, i), limits);
    outcome[i] = static_cast<int>(end.outcome);
    row[i] = end.row;
    error[2 * i] = worker.shortfall.error;
    error[2 * i + 1] = worker.shortfall.allowed;
  });
}
// Takes the trajectories that are meant back from rows last[i] to first[i] by back(worker, first, last, track, out, row). Returns
// the first one that cannot be, and its step; or (-1, -1).
template <class W, class Make, class F>
std::tuple<int64_t, int64_t> reverse_all(nb::tuple scenes_, nb::dict tracks_, nb::handle first_, nb::handle last_,
                                         nb::dict out_, nb::handle threads, Make&& make, F&& back) {
  const Scenes scenes(scenes_, nb::cast<int64_t>(tracks_["count"]));
  const Model& m = scenes.first();
  const Tracks tracks(m, scenes.parameters, tracks_);
  const auto batch = nb::cast<int64_t>(tracks_["batch"]);
  const auto *first = data<const int64_t>(first_, tracks.count), *last = data<const int64_t>(last_, tracks.count);
  const int bodies = m.nframes();
  const int64_t rows = (tracks.steps + 1) * m.nv, controls = tracks.steps * tracks.u_rows * m.nv;
  auto *q = data<double>(out_["q"], batch * rows), *v = data<double>(out_["v"], batch * rows);
  auto* u = data<double>(out_["u"], batch * controls);
  auto *inertia = data<double>(out_["inertia"], batch * 10 * bodies),
       *placement = data<double>(out_["placement"], batch * 6 * bodies),
       *gravity = data<double>(out_["gravity"], batch * 3);
  const int64_t parameters = scenes.parameters;
  auto* force_gradient = data<double>(out_["forces"], batch * parameters);
  const int64_t signals = tracks.steps * tracks.signal_count;
  auto* signal_gradient = data<double>(out_["signals"], batch * signals);
  auto *previous_q = data<double>(out_["previous_q"], tracks.count * m.nv),
       *previous_v = data<double>(out_["previous_v"], tracks.count * m.nv);
  for (int64_t i = 0; i < tracks.count; ++i)
    if (first[i] < 0 || last[i] > tracks.steps) throw std::invalid_argument("torsor: no such step");
  std::mutex mutex;
  std::tuple<int64_t, int64_t> failed{-1, -1};
  for_each_track<W>(scenes, tracks.count, thread_count(threads), make, [&](W& worker, int64_t i) {
    const int64_t b = tracks.index[i];
    const auto part = [](double* p, int64_t offset) { return p == nullptr ? nullptr : p + offset; };
    const Sensitivities out{q + b * rows,
                            v + b * rows,
                            part(u, b * controls),
                            part(inertia, b * 10 * bodies),
                            part(placement, b * 6 * bodies),
                            part(gravity, b * 3),
                            part(force_gradient, b * parameters),
                            part(signal_gradient, b * signals),
                            part(previous_q, i * m.nv),
                            part(previous_v, i * m.nv)};
    int64_t row = 0;
    if (back(worker, first[i], last[i], tracks.at(m, i), out, row)) return;
    std::lock_guard<std::mutex> lock(mutex);
    if (std::get<0>(failed) < 0 || b < std::get<0>(failed)) failed = {b, row};
  });
  return failed;
}

const auto make_worker = [](std::optional<Worker>& worker, const Scene& scene) { worker.emplace(scene); };
void simulate(nb::tuple scenes, nb::tuple scheme_, double t0, nb::dict tracks, nb::handle first, int64_t last,
              const std::vector<std::tuple<int, int>>& limits, nb::handle outcome, nb::handle row, nb::handle error,
              nb::handle threads) {
  const Scheme scheme = read_scheme(scheme_);
  run_all<Worker>(scenes, tracks, first, last, limits, outcome, row, error, threads, make_worker,
                  [&](Worker& worker, int64_t from, const Track& track, const std::vector<ChartLimit>& charts) {
                    return run(worker, scheme, t0, from, last, track, charts);
                  });
}
std::tuple<int64_t, int64_t> adjoint(nb::tuple scenes, nb::tuple scheme_, double t0, nb::dict tracks, nb::handle first,
                                     nb::handle last, nb::dict out, nb::handle threads) {
  const Scheme scheme = read_scheme(scheme_);
  return reverse_all<Worker>(
      scenes, tracks, first, last, out, threads, make_worker,
      [&](Worker& worker, int64_t from, int64_t to, const Track& track, const Sensitivities& gradient, int64_t& row) {
        return reverse(worker, scheme, t0, from, to, track, gradient, row);
      });
}

// The same two for variational steps.
auto make_step(const VariationalScheme& scheme) {
  return [&](std::optional<VariationalStep>& step, const Scene& scene) { step.emplace(scene.m, scene.forces, scheme); };
}
void simulate_variational(nb::tuple scenes, nb::handle scheme_, double t0, nb::dict tracks, nb::handle first,
                          int64_t last, const std::vector<std::tuple<int, int>>& limits, nb::handle outcome,
                          nb::handle row, nb::handle error, nb::handle threads) {
  const VariationalScheme& scheme = *variational_scheme(scheme_);
  run_all<VariationalStep>(
      scenes, tracks, first, last, limits, outcome, row, error, threads, make_step(scheme),
      [&](VariationalStep& step, int64_t from, const Track& track, const std::vector<ChartLimit>& charts) {
        return run_variational(step, t0, from, last, track, charts);
      });
}
std::tuple<int64_t, int64_t> adjoint_variational(nb::tuple scenes, nb::handle scheme_, double t0, nb::dict tracks,
                                                 nb::handle first, nb::handle last, nb::dict out, nb::handle threads) {
  const VariationalScheme& scheme = *variational_scheme(scheme_);
  return reverse_all<VariationalStep>(
      scenes, tracks, first, last, out, threads, make_step(scheme),
      [&](VariationalStep& step, int64_t from, int64_t to, const Track& track, const Sensitivities& gradient,
          int64_t& row) { return VariationalReverse(step).run(t0, from, to, track, gradient, row); });
}

// What a kernel of one step is called with; the state before, if given, is for BDF2.
constexpr int kStepInputs = 8;
void step_slots(const Model& m, const Options& options, Slot* in, Slot* out) {
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
}
Scheme step_scheme(const double* x) {
  return {static_cast<Method>(static_cast<int>(x[0])), x[1], x[2], static_cast<int>(x[3]), static_cast<int>(x[4])};
}
// Takes the step; writes q1 and v1.
void take_step(Worker& w, const Scheme& scheme, const double* const* in, double* const* out) {
  const Model& m = w.scene.m;
  const bool previous = in[6] != nullptr;
  w.p = in[5];
  plus(m, in[0], w.zero, w.nodes.q(1));  // quaternions of unit length
  std::copy_n(in[1], m.nv, w.nodes.v(1));
  if (previous) {
    plus(m, in[6], w.zero, w.nodes.q(0));
    std::copy_n(in[7], m.nv, w.nodes.v(0));
  }
  if (undetermined_joint(w, scheme, *in[3]) >= 0 || take_step(w, scheme, previous, false, *in[3], {in[2], 1}) == 0)
    throw StepFailed();
  const int end = w.stages.back().to;
  std::copy_n(w.nodes.q(end), m.nq, out[0]);
  std::copy_n(w.nodes.v(end), m.nv, out[1]);
}

// One step.
struct Step {
  static constexpr int inputs = kStepInputs, outputs = 2;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) { step_slots(m, options, in, out); }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const Scene scene{m, options.forces};
    Worker w(scene);
    take_step(w, step_scheme(in[4]), in, out);
  }
};

// One step and its derivatives.
struct StepDerivatives {
  static constexpr int inputs = kStepInputs, outputs = 12;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    step_slots(m, options, in, out);
    for (int k = 2; k < outputs; ++k) out[k] = {"derivative", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const int nv = m.nv;
    const Scene scene{m, options.forces};
    const Scheme scheme = step_scheme(in[4]);
    const bool previous = in[6] != nullptr;
    Worker w(scene);
    take_step(w, scheme, in, out);
    Tangents tangents;
    int columns = 0;
    if (!step_derivatives(w, scheme, *in[3], {in[2], 1}, previous, tangents, columns)) throw StepFailed();
    for (int block = 0; block < (previous ? 5 : 3); ++block) {
      // dq1 and dv1 by q, v, u, then both by the state before
      const int at = block < 3 ? 2 + block : 5 + block, other = block < 3 ? 5 + block : 7 + block;
      for (int r = 0; r < nv; ++r) {
        std::copy_n(tangents.q + r * columns + block * nv, nv, out[at] + r * nv);
        std::copy_n(tangents.v + r * columns + block * nv, nv, out[other] + r * nv);
      }
    }
  }
};

// For tests: what Newton's method solves, H x = -r, at the end of an implicit Euler step from (q, v) along xi with c = 1 / h, by
// each of its three forms: rows of `out` over the tree, along paths, dense; not a number where there is no such form.
void newton_directions(nb::handle model, nb::handle forces, nb::handle p, nb::handle q, nb::handle v, nb::handle xi,
                       double c, nb::handle out_) {
  const nb::object core = core_model(model);
  const Scene scene{*nb::inst_ptr<Model>(core), forces.is_none() ? nullptr : force_set(forces)};
  const Model& m = scene.m;
  auto* out = data<double>(out_, 3 * m.nv);
  std::fill_n(out, 3 * m.nv, std::numeric_limits<double>::quiet_NaN());
  Worker w(scene);
  if (scene.forces != nullptr) w.p = data<const double>(p, scene.forces->parameters);
  std::copy_n(data<const double>(q, m.nq), m.nq, w.nodes.q(1));
  std::copy_n(data<const double>(v, m.nv), m.nv, w.nodes.v(1));
  std::copy_n(data<const double>(xi, m.nv), m.nv, w.xi);
  const Stage stage{true, 2, 1, -1, c, 0.0, 1.0, 0.0, 1.0, 0.0};
  place_node(w, stage);
  const Evaluation e = evaluate_residual(w, w.nodes.q(2), w.nodes.v(2), w.nodes.a(2), 0.0, w.u, w.r);
  const auto put = [&](int row) {
    for (int k = 0; k < m.nv; ++k) out[row * m.nv + k] = -w.r[k];
    w.H.solve(out + row * m.nv);
  };
  stage_terms(w, stage, false);
  add_rates(m, e);
  if (factor_over_tree(w, stage, e)) put(0);
  add_to_parents(m, e);
  if (factor_along_paths(w, stage, e)) put(1);
  linearise(w, e);
  add_scaled(m.nv * m.nv, c, w.M, w.Av);
  std::copy_n(w.Aq, m.nv * m.nv, w.dense);
  add_product(m, scene.quaternions, w.Av, w.V1, w.dense);
  if (w.H.factor_dense(w.dense)) put(2);
}

}  // namespace

void bind_simulation(nb::module_& module) {
  module.def("simulate", simulate, nb::arg("scenes"), nb::arg("scheme"), nb::arg("t0"), nb::arg("tracks"),
             nb::arg("first"), nb::arg("last"), nb::arg("limits"), nb::arg("outcome"), nb::arg("row"), nb::arg("error"),
             nb::arg("threads").none());
  module.def("adjoint", adjoint, nb::arg("scenes"), nb::arg("scheme"), nb::arg("t0"), nb::arg("tracks"),
             nb::arg("first"), nb::arg("last"), nb::arg("out"), nb::arg("threads").none());
  module.def("simulate_variational", simulate_variational, nb::arg("scenes"), nb::arg("scheme"), nb::arg("t0"),
             nb::arg("tracks"), nb::arg("first"), nb::arg("last"), nb::arg("limits"), nb::arg("outcome"),
             nb::arg("row"), nb::arg("error"), nb::arg("threads").none());
  module.def("adjoint_variational", adjoint_variational, nb::arg("scenes"), nb::arg("scheme"), nb::arg("t0"),
             nb::arg("tracks"), nb::arg("first"), nb::arg("last"), nb::arg("out"), nb::arg("threads").none());
  module.def("newton_directions", newton_directions, nb::arg("model"), nb::arg("forces").none(), nb::arg("p").none(),
             nb::arg("q"), nb::arg("v"), nb::arg("xi"), nb::arg("c"), nb::arg("out"));
  def_kernel<Step>(module, "step");
  def_kernel<StepDerivatives>(module, "step_derivatives");
}

}  // namespace torsor
