// Trajectories of integrators that are tables of stages; the loop is in integrators/trajectory.hpp. Rows are those of a
// single state.
#pragma once
#include "integrators/stepper.hpp"
#include "integrators/trajectory.hpp"

namespace torsor {

class StageRollout {
 public:
  StageRollout(const Scene& scene, const IntegratorTable& table) : stepper(scene, table), m_(scene.m), table_(table) {}
  Stepper<double> stepper;
  Shortfall shortfall;
  double h() const { return table_.h; }
  const double* parameters = nullptr;
  void set_parameters(const double* p) { stepper.at.p = p; }
  const ForceSet* forces() const { return stepper.at.scene.forces; }

  void load(const Track& track, int64_t row, bool first) {
    Nodes<double>& nodes = stepper.at.nodes;
    load_node(track, row, 1);
    if (first && track.start + row > 0 && track.previous_q != nullptr) {
      std::copy_n(track.previous_q, m_.nq, nodes.q(0));
      std::copy_n(track.previous_v, m_.nv, nodes.v(0));
    } else if (row > 0) {
      load_node(track, row - 1, 0);
    }
    if (stepper.at.scene.balanced) {
      const bool known = !first && track.signals.count == 0;  // with the parameters of this step
      nodes.energies[0] = known ? nodes.energies[1] : std::nullopt;
      nodes.energies[1] = known ? reached_ : std::nullopt;
    }
    stepper.look_for_singularity(first);
  }
  Outcome advance(const Track& track, int64_t row, double t, bool last) {
    Nodes<double>& nodes = stepper.at.nodes;
    Arena& arena = stepper.at.arena;
    const StageControls<double> controls = controls_of(track, row);
    const bool later = track.start + row > 0, explicitly = !table_.is_implicit();
    if (!later && !explicitly) {
      stepper.read_control(controls, 0.0);
      if (!accelerate_node(stepper.at, 1, t, nodes.a(1)))
        std::fill_n(nodes.a(1), m_.nv, std::numeric_limits<double>::quiet_NaN());
      std::copy_n(nodes.a(1), m_.nv, track.a);
    }
    const int joint = stepper.undetermined_joint(t);
    arena.singular_joint = -1;
    const int parts = joint < 0 ? stepper.take(later, later, t, controls) : 0;
    if (parts == 0) {
      shortfall = stepper.shortfall;
      if (joint < 0 && !(explicitly && arena.singular_joint >= 0))
        return stepper.gained ? Outcome::gained : Outcome::failed;
      shortfall.error = joint >= 0 ? joint : arena.singular_joint;
      return Outcome::singular;
    }
    const int end = stepper.last_node();
    if (stepper.at.scene.balanced) reached_ = nodes.energies[end];
    track.divisions[row] = parts;
    std::copy_n(nodes.q(end), m_.nq, track.q + (row + 1) * m_.nq);
    std::copy_n(nodes.v(end), m_.nv, track.v + (row + 1) * m_.nv);
    if (!explicitly) {
      std::copy_n(nodes.a(end), m_.nv, track.a + (row + 1) * m_.nv);
      return Outcome::finished;
    }
    std::copy_n(nodes.a(1), m_.nv, track.a + row * m_.nv);
    if (last && accelerate_node(stepper.at, end, t + table_.h, nodes.a(end)))
      std::copy_n(nodes.a(end), m_.nv, track.a + (row + 1) * m_.nv);
    return Outcome::finished;
  }
  void load_node(const Track& track, int64_t row, int node) {
    Nodes<double>& nodes = stepper.at.nodes;
    std::copy_n(track.q + row * m_.nq, m_.nq, nodes.q(node));
    std::copy_n(track.v + row * m_.nv, m_.nv, nodes.v(node));
    std::copy_n(track.a + row * m_.nv, m_.nv, nodes.a(node));
  }
  StageControls<double> controls_of(const Track& track, int64_t row) const {
    return {track.controls(row, m_.nv), track.u_rows, table_.fractions};
  }

 private:
  const Model& m_;
  const IntegratorTable& table_;
  std::optional<Energies<double>> reached_;  // of the row before
};

}  // namespace torsor
