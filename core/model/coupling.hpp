// Hyper-reduced coordinates: q = phi(z). Sueda 2021, 2.7; docs/derivations/hyper_reduced.md.
//
// A model with a coupling keeps the bodies, coordinates and velocities of its tree; states are given in reduced
// coordinates, whose numbers and manifold are those of `coordinates`. Joints that no coupling names pass through: their
// coordinates and velocities are copied. Every other velocity of the tree belongs to a vector joint and has a row:
//   linear       q = offset + sum over columns of value z
//   nonlinear    q = offset + scale f(s), an output f of a block, whose inputs s = B z + c are linear in z
// so that v = P v_R, P = phi', with one for joints that pass. Blocks are polynomials of one input, or user-defined.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "model/general_joint.hpp"

namespace torsor {

// A user-defined function of m inputs with k outputs. Row l of `out` holds its values (k) and derivatives (k x m, k x m
// x m and, at level 3, k x m x m x m), row-major.
struct CustomMap {
  virtual ~CustomMap() = default;
  virtual void evaluate(const double* s, int lanes, int level, double* out) const = 0;
  virtual void evaluate(const Complex* s, int lanes, int level, Complex* out) const = 0;
  // The derivatives of all these with respect to one of its parameters.
  virtual void vary(const double* s, int lanes, int level, int parameter, double* out) const = 0;
  virtual bool equals(const CustomMap& other) const = 0;
};

struct Coupling {
  struct Run {  // consecutive numbers of joints that pass: to[i] = from[j]
    int tree, reduced, count;
  };
  struct Term {
    int column;  // of the reduced velocities
    double value;
  };
  struct Row {
    int iq, iv;  // of the tree
    int joint;   // the user's
    int block;   // or -1: a linear row
    int output;  // of the block
    double scale, offset;
    std::vector<Term> terms;  // of a linear row
  };
  struct Linear {             // consecutive linear rows with the same columns, or with one column each
    std::vector<int> iq, iv;  // by row
    std::vector<double> offset;
    std::vector<int> columns, positions;  // of reduced velocities, and of coordinates
    std::vector<double> values;           // rows x columns, or by row
    int rows() const { return static_cast<int>(iv.size()); }
    bool diagonal = false;  // whether each row has its own column
  };
  struct Block {
    int inputs, outputs;
    std::vector<double> constants;     // c, by input
    std::vector<int> columns;          // of z that it reads
    std::vector<double> B;             // inputs x columns
    std::vector<double> coefficients;  // of a polynomial, lowest power first
    std::shared_ptr<CustomMap> custom;
    int parameters = 0;     // of a user-defined one
    std::vector<int> rows;  // that read it
    int begin = 0;          // of its terms
    // Numbers of terms: values, then derivatives to the third order, to the fourth for a polynomial.
    int size() const { return custom ? outputs * (1 + inputs * (1 + inputs * (1 + inputs))) : 5; }
    int at(int order) const {
      int start = 0;
      for (int k = 0, n = outputs; k < order; ++k, n *= inputs) start += n;
      return begin + start;
    }
  };

  // How forward dynamics is solved: with the dense reduced mass matrix, projected from that of the tree or made column
  // by column; or by the tree's O(n) solver with a multiplier for each follower.
  enum class Solver { dense, columns, multipliers };

  Model coordinates;          // the manifold of the reduced coordinates: only what states are, not the tree
  std::vector<int> position;  // of a reduced velocity among the reduced coordinates, or -1 if its joint is a rotation
  std::vector<Run> runs_q, runs_v;
  std::vector<Row> rows;
  std::vector<Linear> linear;  // all linear rows
  std::vector<Block> blocks;
  int terms = 0;  // numbers of terms of all blocks
  // P by rows of the tree's velocities: columns from start[i] to start[i + 1] - 1.
  std::vector<int> start, column;
  std::vector<double> constant;  // the values of P where they do not depend on z
  std::vector<int> coupled;      // velocities of the tree that have rows
  std::vector<int> bent;         // those of them that have nonlinear ones
  std::vector<int> added;        // reduced velocities of no joint
  std::vector<int> joint_of;     // the user's joint of each reduced velocity; from nframes on new coordinates
  std::vector<int> tree_of;      // the velocity of the tree that each reduced one is, or -1
  Solver solver = Solver::dense;
  int numbers = 0;  // of rows and blocks, in the order of `number_gradient`

  // The reduced velocity that one of the tree is, or -1.
  int reduced_of(int velocity) const {
    const auto found = std::find(tree_of.begin(), tree_of.end(), velocity);
    return found == tree_of.end() ? -1 : static_cast<int>(found - tree_of.begin());
  }
  int nq() const { return coordinates.nq; }
  int nv() const { return coordinates.nv; }
  bool is_linear() const { return blocks.empty(); }
  // Whether both are the same functions; user-defined ones, if their objects are equal.
  bool equals(const Coupling& o) const {
    const auto all = [](const auto& x, const auto& y, auto&& same) {
      return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
    };
    return nq() == o.nq() && nv() == o.nv() && start == o.start && column == o.column && constant == o.constant &&
           all(rows, o.rows,
               [](const Row& x, const Row& y) {
                 return x.iq == y.iq && x.block == y.block && x.output == y.output && x.scale == y.scale &&
                        x.offset == y.offset;
               }) &&
           all(blocks, o.blocks, [](const Block& x, const Block& y) {
             return x.constants == y.constants && x.columns == y.columns && x.B == y.B &&
                    x.coefficients == y.coefficients &&
                    (x.custom == y.custom || (x.custom && y.custom && x.custom->equals(*y.custom)));
           });
  }
  bool runs_user_code() const {
    for (const Block& block : blocks)
      if (block.custom) return true;
    return false;
  }
};

// The manifold on which states of a model move.
inline const Model& manifold(const Model& m) { return m.coupling ? m.coupling->coordinates : m; }

// Values and derivatives of all blocks at a state, in their order.
template <class S>
struct BlockTerms {
  const Coupling& coupling;
  S* data;
  const S* of(const Coupling::Block& block, int order) const { return data + block.at(order); }
};

// Inputs of a block from reduced coordinates: s = B z + c.
template <class S>
void block_inputs(const Coupling& c, const Coupling::Block& block, const S* z, S* s) {
  const int n = static_cast<int>(block.columns.size());
  for (int j = 0; j < block.inputs; ++j) {
    s[j] = S(block.constants[j]);
    for (int k = 0; k < n; ++k) s[j] = mul_add(S(block.B[j * n + k]), z[c.position[block.columns[k]]], s[j]);
  }
}
// And their rates of change from reduced velocities: B x.
template <class S>
void block_rates(const Coupling::Block& block, const S* x, S* s) {
  const int n = static_cast<int>(block.columns.size());
  for (int j = 0; j < block.inputs; ++j) {
    s[j] = S(0.0);
    for (int k = 0; k < n; ++k) s[j] = mul_add(S(block.B[j * n + k]), x[block.columns[k]], s[j]);
  }
}

// A polynomial and its derivatives to the fourth order, by Horner's scheme.
template <class S>
void evaluate_polynomial(const std::vector<double>& coefficients, const S& s, S* out) {
  for (int k = 0; k < 5; ++k) out[k] = S(0.0);
  for (auto at = coefficients.rbegin(); at != coefficients.rend(); ++at) {
    for (int k = 4; k > 0; --k) out[k] = mul_add(out[k], s, S(double(k)) * out[k - 1]);
    out[0] = mul_add(out[0], s, S(*at));
  }
}

// A user-defined block. In dual numbers the tangents follow from the next derivatives, except those of the third: that
// is a complex step.
template <class S>
void evaluate_custom(const Coupling::Block& block, const S* s, int level, S* out) {
  constexpr bool dual = IsDual<S>::value;
  const int m = block.inputs, size = block.size();
  if (dual && level < 3) {
    if constexpr (dual) {
      using Base = decltype(S::v);
      std::vector<Base> x(m), y(size);
      for (int j = 0; j < m; ++j) x[j] = s[j].v;
      evaluate_custom(block, x.data(), level + 1, y.data());
      const int values = block.at(level + 1) - block.begin, next = block.outputs;
      for (int k = 0; k < values; ++k) {
        S& to = out[k] = {y[k], Base(0.0)};
        for (int j = 0; j < m; ++j) to.d = mul_add(y[next + k * m + j], s[j].d, to.d);
      }
    }
  } else {
    using Value = std::conditional_t<std::is_same_v<S, Complex> || dual, Complex, double>;
    constexpr int lanes = Lanes<S>::value;
    std::vector<Value> in(lanes * m), result(std::size_t(lanes) * size);
    for (int l = 0; l < lanes; ++l)
      for (int j = 0; j < m; ++j) {
        if constexpr (dual)
          in[l * m + j] = {lane_of(s[j].v, l), kStep * lane_of(s[j].d, l)};
        else if constexpr (lanes == 1)
          in[j] = s[j];
        else
          in[l * m + j] = s[j].lane(l);
      }
    block.custom->evaluate(in.data(), lanes, level, result.data());
    for (int k = 0; k < size; ++k) {
      if constexpr (dual)
        out[k] = per_lane<S>([&](int l) {
          const Complex& z = result[l * size + k];
          return Dual<double>(z.real(), z.imag() / kStep);
        });
      else if constexpr (lanes == 1)
        out[k] = result[k];
      else
        out[k] = per_lane<S>([&](int l) { return result[l * size + k]; });
    }
  }
}

// Values of all blocks, and their derivatives to the order `level`, at most 3.
template <class S>
BlockTerms<S> block_terms(const Coupling& c, Arena& arena, const S* z, int level) {
  BlockTerms<S> t{c, c.blocks.empty() ? nullptr : arena.get<S>(c.terms)};
  for (const Coupling::Block& block : c.blocks) {
    S* s = arena.get<S>(block.inputs);
    block_inputs(c, block, z, s);
    if (block.custom)
      evaluate_custom(block, s, level, t.data + block.begin);
    else
      evaluate_polynomial(block.coefficients, s[0], t.data + block.begin);
  }
  return t;
}

// phi''''[u, u] of all blocks, outputs x inputs x inputs each, one after the other.
template <class S>
S* fourth_terms(const BlockTerms<S>& t, Arena& arena, const S* z, const S* u) {
  int size = 0;
  for (const Coupling::Block& block : t.coupling.blocks) size += block.outputs * block.inputs * block.inputs;
  S *out = arena.get<S>(size), *to = out;
  for (const Coupling::Block& block : t.coupling.blocks) {
    const int m = block.inputs, n = block.outputs * m * m;
    S *s = arena.get<S>(m), *ds = arena.get<S>(m);
    block_inputs(t.coupling, block, z, s);
    block_rates(block, u, ds);
    if (block.custom) {
      if constexpr (!IsDual<S>::value && !std::is_same_v<S, Complex>) {
        auto *x = arena.get<Dual<S>>(m), *y = arena.get<Dual<S>>(block.size());
        for (int j = 0; j < m; ++j) x[j] = {s[j], ds[j]};
        evaluate_custom(block, x, 3, y);
        const Dual<S>* third = y + (block.at(3) - block.begin);
        for (int k = 0; k < n; ++k) {
          to[k] = S(0.0);
          for (int j = 0; j < m; ++j) to[k] = mul_add(third[k * m + j].d, ds[j], to[k]);
        }
      }
    } else {
      to[0] = t.of(block, 4)[0] * ds[0] * ds[0];
    }
    to += n;
  }
  return out;
}

// Linear rows of N vectors at once, the first of coordinates or of velocities, the others of velocities:
// calls out(group, row, n, value). Several rows at a time, which share what they read.
template <int R, int N, class S, class Out>
TORSOR_INLINE void sum_rows(const Coupling::Linear& g, int row, bool coordinates, const S* const (&x)[N], Out&& out) {
  const int m = static_cast<int>(g.columns.size());
  const double* values = g.values.data() + std::size_t(row) * m;
  S sums[N][R];
  for (int n = 0; n < N; ++n)
    for (int r = 0; r < R; ++r) sums[n][r] = S(n == 0 && coordinates ? g.offset[row + r] : 0.0);
  for (int j = 0; j < m; ++j)
    for (int n = 0; n < N; ++n) {
      const S in = x[n][n == 0 && coordinates ? g.positions[j] : g.columns[j]];
      for (int r = 0; r < R; ++r) sums[n][r] = mul_add(S(values[r * m + j]), in, sums[n][r]);
    }
  for (int n = 0; n < N; ++n)
    for (int r = 0; r < R; ++r) out(g, row + r, n, sums[n][r]);
}
template <int N, class S, class Out>
TORSOR_INLINE void each_linear_row(const Coupling& c, bool coordinates, const S* const (&x)[N], Out&& out) {
  for (const Coupling::Linear& g : c.linear) {
    int row = 0;
    if (g.diagonal) {
      for (const int rows = g.rows(); row < rows; ++row) {
        const S value(g.values[row]);
        const int column = g.columns[row];
        out(g, row, 0, coordinates ? mul_add(value, x[0][g.positions[row]], S(g.offset[row])) : value * x[0][column]);
        for (int n = 1; n < N; ++n) out(g, row, n, value * x[n][column]);
      }
      continue;
    }
    for (; row + 4 <= g.rows(); row += 4) sum_rows<4>(g, row, coordinates, x, out);
    for (; row < g.rows(); ++row) sum_rows<1>(g, row, coordinates, x, out);
  }
}
// y += B^T x of linear rows, x by the tree's velocities.
template <int K, class S>
TORSOR_INLINE void pull_columns(const Coupling::Linear& g, int column, const S* x, S* y) {
  const int m = static_cast<int>(g.columns.size());
  S sums[K];
  for (int k = 0; k < K; ++k) sums[k] = y[g.columns[column + k]];
  for (int row = 0; row < g.rows(); ++row) {
    const double* values = g.values.data() + std::size_t(row) * m + column;
    const S force = x[g.iv[row]];
    for (int k = 0; k < K; ++k) sums[k] = mul_add(S(values[k]), force, sums[k]);
  }
  for (int k = 0; k < K; ++k) y[g.columns[column + k]] = sums[k];
}
template <class S>
void pull_linear(const Coupling::Linear& g, const S* x, S* y) {
  const int m = static_cast<int>(g.columns.size());
  int column = 0;
  if (g.diagonal) {
    for (int row = 0; row < m; ++row) {
      S& to = y[g.columns[row]];
      to = mul_add(S(g.values[row]), x[g.iv[row]], to);
    }
    return;
  }
  for (; column + 4 <= m; column += 4) pull_columns<4>(g, column, x, y);
  for (; column < m; ++column) pull_columns<1>(g, column, x, y);
}

// The tree's coordinates q = phi(z).
template <class S>
void lift_coordinates(const BlockTerms<S>& t, const S* z, S* q) {
  const Coupling& c = t.coupling;
  for (const Coupling::Run& run : c.runs_q)
    for (int k = 0; k < run.count; ++k) q[run.tree + k] = z[run.reduced + k];
  each_linear_row<1, S>(c, true, {z}, [&](const auto& g, int row, int, const S& sum) { q[g.iq[row]] = sum; });
  for (const Coupling::Block& block : c.blocks)
    for (int r : block.rows) {
      const Coupling::Row& row = c.rows[r];
      q[row.iq] = mul_add(S(row.scale), t.of(block, 0)[row.output], S(row.offset));
    }
}

// y = P x, a velocity of the tree from a reduced one. With v, y = P x + phi''[v, v]: an acceleration.
template <class S>
void lift_velocities(const BlockTerms<S>& t, Arena& arena, const S* x, S* y, const S* v = nullptr) {
  const Coupling& c = t.coupling;
  for (const Coupling::Run& run : c.runs_v)
    for (int k = 0; k < run.count; ++k) y[run.tree + k] = x[run.reduced + k];
  each_linear_row<1, S>(c, false, {x}, [&](const auto& g, int row, int, const S& sum) { y[g.iv[row]] = sum; });
  for (const Coupling::Block& block : c.blocks) {
    const int m = block.inputs;
    S *s = arena.get<S>(m), *ds = arena.get<S>(m);
    block_rates(block, x, s);
    if (v != nullptr) block_rates(block, v, ds);
    const S *D1 = t.of(block, 1), *D2 = t.of(block, 2);
    for (int r : block.rows) {
      const Coupling::Row& row = c.rows[r];
      S sum(0.0);
      for (int j = 0; j < m; ++j) {
        S first = D1[row.output * m + j] * s[j];
        for (int k = 0; v != nullptr && k < m; ++k)
          first = mul_add(D2[(row.output * m + j) * m + k] * ds[j], ds[k], first);
        sum += first;
      }
      y[row.iv] = S(row.scale) * sum;
    }
  }
}

// y = P^T x, a reduced force from one of the tree.
template <class S>
void pull(const BlockTerms<S>& t, const S* x, S* y) {
  const Coupling& c = t.coupling;
  for (int k : c.added) y[k] = S(0.0);
  for (const Coupling::Run& run : c.runs_v)
    for (int k = 0; k < run.count; ++k) y[run.reduced + k] = x[run.tree + k];
  for (const Coupling::Linear& g : c.linear) pull_linear(g, x, y);
  for (const Coupling::Block& block : c.blocks)
    for (int r : block.rows) {
      const Coupling::Row& row = c.rows[r];
      const S* D1 = t.of(block, 1) + row.output * block.inputs;
      const int n = static_cast<int>(block.columns.size());
      for (int j = 0; j < block.inputs; ++j) {
        const S along = S(row.scale) * x[row.iv] * D1[j];
        for (int k = 0; k < n; ++k) y[block.columns[k]] = mul_add(S(block.B[j * n + k]), along, y[block.columns[k]]);
      }
    }
}

// A matrix of the form of P: its entries in some rows of the tree's velocities. The others are zero or, if it `passes`,
// those of P, ones for joints that pass.
template <class S>
struct TangentMatrix {
  const Coupling& coupling;
  S* x;
  const std::vector<int>& rows;
  bool passes;
};

// The entries of the nonlinear rows: for each output the sum over inputs j of parts[output][j] B[j].
template <class S, class Parts>
void fill_bent(const Coupling& c, const Coupling::Block& block, const Parts& part, S* x) {
  const int n = static_cast<int>(block.columns.size());
  for (int r : block.rows) {
    const Coupling::Row& row = c.rows[r];
    S* to = x + c.start[row.iv];
    for (int k = 0; k < n; ++k) to[k] = S(0.0);
    for (int j = 0; j < block.inputs; ++j) {
      const S value = S(row.scale) * part(row.output, j);
      for (int k = 0; k < n; ++k) to[k] = mul_add(S(block.B[j * n + k]), value, to[k]);
    }
  }
}

// P.
template <class S>
TangentMatrix<S> tangent_map(const BlockTerms<S>& t, Arena& arena) {
  const Coupling& c = t.coupling;
  S* x = arena.get<S>(c.column.size());
  for (std::size_t k = 0; k < c.column.size(); ++k) x[k] = S(c.constant[k]);
  for (const Coupling::Block& block : c.blocks) {
    const S* D1 = t.of(block, 1);
    fill_bent(c, block, [&](int i, int j) { return D1[i * block.inputs + j]; }, x);
  }
  return {c, x, c.coupled, true};
}
// phi''[u] + phi'''[v, v]; either may be null. With u = v_R this is Pdot; with a_R and v_R, Pddot.
template <class S>
TangentMatrix<S> tangent_rate(const BlockTerms<S>& t, Arena& arena, const S* u, const S* v = nullptr) {
  const Coupling& c = t.coupling;
  S* x = c.bent.empty() ? nullptr : arena.get<S>(c.column.size());
  for (const Coupling::Block& block : c.blocks) {
    const int m = block.inputs;
    S *s = arena.get<S>(m), *ds = arena.get<S>(m);
    if (u != nullptr) block_rates(block, u, s);
    if (v != nullptr) block_rates(block, v, ds);
    const S *D2 = t.of(block, 2), *D3 = t.of(block, 3);
    fill_bent(
        c, block,
        [&](int i, int j) {
          S sum(0.0);
          for (int k = 0; k < m; ++k) {
            const int at = (i * m + j) * m + k;
            if (u != nullptr) sum = mul_add(D2[at], s[k], sum);
            for (int l = 0; v != nullptr && l < m; ++l) sum = mul_add(D3[at * m + l] * ds[k], ds[l], sum);
          }
          return sum;
        },
        x);
  }
  return {c, x, c.bent, false};
}

// Calls f(i, from, to) for the rows i of P that are stored, and their entries.
template <class S, class F>
TORSOR_INLINE void each_row(const TangentMatrix<S>& P, F&& f) {
  const Coupling& c = P.coupling;
  for (int i : P.rows) f(i, c.start[i], c.start[i + 1]);
}
// Calls f(tree, reduced, count) for the joints that pass.
template <class S, class F>
TORSOR_INLINE void each_run(const TangentMatrix<S>& P, F&& f) {
  if (P.passes)
    for (const Coupling::Run& run : P.coupling.runs_v) f(run.tree, run.reduced, run.count);
}

// Y += s X P, X of n rows and as many columns as the tree has velocities, Y with as many as there are reduced ones.
template <class S>
void add_times(int n, const S* X, const TangentMatrix<S>& P, S* Y, double s = 1.0) {
  const Coupling& c = P.coupling;
  const int nv = static_cast<int>(c.start.size()) - 1, nr = c.nv();
  for (int r = 0; r < n; ++r)
    each_run(
        P, [&](int tree, int reduced, int count) { add_scaled(count, S(s), X + r * nv + tree, Y + r * nr + reduced); });
  each_row(P, [&](int i, int begin, int end) {
    for (int k = begin; k < end; ++k) {
      const S value = S(s) * P.x[k];
      const int column = c.column[k];
      for (int r = 0; r < n; ++r) Y[r * nr + column] = mul_add(X[r * nv + i], value, Y[r * nr + column]);
    }
  });
}
// Y += s P^T X, X of n columns.
template <class S>
void add_transposed_times(int n, const TangentMatrix<S>& P, const S* X, S* Y, double s = 1.0) {
  const Coupling& c = P.coupling;
  each_run(P, [&](int tree, int reduced, int count) { add_scaled(count * n, S(s), X + tree * n, Y + reduced * n); });
  each_row(P, [&](int i, int begin, int end) {
    for (int k = begin; k < end; ++k) add_scaled(n, S(s) * P.x[k], X + i * n, Y + c.column[k] * n);
  });
}
// y += s P x, and y += s P^T x.
template <class S>
void add_applied(const TangentMatrix<S>& P, const S* x, S* y, double s = 1.0) {
  each_run(P, [&](int tree, int reduced, int count) { add_scaled(count, S(s), x + reduced, y + tree); });
  each_row(P, [&](int i, int begin, int end) {
    for (int k = begin; k < end; ++k) y[i] = mul_add(S(s) * P.x[k], x[P.coupling.column[k]], y[i]);
  });
}
template <class S>
void add_pulled(const TangentMatrix<S>& P, const S* x, S* y, double s = 1.0) {
  each_run(P, [&](int tree, int reduced, int count) { add_scaled(count, S(s), x + tree, y + reduced); });
  each_row(P, [&](int i, int begin, int end) {
    for (int k = begin; k < end; ++k) {
      S& to = y[P.coupling.column[k]];
      to = mul_add(S(s) * P.x[k], x[i], to);
    }
  });
}
// y += |P|^T x: sizes of pulled numbers from those of the tree.
template <class S>
void add_pulled_sizes(const TangentMatrix<S>& P, const S* x, S* y) {
  each_run(P, [&](int tree, int reduced, int count) { add_scaled(count, S(1.0), x + tree, y + reduced); });
  each_row(P, [&](int i, int begin, int end) {
    for (int k = begin; k < end; ++k) {
      S& to = y[P.coupling.column[k]];
      to = mul_add(absolute(P.x[k]), x[i], to);
    }
  });
}
template <class S>
S* zeros(Arena& arena, int n) {
  S* x = arena.get<S>(n);
  for (int k = 0; k < n; ++k) x[k] = S(0.0);
  return x;
}
// Y = P^T X P.
template <class S>
void project(Arena& arena, const TangentMatrix<S>& P, const S* X, S* Y) {
  const Coupling& c = P.coupling;
  const int nv = static_cast<int>(c.start.size()) - 1, nr = c.nv();
  S* half = arena.get<S>(nr * nv);  // P^T X
  for (int k : c.added) std::fill_n(half + k * nv, nv, S(0.0));
  each_run(P, [&](int tree, int reduced, int count) { std::copy_n(X + tree * nv, count * nv, half + reduced * nv); });
  each_row(P, [&](int i, int begin, int end) {
    for (int k = begin; k < end; ++k) add_scaled(nv, P.x[k], X + i * nv, half + c.column[k] * nv);
  });
  for (int r = 0; r < nr; ++r) {
    for (int k : c.added) Y[r * nr + k] = S(0.0);
    each_run(P,
             [&](int tree, int reduced, int count) { std::copy_n(half + r * nv + tree, count, Y + r * nr + reduced); });
  }
  each_row(P, [&](int i, int begin, int end) {
    for (int k = begin; k < end; ++k)
      for (int r = 0; r < nr; ++r) {
        S& to = Y[r * nr + c.column[k]];
        to = mul_add(half[r * nv + i], P.x[k], to);
      }
  });
}
// The same of a symmetric matrix: symmetric to the last bit.
template <class S>
void project_symmetric(Arena& arena, const TangentMatrix<S>& P, const S* X, S* Y) {
  project(arena, P, X, Y);
  const int nr = P.coupling.nv();
  for (int i = 0; i < nr; ++i)
    for (int j = 0; j < i; ++j) Y[j * nr + i] = Y[i * nr + j];
}

// A += sum over rows of y_i phi''_i and, with `fourth` or with u, phi'''_i[u] or phi''''_i; y by the tree's velocities,
// A of reduced ones. `order` is that of the derivative that is read: 2, 3 with u, 4 with `fourth`.
template <class S>
void add_curvature(const BlockTerms<S>& t, Arena& arena, int order, const S* y, const S* u, const S* fourth, S* A,
                   double scale = 1.0) {
  const Coupling& c = t.coupling;
  const int nr = c.nv();
  for (const Coupling::Block& block : c.blocks) {
    const int m = block.inputs, n = static_cast<int>(block.columns.size());
    S *weight = zeros<S>(arena, block.outputs), *G = zeros<S>(arena, m * m), *half = zeros<S>(arena, m * n);
    for (int r : block.rows) {
      const Coupling::Row& row = c.rows[r];
      weight[row.output] = mul_add(S(scale * row.scale), y[row.iv], weight[row.output]);
    }
    if (order == 3) {
      S* ds = arena.get<S>(m);
      block_rates(block, u, ds);
      const S* D3 = t.of(block, 3);
      for (int i = 0; i < block.outputs; ++i)
        for (int j = 0; j < m * m; ++j)
          for (int l = 0; l < m; ++l) G[j] = mul_add(weight[i] * D3[(i * m * m + j) * m + l], ds[l], G[j]);
    } else {
      const S* D = order == 2 ? t.of(block, 2) : fourth;
      for (int i = 0; i < block.outputs; ++i) add_scaled(m * m, weight[i], D + i * m * m, G);
      if (order == 4) fourth += block.outputs * m * m;
    }
    for (int j = 0; j < m; ++j)
      for (int k = 0; k < m; ++k)
        for (int b = 0; b < n; ++b) half[j * n + b] = mul_add(G[j * m + k], S(block.B[k * n + b]), half[j * n + b]);
    for (int j = 0; j < m; ++j)
      for (int a = 0; a < n; ++a)
        for (int b = 0; b < n; ++b) {
          S& to = A[block.columns[a] * nr + block.columns[b]];
          to = mul_add(S(block.B[j * n + a]), half[j * n + b], to);
        }
  }
}
template <class S>
void add_curvature(const BlockTerms<S>& t, Arena& arena, const S* y, S* A, double scale = 1.0) {
  add_curvature<S>(t, arena, 2, y, nullptr, nullptr, A, scale);
}

// A state of the tree from a reduced one: q, v and, where they are given, accelerations.
template <class S>
struct Lifted {
  BlockTerms<S> terms;
  const S *q, *v, *a;
};
// v and a may be null, a reduced acceleration of zero; `level` is that of the terms, 2 at least for accelerations.
template <class S>
Lifted<S> lift_state(const Model& m, Arena& arena, const S* z, const S* v, const S* a, int level) {
  const Coupling& c = *m.coupling;
  Lifted<S> out{block_terms(c, arena, z, level), nullptr, nullptr, nullptr};
  S* q = arena.get<S>(m.nq);
  if (c.is_linear() && v != nullptr && a != nullptr) {  // all at once
    S *tv = arena.get<S>(m.nv), *ta = arena.get<S>(m.nv);
    for (const Coupling::Run& run : c.runs_q) std::copy_n(z + run.reduced, run.count, q + run.tree);
    for (const Coupling::Run& run : c.runs_v) {
      std::copy_n(v + run.reduced, run.count, tv + run.tree);
      std::copy_n(a + run.reduced, run.count, ta + run.tree);
    }
    each_linear_row<3, S>(c, true, {z, v, a}, [&](const auto& g, int row, int n, const S& sum) {
      (n == 0 ? q[g.iq[row]] : n == 1 ? tv[g.iv[row]] : ta[g.iv[row]]) = sum;
    });
    out.q = q;
    out.v = tv;
    out.a = ta;
    return out;
  }
  lift_coordinates(out.terms, z, q);
  out.q = q;
  if (v != nullptr) {
    S* y = arena.get<S>(m.nv);
    lift_velocities(out.terms, arena, v, y);
    out.v = y;
  }
  if (a != nullptr || (v != nullptr && level >= 2 && !c.is_linear())) {
    S* y = arena.get<S>(m.nv);
    lift_velocities(out.terms, arena, a != nullptr ? a : zeros<S>(arena, c.nv()), y, c.is_linear() ? nullptr : v);
    out.a = y;
  }
  return out;
}

}  // namespace torsor
