/* edgeinfer/csrc/ops/math_template.h: exp and the activation functions on vf, each one fixed sequence of IEEE steps.
 *
 * The including file defines the verbs (isa/scalar_verbs.h). No libm: the sequence is the law, the same on every ISA.
 * NaN in, NaN out, for every function.
 */

EI_INLINE vf vf_abs(vf x) { return vf_from_bits(vi_and(vf_bits(x), vi_set(0x7fffffff))); }
/* magnitude (sign bit clear) with the sign of sign */
EI_INLINE vf vf_signed_as(vf magnitude, vf sign) {
    return vf_from_bits(vi_or(vf_bits(magnitude), vi_and(vf_bits(sign), vi_set(INT32_MIN))));
}

/* exp(x) for x <= 0, error below 1.5 ulp; 0 below -87, where the result would leave the normal range.
 * x = n ln2 + r: adding 1.5 * 2^23 rounds x/ln2 to n and leaves n in the low bits, ready for the exponent. */
EI_INLINE vf vf_exp(vf x) {
    vf lowest = vf_set(-87.0f), magic = vf_set(12582912.0f);
    vf t = vf_fma(x, vf_set(0x1.715476p+0f), magic);
    vf n = vf_sub(t, magic);
    /* ln2 in two parts; the first has 9 bits, so n times it is exact */
    vf r = vf_fnma(n, vf_set(0.693359375f), x);
    r = vf_fnma(n, vf_set(-2.12194440e-4f), r);
    vf p = vf_fma(vf_set(1.9875691500e-4f), r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_from_bits(vi_add(vf_bits(p), vi_shl(vf_bits(t), 23)));
    /* max(0, x) is 0 for a low x and NaN for a NaN */
    return vf_select_ge(x, lowest, p, vf_max(vf_zero(), x));
}

EI_INLINE float exp_of(float x) {
    float lanes[16];
    vf_store(lanes, vf_exp(vf_set(x)));
    return lanes[0];
}

EI_INLINE vf vf_sigmoid(vf x) {
    vf one = vf_set(1.0f), t = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    return vf_div(vf_select_ge(x, vf_zero(), one, t), vf_add(one, t));
}

EI_INLINE vf vf_silu(vf x) { return vf_mul(x, vf_sigmoid(x)); }

EI_INLINE vf vf_tanh(vf x) {
    vf one = vf_set(1.0f), t = vf_exp(vf_mul(vf_set(-2.0f), vf_abs(x)));
    return vf_signed_as(vf_div(vf_sub(one, t), vf_add(one, t)), x);
}

/* cap * tanh(x / cap) */
EI_INLINE vf vf_softcap(vf x, float cap, float inverse_cap) {
    return vf_mul(vf_set(cap), vf_tanh(vf_mul(x, vf_set(inverse_cap))));
}

/* x/2 * (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3): one division, no cancellation */
EI_INLINE vf vf_gelu_tanh(vf x) {
    vf u2 = vf_mul(x, vf_fma(vf_mul(x, x), vf_set(0.0713548163f), vf_set(1.59576912f)));
    return vf_mul(x, vf_sigmoid(u2));
}

/* x * Phi(x). Phi(-|x|) = exp(-z*z) * t * P(t), z = |x|/sqrt2, t = 1/(1 + 0.4z); P is fitted to 9e-9 over z <= 9.4. */
EI_INLINE vf vf_gelu_erf(vf x) {
    vf one = vf_set(1.0f), z = vf_mul(vf_abs(x), vf_set(0.707106781f));
    vf t = vf_div(one, vf_fma(vf_set(0.4f), z, one));
    vf p = vf_fma(vf_set(0.0155853871f), t, vf_set(-0.0455160365f));
    p = vf_fma(p, t, vf_set(-0.00918818172f));
    p = vf_fma(p, t, vf_set(0.102801926f));
    p = vf_fma(p, t, vf_set(-0.000910795992f));
    p = vf_fma(p, t, vf_set(0.114120379f));
    p = vf_fma(p, t, vf_set(0.0964797586f));
    p = vf_fma(p, t, vf_set(0.113847084f));
    p = vf_fma(p, t, vf_set(0.112780482f));
    vf tail = vf_mul(vf_mul(p, t), vf_exp(vf_sub(vf_zero(), vf_mul(z, z))));
    return vf_mul(x, vf_select_ge(x, vf_zero(), vf_sub(one, tail), tail));
}

EI_INLINE vf vf_relu(vf x) { return vf_max(vf_zero(), x); }

EI_INLINE vf vf_relu2(vf x) {
    vf y = vf_relu(x);
    return vf_mul(y, y);
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + t), t = e^-|x|; ln(1 + t) = 2 atanh(s), s = t/(2 + t) <= 1/3, odd polynomial in s */
EI_INLINE vf vf_softplus(vf x) {
    vf t = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    vf s = vf_div(t, vf_add(vf_set(2.0f), t)), w = vf_mul(s, s);
    vf p = vf_fma(vf_set(0.243009374f), w, vf_set(0.214276567f));
    p = vf_fma(p, w, vf_set(0.286168844f));
    p = vf_fma(p, w, vf_set(0.39998877f));
    p = vf_fma(p, w, vf_set(0.666666746f));
    p = vf_fma(p, w, vf_set(2.0f));
    return vf_fma(s, p, vf_relu(x));
}

/* fn is a constant after inlining */
EI_INLINE vf vf_activated(int32_t fn, vf x) {
    switch (fn) {
    case EI_SILU: return vf_silu(x);
    case EI_GELU_TANH: return vf_gelu_tanh(x);
    case EI_GELU_ERF: return vf_gelu_erf(x);
    case EI_RELU: return vf_relu(x);
    case EI_RELU2: return vf_relu2(x);
    case EI_SIGMOID: return vf_sigmoid(x);
    case EI_TANH: return vf_tanh(x);
    case EI_SOFTPLUS: return vf_softplus(x);
    default: return x;
    }
}
