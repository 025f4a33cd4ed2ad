#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <numeric>
#include <optional>

#include "bind/bind.hpp"
#include "bind/steps.hpp"
#include "integrators/action.hpp"
#include "integrators/hard_step.hpp"

namespace torsor {
namespace {

// The data of an array of `size` numbers in C order, made by torsor/simulation/run.py; null for None.
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

// Arrays of all trajectories of a batch, and the indices of the selected ones.
struct Tracks {
  int64_t steps, start, count;
  bool blank;  // whether the rows after the first are not initialised
  const int64_t* index;
  double *q, *v, *a;
  const double* u;
  int u_rows;
  bool u_shared;
  int* divisions;
  const double *previous_q, *previous_v;  // of each selected trajectory, or null
  const double *feedback_q, *feedback_v;
  const double* signals;
  const int64_t* columns;
  int64_t signal_count;
  bool signals_shared;

  // `parameters`: number of parameters of the forces
  Tracks(const Model& m, int64_t parameters, nb::dict d)
      : steps(nb::cast<int64_t>(d["steps"])),
        start(nb::cast<int64_t>(d["start"])),
        count(nb::cast<int64_t>(d["count"])),
        blank(nb::cast<bool>(d["blank"])),
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
  // Sets the rows of a trajectory to NaN, but for the first state.
  void clear(const Model& m, int64_t i) const {
    const double unknown = std::numeric_limits<double>::quiet_NaN();
    const Track track = at(m, i);
    std::fill_n(track.q + m.nq, steps * m.nq, unknown);
    std::fill_n(track.v + m.nv, steps * m.nv, unknown);
    std::fill_n(track.a, (steps + 1) * m.nv, unknown);
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
            steps,
            {signals == nullptr ? nullptr : signals + (signals_shared ? 0 : b) * steps * signal_count, columns,
             signal_count},
            feedback_q == nullptr ? nullptr : feedback_q + b * steps * m.nv * m.nv,
            feedback_v == nullptr ? nullptr : feedback_v + b * steps * m.nv * m.nv};
  }
};

// The scenes of a batch: (models, their compiled sets of forces or None, the index of the model of each trajectory,
// parameters of the forces: a row per trajectory, or one for all; the compiled sets of constraints or None).
struct Scenes {
  std::vector<nb::object> models;
  std::vector<Scene> list;
  std::vector<int64_t> kinds;  // for each of them the first with a model of its structure
  const int64_t* of;
  int64_t parameters = 0, stride = 0;
  const double* p = nullptr;

  Scenes(nb::tuple t, int64_t count) {
    for (nb::handle model : nb::cast<nb::list>(t[0])) models.push_back(core_model(model));
    nb::list sets = nb::cast<nb::list>(t[1]), constraints = nb::cast<nb::list>(t[4]);
    if (models.empty() || sets.size() != models.size() || constraints.size() != models.size())
      throw std::invalid_argument("torsor: no models");
    for (std::size_t k = 0; k < models.size(); ++k) {
      list.push_back({*nb::inst_ptr<Model>(models[k]), sets[k].is_none() ? nullptr : force_set(sets[k]),
                      constraints[k].is_none() ? nullptr : constraint_set(constraints[k])});
      const Model &a = first(), &b = list[k].m, &c = tree(), &d = list[k].tree;
      const char* odd = a.nq != b.nq || a.nv != b.nv                   ? "coordinates"
                        : c.n() != d.n() || c.nframes() != d.nframes() ? "bodies"
                        : c.nplaces() != d.nplaces()                   ? "frames"
                        : count_of(0) != count_of(k)                   ? "parameters of the forces"
                        : coupling_numbers(0) != coupling_numbers(k)   ? "numbers of the couplings"
                                                                       : nullptr;
      if (odd != nullptr)
        throw std::invalid_argument("models of a batch differ: model[" + std::to_string(k) +
                                    "] and model[0] have not the"
                                    " same number of " +
                                    odd);
    }
    find_kinds();
    of = data<const int64_t>(t[2], count);
    for (int64_t i = 0; i < count; ++i)
      if (of[i] < 0 || of[i] >= static_cast<int64_t>(list.size())) throw std::invalid_argument("torsor: no such model");
    parameters = count_of(0);
    const bool shared = nb::len(nb::object(t[3])) == 1;
    stride = shared ? 0 : parameters;
    p = data<const double>(t[3], (shared ? 1 : count) * parameters);
  }
  const Model& first() const { return list[0].m; }
  const Model& tree() const { return list[0].tree; }
  int64_t coupling_numbers(std::size_t k) const { return list[k].coupled ? list[k].tree.coupling->numbers : 0; }
  const Scene& at(int64_t i) const { return list[of[i]]; }
  const double* parameters_of(int64_t i) const { return p + i * stride; }

 private:
  // In linear time: structures after the first few are taken for different from all others.
  void find_kinds() {
    constexpr std::size_t most = 16;
    std::vector<int64_t> found;
    for (const Scene& scene : list) {
      const auto k = static_cast<int64_t>(kinds.size());
      const auto kind = std::find_if(found.begin(), found.end(), [&](int64_t j) {
        return list[j].forces == scene.forces && list[j].constraints == scene.constraints &&
               same_structure(list[j].tree, scene.tree);
      });
      kinds.push_back(kind == found.end() ? k : *kind);
      if (kind == found.end() && found.size() < most) found.push_back(k);
    }
  }
  int64_t count_of(std::size_t k) const { return list[k].forces == nullptr ? 0 : list[k].forces->parameters; }

 public:
  int64_t constraint_parameters() const { return list[0].constraints == nullptr ? 0 : list[0].constraints->parameters; }
};

// Steps in lanes since the module was loaded, and those of them that were taken alone: for benchmarks and tests.
std::atomic<int64_t> lane_steps{0}, steps_alone{0};

// Trajectories that run side by side: as many as there are lanes, with models of one structure and from the same row;
// those with the same model together.
struct Groups {
  std::vector<int64_t> order;  // of the trajectories
  std::vector<int64_t> begin;  // of each group among them, and their end

  Groups(const Scenes& scenes, const int64_t* first, int64_t count) : order(count), begin{0} {
    std::iota(order.begin(), order.end(), int64_t(0));
    const auto key = [&](int64_t i) { return std::make_pair(scenes.kinds[scenes.of[i]], first[i]); };
    const auto less = [&](int64_t i, int64_t j) {
      return std::make_pair(key(i), scenes.of[i]) < std::make_pair(key(j), scenes.of[j]);
    };
    if (!std::is_sorted(order.begin(), order.end(), less)) std::stable_sort(order.begin(), order.end(), less);
    for (int64_t k = 1; k <= count; ++k)
      if (k == count || k - begin.back() == kLanes || key(order[k]) != key(order[k - 1])) begin.push_back(k);
  }
  int64_t size() const { return static_cast<int64_t>(begin.size()) - 1; }
};

// The rollout of one group after another: with one model, or with those of the lanes. It is made anew where scenes
// change.
class GroupRollout {
 public:
  GroupRollout(const Scenes& scenes, const Options& options) : scenes_(scenes), options_(options) {}
  Rollout& of(const int64_t* indices, int count) {
    const Model* models[kLanes];
    bool differ = false;
    for (int l = 0; l < kLanes; ++l) {
      models[l] = &scenes_.at(indices[std::min(l, count - 1)]).tree;
      differ = differ || models[l] != models[0];
    }
    const int64_t first = scenes_.of[indices[0]];
    const Scene& scene = scenes_.list[differ ? scenes_.kinds[first] : first];
    const bool made = made_ != nullptr && &made_->tree == &scene.tree && made_->forces == scene.forces &&
                      made_->constraints == scene.constraints && varied_ == differ;
    if (made && differ) models_->set(models);
    if (!made) make(scene, differ ? models : nullptr);
    return *rollout_;
  }

 private:
  // models: those of the lanes, or null.
  void make(const Scene& scene, const Model* const* models) {
    rollout_.reset();  // first: its memory is that of the thread, as on a stack
    made_ = &scene;
    varied_ = models != nullptr;
    if (varied_) {
      models_.emplace(models);
      own_.emplace(Scene{scene.tree, scene.forces, scene.constraints}).varied = &*models_;
    }
    const Scene& its = varied_ ? *own_ : scene;
    rollout_ = options_.table != nullptr  ? make_rollout(its, *options_.table)
               : options_.hard != nullptr ? make_rollout(its, *options_.hard)
                                          : make_rollout(its, *options_.variational);
  }

  const Scenes& scenes_;
  const Options& options_;
  std::optional<LaneModels> models_;
  std::optional<Scene> own_;  // with these models
  std::unique_ptr<Rollout> rollout_;
  const Scene* made_ = nullptr;  // for which it was made, with models of the lanes or not
  bool varied_ = false;
};

// Calls work(rollout, indices of the trajectories, their number) for all groups, each of `steps` steps at most, on as
// many threads as they pay for.
template <class F>
void for_each_group(const Scenes& scenes, const Groups& groups, int64_t steps, nb::handle integrator,
                    nb::handle threads_, F&& work) {
  if (groups.order.empty()) return;
  Options options;
  read_integrator(integrator, options);
  const int given = thread_count(threads_), most = given == 0 ? core_count() : std::min(given, core_count());
  nb::gil_scoped_release release;
  // Measured: an explicit step of a pack takes about 0.4 us and 0.1 us for each body, an implicit one four times that.
  const bool explicitly = options.table != nullptr && !options.table->is_implicit();
  const double step = (explicitly ? 1.0 : 4.0) * (4e-7 + 1e-7 * scenes.tree().n());
  const Scene& one = scenes.list[0];
  const bool calls_back = one.constraints != nullptr && one.constraints->runs_user_code();
  const int threads = calls_back || runs_user_code(scenes.tree(), one.forces)
                          ? 1
                          : paying_threads(most, step * static_cast<double>(steps * groups.size()));
  share_out(threads, groups.size(), 1, check_signals, [&](const auto& next) {
    GroupRollout rollout(scenes, options);
    int64_t group, end;
    while (next(group, end)) {
      const int64_t* indices = &groups.order[groups.begin[group]];
      const int count = static_cast<int>(groups.begin[group + 1] - groups.begin[group]);
      const LaneCounts counts = work(rollout.of(indices, count), indices, count);
      lane_steps += counts.steps;
      steps_alone += counts.alone;
    }
  });
}

// Runs the selected trajectories from rows first[i] to `last`. Writes how and where each ended to outcome[i] and
// row[i], and the error of Newton's method and its tolerance to error[i].
void simulate(nb::tuple scenes_, nb::handle integrator, double t0, nb::dict tracks_, nb::handle first_, int64_t last,
              const std::vector<std::tuple<int, int>>& limits_, nb::handle outcome_, nb::handle row_, nb::handle error_,
              nb::handle threads) {
  const Scenes scenes(scenes_, nb::cast<int64_t>(tracks_["count"]));
  const Model& m = scenes.first();
  const Tracks tracks(m, scenes.parameters, tracks_);
  const auto* first = data<const int64_t>(first_, tracks.count);
  auto* outcome = data<int>(outcome_, tracks.count);
  auto* row = data<int64_t>(row_, tracks.count);
  auto* error = data<double>(error_, 2 * tracks.count);
  std::vector<ChartLimit> limits;
  for (const auto& [iq, kind] : limits_) limits.push_back({iq, static_cast<ChartLimit::Kind>(kind)});
  for (int64_t i = 0; i < tracks.count; ++i)
    if (first[i] < 0 || last > tracks.steps) throw std::invalid_argument("torsor: no such step");
  constexpr int kWaiting = -1;
  std::fill_n(outcome, tracks.count, kWaiting);
  const auto work = [&](Rollout& rollout, const int64_t* indices, int count) {
    Job jobs[kLanes];
    for (int l = 0; l < count; ++l) {
      jobs[l].track = tracks.at(m, indices[l]);
      jobs[l].p = scenes.parameters_of(indices[l]);
      if (tracks.blank) tracks.clear(m, indices[l]);
      outcome[indices[l]] = static_cast<int>(Outcome::finished);
    }
    const LaneCounts counts = rollout.run(jobs, count, t0, first[indices[0]], last, limits);
    for (int l = 0; l < count; ++l) {
      const int64_t i = indices[l];
      outcome[i] = static_cast<int>(jobs[l].outcome);
      row[i] = jobs[l].row;
      error[2 * i] = jobs[l].shortfall.error;
      error[2 * i + 1] = jobs[l].shortfall.allowed;
    }
    return counts;
  };
  try {
    for_each_group(scenes, Groups(scenes, first, tracks.count), last - (tracks.count > 0 ? first[0] : last), integrator,
                   threads, work);
  } catch (...) {
    for (int64_t i = 0; tracks.blank && i < tracks.count; ++i)
      if (outcome[i] == kWaiting) tracks.clear(m, i);
    throw;
  }
}

// Arrays for the gradients of a batch.
struct Gradients {
  int nv, bodies;
  int64_t rows, controls, parameters, of_constraints, of_couplings, of_armature, steps_of_signals;
  double *q, *v, *u, *inertia, *placement, *gravity, *armature, *forces, *constraints, *couplings, *signals,
      *previous_q, *previous_v;

  Gradients(const Scenes& scenes, const Tracks& tracks, int64_t batch, nb::dict out)
      : nv(scenes.first().nv),
        bodies(scenes.tree().nframes()),
        rows((tracks.steps + 1) * nv),
        controls(tracks.steps * tracks.u_rows * nv),
        parameters(scenes.parameters),
        of_constraints(scenes.constraint_parameters()),
        of_couplings(scenes.coupling_numbers(0)),
        of_armature(scenes.tree().nv),
        steps_of_signals(tracks.steps * tracks.signal_count),
        q(data<double>(out["q"], batch * rows)),
        v(data<double>(out["v"], batch * rows)),
        u(data<double>(out["u"], batch * controls)),
        inertia(data<double>(out["inertia"], batch * 10 * bodies)),
        placement(data<double>(out["placement"], batch * 6 * bodies)),
        gravity(data<double>(out["gravity"], batch * 3)),
        armature(data<double>(out["armature"], batch * scenes.tree().nv)),
        forces(data<double>(out["forces"], batch * parameters)),
        constraints(data<double>(out["constraints"], batch * of_constraints)),
        couplings(data<double>(out["couplings"], batch * of_couplings)),
        signals(data<double>(out["signals"], batch * steps_of_signals)),
        previous_q(data<double>(out["previous_q"], tracks.count * nv)),
        previous_v(data<double>(out["previous_v"], tracks.count * nv)) {}
  // Those of the selected trajectory i, which has index b in the batch.
  Sensitivities at(int64_t i, int64_t b) const {
    const auto part = [](double* p, int64_t offset) { return p == nullptr ? nullptr : p + offset; };
    return {q + b * rows,
            v + b * rows,
            part(u, b * controls),
            part(inertia, b * 10 * bodies),
            part(placement, b * 6 * bodies),
            part(gravity, b * 3),
            part(armature, b * of_armature),
            part(forces, b * parameters),
            part(constraints, b * of_constraints),
            part(couplings, b * of_couplings),
            part(signals, b * steps_of_signals),
            part(previous_q, i * nv),
            part(previous_v, i * nv)};
  }
};

// Runs the adjoints of the selected trajectories from rows last[i] back to first[i]. Returns the first trajectory that
// failed and its step, or (-1, -1).
std::tuple<int64_t, int64_t> adjoint(nb::tuple scenes_, nb::handle integrator, double t0, nb::dict tracks_,
                                     nb::handle first_, nb::handle last_, nb::dict out_, nb::handle threads) {
  const Scenes scenes(scenes_, nb::cast<int64_t>(tracks_["count"]));
  const Model& m = scenes.first();
  const Tracks tracks(m, scenes.parameters, tracks_);
  const auto *first = data<const int64_t>(first_, tracks.count), *last = data<const int64_t>(last_, tracks.count);
  const Gradients gradients(scenes, tracks, nb::cast<int64_t>(tracks_["batch"]), out_);
  for (int64_t i = 0; i < tracks.count; ++i)
    if (first[i] < 0 || last[i] > tracks.steps || last[i] != last[0])
      throw std::invalid_argument("torsor: no such step, or trajectories that end at different rows");
  std::mutex mutex;
  std::tuple<int64_t, int64_t> failed{-1, -1};
  const auto work = [&](Rollout& rollout, const int64_t* indices, int count) {
    Job jobs[kLanes];
    for (int l = 0; l < count; ++l) {
      jobs[l].track = tracks.at(m, indices[l]);
      jobs[l].p = scenes.parameters_of(indices[l]);
      jobs[l].out = gradients.at(indices[l], tracks.index[indices[l]]);
    }
    const LaneCounts counts = rollout.run_back(jobs, count, t0, first[indices[0]], last[indices[0]]);
    for (int l = 0; l < count; ++l) {
      if (jobs[l].outcome == Outcome::finished) continue;
      const int64_t b = tracks.index[indices[l]];
      std::lock_guard<std::mutex> lock(mutex);
      if (std::get<0>(failed) < 0 || b < std::get<0>(failed)) failed = {b, jobs[l].row};
    }
    return counts;
  };
  for_each_group(scenes, Groups(scenes, first, tracks.count), tracks.count > 0 ? last[0] - first[0] : 0, integrator,
                 threads, work);
  return failed;
}

void newton_directions(nb::handle model, nb::handle forces, nb::handle p, nb::handle q, nb::handle v, nb::handle xi,
                       double c, nb::handle out) {
  const nb::object core = tree_model(model, "newton_directions");
  const Scene scene{*nb::inst_ptr<Model>(core), forces.is_none() ? nullptr : force_set(forces)};
  const Model& m = scene.m;
  newton_forms(scene, scene.forces == nullptr ? nullptr : data<const double>(p, scene.forces->parameters),
               data<const double>(q, m.nq), data<const double>(v, m.nv), data<const double>(xi, m.nv), c,
               data<double>(out, 3 * m.nv));
}
double variational_newton(nb::handle model, const VariationalScheme& scheme, const std::vector<double>& q0,
                          const std::vector<double>& xi, int repeats, bool dense) {
  const nb::object core = tree_model(model, "variational_newton");
  return variational_newton_time(*nb::inst_ptr<Model>(core), scheme, q0, xi, repeats, dense);
}

}  // namespace

void read_integrator(nb::handle integrator, Options& options) {
  if (nb::isinstance<IntegratorTable>(integrator))
    options.table = nb::cast<const IntegratorTable*>(integrator);
  else if (nb::isinstance<HardScheme>(integrator))
    options.hard = nb::cast<const HardScheme*>(integrator);
  else
    options.variational = nb::cast<const VariationalScheme*>(integrator);
}

void bind_simulation(nb::module_& module) {
  nb::enum_<StageKind>(module, "StageKind", nb::is_arithmetic())
      .value("implicit", StageKind::implicit)
      .value("explicit", StageKind::explicit_)
      .value("linearised", StageKind::linearised);
  nb::enum_<Outcome>(module, "Outcome", nb::is_arithmetic())
      .value("finished", Outcome::finished)
      .value("chart", Outcome::chart)
      .value("failed", Outcome::failed)
      .value("singular", Outcome::singular)
      .value("gained", Outcome::gained);
  nb::enum_<ChartLimit::Kind>(module, "ChartLimit", nb::is_arithmetic())
      .value("euler_cosine", ChartLimit::euler_cosine)
      .value("euler_sine", ChartLimit::euler_sine)
      .value("exponential", ChartLimit::exponential);
  using Row = std::tuple<double, double, double, std::vector<double>>;  // alpha, beta, fraction, z
  nb::class_<IntegratorTable>(module, "IntegratorTable")
      .def(
          "__init__",
          [](IntegratorTable* table, int kind, const std::vector<Row>& rows, const std::optional<Row>& multistep,
             std::vector<double> fractions, double h, double tolerance, int iterations, int substeps, double baumgarte,
             bool post) {
            const auto read = [](const Row& row) {
              return TableRow{std::get<0>(row), std::get<1>(row), std::get<2>(row), std::get<3>(row)};
            };
            IntegratorTable made{static_cast<StageKind>(kind),
                                 {},
                                 std::nullopt,
                                 std::move(fractions),
                                 h,
                                 tolerance,
                                 iterations,
                                 substeps,
                                 baumgarte,
                                 post,
                                 {},
                                 {}};
            for (const Row& row : rows) {
              if (std::get<3>(row).size() != made.rows.size())
                throw std::invalid_argument("torsor: a row of an integrator's table has the wrong length");
              made.rows.push_back(read(row));
            }
            if (multistep) made.multistep = read(*multistep);
            if (rows.empty() || made.fractions.empty() || (multistep && made.multistep->z.size() != 1))
              throw std::invalid_argument("torsor: an integrator's table is incomplete");
            made.first = list_stages(made, 1, false);
            made.later = list_stages(made, 1, true);
            made.impact = {{2, 1, {}, 1.0 / made.h, 1.0, 1.0, 0.0}};
            new (table) IntegratorTable(std::move(made));
          },
          nb::arg("kind"), nb::arg("rows"), nb::arg("multistep").none(), nb::arg("fractions"), nb::arg("h"),
          nb::arg("tolerance"), nb::arg("iterations"), nb::arg("substeps"), nb::arg("baumgarte") = 0.0,
          nb::arg("post") = false);
  nb::class_<VariationalScheme>(module, "VariationalScheme")
      .def(
          "__init__",
          [](VariationalScheme* scheme, double h, double tolerance, int iterations, std::vector<double> nodes,
             std::vector<double> c, std::vector<double> w, std::vector<double> phi, std::vector<double> b) {
            const int s = static_cast<int>(nodes.size()) - 1, m = static_cast<int>(c.size());
            if (s < 1 || m < 1 || w.size() != c.size() || phi.size() != c.size() * nodes.size() ||
                b.size() != phi.size())
              throw std::invalid_argument("torsor: a variational rule has arrays of the wrong length");
            new (scheme) VariationalScheme{{s, m, nodes, c, w, phi, b}, h, tolerance, iterations};
          },
          nb::arg("h"), nb::arg("tolerance"), nb::arg("iterations"), nb::arg("nodes"), nb::arg("c"), nb::arg("w"),
          nb::arg("phi"), nb::arg("b"));
  module.def("simulate", simulate, nb::arg("scenes"), nb::arg("integrator"), nb::arg("t0"), nb::arg("tracks"),
             nb::arg("first"), nb::arg("last"), nb::arg("limits"), nb::arg("outcome"), nb::arg("row"), nb::arg("error"),
             nb::arg("threads").none());
  module.def("adjoint", adjoint, nb::arg("scenes"), nb::arg("integrator"), nb::arg("t0"), nb::arg("tracks"),
             nb::arg("first"), nb::arg("last"), nb::arg("out"), nb::arg("threads").none());
  module.def("lane_counts", [] { return std::make_tuple(lane_steps.load(), steps_alone.load()); });
  module.def("newton_directions", newton_directions, nb::arg("model"), nb::arg("forces").none(), nb::arg("p").none(),
             nb::arg("q"), nb::arg("v"), nb::arg("xi"), nb::arg("c"), nb::arg("out"));
  module.def("variational_newton", variational_newton, nb::arg("model"), nb::arg("scheme"), nb::arg("q0"),
             nb::arg("xi"), nb::arg("repeats"), nb::arg("dense"));
}

}  // namespace torsor
