// All that is elementwise in a step of an LSTM. Every operation is written out, so that they give the same bits on every processor.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

// e^x to the last bit or two. x = n log 2 + r; e^r is Cephes' polynomial, 2^n is put together from bits.
inline float exponential(float x) {
  // Comparisons, not minimum and maximum, which would lose a NaN.
  x = x > 88.0f ? 88.0f : x;
  x = x < -87.0f ? -87.0f : x;
  // Added and taken away, 1.5 * 2^23 leaves the nearest whole number.
  const float n = std::fma(x, 1.44269504f, 12582912.0f) - 12582912.0f;
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = std::fma(1.9875691500e-4f, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r + 1.0f);
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

inline float tangent(float x) { return 2.0f / (1.0f + exponential(-2.0f * x)) - 1.0f; }

inline float clipped(float x, float clip) {
  x = x > clip ? clip : x;
  return x < -clip ? -clip : x;
}

// Sums of the gates become what the gates are, and the cell the new one; `sigmoid(o) tanh(c)` is returned.
inline float step(float& i, float& f, float& g, float& o, float& cell, float clip) {
  i = sigmoid(i);
  f = sigmoid(f);
  g = tangent(g);
  o = sigmoid(o);
  cell = clipped(std::fma(f, cell, i * g), clip);
  return o * tangent(cell);
}

}  // namespace
