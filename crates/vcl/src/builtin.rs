//! The VCL that every program ends with, and what `varnishd -x builtin` prints.

/// Each method calls its `vcl_builtin_` part, so that users can replace the parts one by one.
pub const BUILTIN_VCL: &str = include_str!("builtin.vcl");
