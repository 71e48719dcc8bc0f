//! The properties of a parameter other than its value.

/// The kind of a parameter, which determines how its text is parsed and formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `on` or `off`.
    Bool,
    /// A plain decimal.
    Double,
    /// Seconds, with or without a unit.
    Duration,
    /// A duration, or `never`.
    Timeout,
    /// A whole number, or `unlimited`. As in Varnish, a negative number wraps around.
    Uint,
    /// A whole number that is not negative, or `unlimited`.
    Natural,
    /// A whole number within its bounds, or zero.
    UintOrZero,
    /// A size with a binary suffix.
    Bytes,
    /// Free text.
    Text,
    /// A list of networks and secrets.
    Clients,
    /// The name of a storage.
    Storage,
    /// The three numbers of a memory pool.
    Pool,
    /// Bits of `debug`.
    Debug,
    /// Bits of `experimental`.
    Experimental,
    /// Bits of `feature`.
    Feature,
    /// Bits of `vcc_feature`.
    VccFeature,
    /// Log tags to hide.
    Mask,
}

/// Bits of a [`Spec`]'s flags.
pub mod flags {
    #![allow(missing_docs)]
    pub const DELAYED_EFFECT: u16 = 1 << 0;
    pub const EXPERIMENTAL: u16 = 1 << 1;
    pub const MUST_RESTART: u16 = 1 << 2;
    pub const MUST_RELOAD: u16 = 1 << 3;
    pub const WIZARD: u16 = 1 << 4;
    pub const OBJ_STICKY: u16 = 1 << 5;
    pub const NOT_IMPLEMENTED: u16 = 1 << 6;
    pub const PLATFORM_DEPENDENT: u16 = 1 << 7;
    pub const BUILD_OPTIONS: u16 = 1 << 8;
}

/// One row of the parameter tables.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The name, also of the field of [`crate::Params`].
    pub name: &'static str,
    /// The kind, which determines how its text is parsed.
    pub kind: Kind,
    /// Default as text.
    pub default: &'static str,
    /// Lower bound as text.
    pub min: Option<&'static str>,
    /// Upper bound as text.
    pub max: Option<&'static str>,
    /// Unit, for the documentation.
    pub units: &'static str,
    /// Bits of [`flags`].
    pub flags: u16,
    /// Documentation of the lower bound.
    pub min_reason: Option<&'static str>,
    /// Documentation of the upper bound.
    pub max_reason: Option<&'static str>,
    /// Text that the documentation shows instead of the default.
    pub default_reason: Option<&'static str>,
    /// The documentation.
    pub prose: &'static str,
}

/// A deprecated name of another parameter.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The old name.
    pub name: &'static str,
    /// The current name.
    pub target: &'static str,
    /// The bit that it switches, if it is an alias for a single bit.
    pub bit: Option<&'static str>,
    /// The documentation.
    pub prose: &'static str,
}

/// Deprecated names.
pub const ALIASES: &[Alias] = &[
    Alias {
        name: "deprecated_dummy",
        target: "debug",
        bit: None,
        prose: "Deprecated alias for the debug parameter.",
    },
    Alias {
        name: "vcc_allow_inline_c",
        target: "vcc_feature",
        bit: Some("allow_inline_c"),
        prose: "Deprecated alias for the vcc_feature parameter.",
    },
    Alias {
        name: "vcc_err_unref",
        target: "vcc_feature",
        bit: Some("err_unref"),
        prose: "Deprecated alias for the vcc_feature parameter.",
    },
    Alias {
        name: "vcc_unsafe_path",
        target: "vcc_feature",
        bit: Some("unsafe_path"),
        prose: "Deprecated alias for the vcc_feature parameter.",
    },
];

impl Spec {
    /// Creates a row with the mandatory columns.
    pub const fn new(name: &'static str, kind: Kind, default: &'static str, prose: &'static str) -> Spec {
        Spec {
            name,
            kind,
            default,
            min: None,
            max: None,
            units: "",
            flags: 0,
            min_reason: None,
            max_reason: None,
            default_reason: None,
            prose,
        }
    }
    pub(crate) const fn min(mut self, text: &'static str) -> Spec {
        self.min = Some(text);
        self
    }
    pub(crate) const fn max(mut self, text: &'static str) -> Spec {
        self.max = Some(text);
        self
    }
    pub(crate) const fn units(mut self, text: &'static str) -> Spec {
        self.units = text;
        self
    }
    pub(crate) const fn flags(mut self, bits: u16) -> Spec {
        self.flags = bits;
        self
    }
    pub(crate) const fn min_reason(mut self, text: &'static str) -> Spec {
        self.min_reason = Some(text);
        self
    }
    pub(crate) const fn max_reason(mut self, text: &'static str) -> Spec {
        self.max_reason = Some(text);
        self
    }
    pub(crate) const fn default_reason(mut self, text: &'static str) -> Spec {
        self.default_reason = Some(text);
        self
    }
    /// Returns whether any of the flag bits is set.
    pub const fn has(&self, bits: u16) -> bool {
        self.flags & bits != 0
    }
}
