// Derivatives by complex step: f(x + i kStep) has kStep f' in its imaginary part, without cancellation.
#pragma once

namespace torsor {

constexpr double kStep = 1e-30;  // far below rounding, far above underflow

}  // namespace torsor
