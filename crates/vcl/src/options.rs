//! The options and the environment of a compilation.

use crate::signature::Catalogue;
use crate::source::{Files, Resolver};

/// The inputs of a compilation besides the text.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    pub catalogue: &'a dyn Catalogue,
    pub files: &'a dyn Files,
    pub resolver: &'a dyn Resolver,
    /// The text that replaces the built-in VCL.
    pub builtin: Option<&'a str>,
    /// Bits of the parameter `vcc_feature`. `allow_inline_c` is missing: inline C is always refused.
    pub err_unref: bool,
    pub unsafe_path: bool,
    /// Parameter `dns_strict`: the host of a backend must be resolved now.
    pub strict_hosts: bool,
    /// Parameter `vcl_path`: directories separated by colons.
    pub vcl_path: &'a str,
    /// Names of the storages, as in `storage.<name>`.
    pub storages: &'a [String],
    /// Labels that `return (vcl(name))` may use.
    pub labels: &'a [String],
    pub max_include_depth: usize,
    /// Number of errors after which compilation stops. With 1, the text is that of `vcl.load`; otherwise few of many
    /// warnings about folded entries of ACLs are given.
    pub max_errors: usize,
}

impl<'a> Options<'a> {
    pub fn new(
        catalogue: &'a dyn Catalogue,
        files: &'a dyn Files,
        resolver: &'a dyn Resolver,
    ) -> Options<'a> {
        Options {
            catalogue,
            files,
            resolver,
            builtin: None,
            err_unref: true,
            unsafe_path: true,
            strict_hosts: true,
            vcl_path: "/etc/varnish:/usr/share/varnish/vcl",
            storages: &[],
            labels: &[],
            max_include_depth: 64,
            max_errors: 1,
        }
    }
}
