//! Module math: the functions and constants of C's <math.h>.

mod printf;

use std::cmp::Ordering;

use lacquer_vcl_runtime::{Args, Ctx, Func, Value};

use crate::support::{CallResult, Table, text, word};

pub(crate) static MODULE: Table = Table { name: "math", functions: FUNCTIONS, objects: &[], suspends: &[] };

/// Defines a function of reals.
macro_rules! reals {
    ($f:expr, 1) => {{
        fn call<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            Ok(Value::Real($f(args.real(0))))
        }
        call as Func
    }};
    ($f:expr, 2) => {{
        fn call<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            Ok(Value::Real($f(args.real(0), args.real(1))))
        }
        call as Func
    }};
    ($f:expr, 3) => {{
        fn call<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            Ok(Value::Real($f(args.real(0), args.real(1), args.real(2))))
        }
        call as Func
    }};
}

/// Defines a predicate of reals, whose result is a number: 1 for true.
macro_rules! predicates {
    ($f:expr, 1) => {{
        fn call<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            Ok(Value::Int(i64::from($f(args.real(0)))))
        }
        call as Func
    }};
    ($f:expr, 2) => {{
        fn call<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            Ok(Value::Int(i64::from($f(args.real(0), args.real(1)))))
        }
        call as Func
    }};
}

const FUNCTIONS: &[(&str, Func)] = &[
    ("approx", approx),
    ("strfromd", strfromd),
    ("constant", constant),
    ("fpclass", fpclass),
    ("fpclassify", fpclassify),
    ("isfinite", predicates!(f64::is_finite, 1)),
    ("isgreater", predicates!(|x: f64, y: f64| x > y, 2)),
    ("isgreaterequal", predicates!(|x: f64, y: f64| x >= y, 2)),
    ("isinf", predicates!(f64::is_infinite, 1)),
    ("isless", predicates!(|x: f64, y: f64| x < y, 2)),
    ("islessequal", predicates!(|x: f64, y: f64| x <= y, 2)),
    ("islessgreater", predicates!(|x: f64, y: f64| x.partial_cmp(&y).is_some_and(Ordering::is_ne), 2)),
    ("isnan", predicates!(f64::is_nan, 1)),
    ("isnormal", predicates!(f64::is_normal, 1)),
    ("isunordered", predicates!(|x: f64, y: f64| x.is_nan() || y.is_nan(), 2)),
    ("signbit", predicates!(f64::is_sign_negative, 1)),
    ("acos", reals!(f64::acos, 1)),
    ("acosh", reals!(libm::acosh, 1)),
    ("asin", reals!(f64::asin, 1)),
    ("asinh", reals!(libm::asinh, 1)),
    ("atan", reals!(f64::atan, 1)),
    ("atan2", reals!(f64::atan2, 2)),
    ("atanh", reals!(libm::atanh, 1)),
    ("cbrt", reals!(f64::cbrt, 1)),
    ("ceil", reals!(f64::ceil, 1)),
    ("copysign", reals!(f64::copysign, 2)),
    ("cos", reals!(f64::cos, 1)),
    ("cosh", reals!(f64::cosh, 1)),
    ("erf", reals!(libm::erf, 1)),
    ("erfc", reals!(libm::erfc, 1)),
    ("exp", reals!(f64::exp, 1)),
    ("exp2", reals!(f64::exp2, 1)),
    ("expm1", reals!(f64::exp_m1, 1)),
    ("fabs", reals!(f64::abs, 1)),
    ("fdim", reals!(libm::fdim, 2)),
    ("floor", reals!(f64::floor, 1)),
    ("fma", reals!(f64::mul_add, 3)),
    ("fmax", reals!(f64::max, 2)),
    ("fmin", reals!(f64::min, 2)),
    ("fmod", reals!(|x: f64, y: f64| x % y, 2)),
    ("hypot", reals!(libm::hypot, 2)),
    ("ilogb", ilogb),
    ("j0", reals!(libm::j0, 1)),
    ("j1", reals!(libm::j1, 1)),
    ("jn", jn),
    ("ldexp", scaled),
    ("lgamma", reals!(libm::lgamma, 1)),
    ("log", reals!(f64::ln, 1)),
    ("log10", reals!(f64::log10, 1)),
    ("log1p", reals!(f64::ln_1p, 1)),
    ("log2", reals!(f64::log2, 1)),
    ("logb", reals!(logb, 1)),
    ("lrint", lrint),
    ("lround", lround),
    ("nan", nan),
    ("nearbyint", reals!(f64::round_ties_even, 1)),
    ("nextafter", reals!(libm::nextafter, 2)),
    ("pow", reals!(f64::powf, 2)),
    ("remainder", reals!(libm::remainder, 2)),
    ("rint", reals!(f64::round_ties_even, 1)),
    ("round", reals!(f64::round, 1)),
    ("scalbln", scaled),
    ("scalbn", scaled),
    ("sin", reals!(f64::sin, 1)),
    ("sinh", reals!(f64::sinh, 1)),
    ("sqrt", reals!(f64::sqrt, 1)),
    ("tan", reals!(f64::tan, 1)),
    ("tanh", reals!(f64::tanh, 1)),
    ("tgamma", reals!(libm::tgamma, 1)),
    ("trunc", reals!(f64::trunc, 1)),
    ("y0", reals!(libm::y0, 1)),
    ("y1", reals!(libm::y1, 1)),
    ("yn", yn),
];

/// Returns whether two numbers differ by no more than the absolute or the relative limit. A limit of 0 means
/// the precision of a double.
fn is_approx(a: f64, b: f64, max_diff: f64, max_rel_diff: f64) -> bool {
    let diff = (a - b).abs();
    let relative = if max_rel_diff == 0.0 { f64::EPSILON } else { max_rel_diff };
    let absolute = if max_diff == 0.0 { f64::EPSILON } else { max_diff };
    diff <= absolute || diff <= a.abs().max(b.abs()) * relative
}

fn approx<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(is_approx(args.real(0), args.real(1), args.real(2), args.real(3))))
}

fn strfromd<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let format = args.str(0).unwrap_or_default();
    let done = printf::format(format, args.real(1));
    text(ctx, done.ok_or("math.strfromd(): the format must be %[.precision] and one of aefgAEFG")?.as_bytes())
}

fn constant<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    use std::f64::consts as c;
    Ok(Value::Real(match word(args, 0) {
        "DBL_MANT_DIG" => 53.0,
        "DBL_DIG" => 15.0,
        "DBL_MIN_EXP" => -1021.0,
        "DBL_MIN_10_EXP" => -307.0,
        "DBL_MAX_EXP" => 1024.0,
        "DBL_MAX_10_EXP" => 308.0,
        "DBL_MAX" => f64::MAX,
        "DBL_EPSILON" => f64::EPSILON,
        "DBL_MIN" => f64::MIN_POSITIVE,
        "HUGE_VAL" => f64::INFINITY,
        "M_E" => c::E,
        "M_LOG2E" => c::LOG2_E,
        "M_LOG10E" => c::LOG10_E,
        "M_LN2" => c::LN_2,
        "M_LN10" => c::LN_10,
        "M_PI" => c::PI,
        "M_PI_2" => c::FRAC_PI_2,
        "M_PI_4" => c::FRAC_PI_4,
        "M_1_PI" => c::FRAC_1_PI,
        "M_2_PI" => c::FRAC_2_PI,
        "M_2_SQRTPI" => c::FRAC_2_SQRT_PI,
        "M_SQRT2" => c::SQRT_2,
        _ => c::FRAC_1_SQRT_2,
    }))
}

/// The values of glibc's constants.
const CLASSES: [(&str, std::num::FpCategory); 5] = [
    ("FP_NAN", std::num::FpCategory::Nan),
    ("FP_INFINITE", std::num::FpCategory::Infinite),
    ("FP_ZERO", std::num::FpCategory::Zero),
    ("FP_SUBNORMAL", std::num::FpCategory::Subnormal),
    ("FP_NORMAL", std::num::FpCategory::Normal),
];

fn fpclass<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let class = CLASSES.iter().position(|(name, _)| *name == word(args, 0));
    Ok(Value::Int(class.map_or(-1, |n| n as i64)))
}

fn fpclassify<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let class = CLASSES.iter().position(|(_, class)| *class == args.real(0).classify());
    Ok(Value::Int(class.map_or(-1, |n| n as i64)))
}

/// Converts a number to C's `int`.
fn small(n: i64) -> i32 {
    n.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}

fn scaled<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Real(libm::scalbn(args.real(0), small(args.int(1)))))
}

fn ilogb<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(i64::from(libm::ilogb(args.real(0)))))
}

fn logb(x: f64) -> f64 {
    if x == 0.0 {
        f64::NEG_INFINITY
    } else if x.is_finite() {
        f64::from(libm::ilogb(x))
    } else {
        x.abs()
    }
}

fn lrint<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(args.real(0).round_ties_even() as i64))
}

fn lround<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(args.real(0).round() as i64))
}

/// Returns a NaN. The tag, if it is a number, is the payload.
fn nan<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let tag = args.str(0).and_then(|tag| std::str::from_utf8(tag).ok());
    let payload = tag.and_then(|t| t.parse::<u64>().ok()).unwrap_or(0);
    Ok(Value::Real(f64::from_bits(f64::NAN.to_bits() | payload & ((1 << 51) - 1))))
}

fn jn<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Real(libm::jn(small(args.int(0)), args.real(1))))
}

fn yn<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Real(libm::yn(small(args.int(0)), args.real(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approximate_equality_has_two_limits() {
        assert!(is_approx(0.1 + 0.2, 0.3, 0.0, 0.0));
        assert!(!is_approx(1.0, 1.001, 0.0, 0.0));
        assert!(is_approx(1.0, 1.001, 0.01, 0.0));
        assert!(is_approx(1e9, 1.001e9, 0.0, 0.01));
        assert_eq!(logb(8.5), 3.0);
    }
}
