// Appended to the C code that CasADi generates: the function at each of `states` states, one after the other, and all
// of it `repeats` times. Every state's tensors go to the same place.
__attribute__((visibility("default"))) void generated_run(int states, int repeats, const double* q, const double* v,
                                                          const double* a, double* out) {
  const casadi_int n = second_order_sparsity_in(0)[0];
  casadi_int size;
  second_order_work(0, 0, 0, &size);
  double work[size + 1];
  double* tensors[] = {out, out + n * n * n, out + 2 * n * n * n, out + 3 * n * n * n};
  for (int r = 0; r < repeats; ++r)
    for (int s = 0; s < states; ++s) {
      const double* state[] = {q + s * n, v + s * n, a + s * n};
      second_order(state, tensors, 0, work, 0);
    }
}
