//! The built-in VCL, which every program ends with. `varnishd -x builtin` prints it.

/// Each method calls its `vcl_builtin_` part, so that users can replace the parts individually.
pub const BUILTIN_VCL: &str = include_str!("builtin.vcl");
