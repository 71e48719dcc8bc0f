//! The run-time parameters, each defined once in a table with its type, bounds, default and documentation.
//! The tables generate the plain [`Params`] that the worker reads, and the [`ParamSet`] that the CLI
//! shows and changes by name.

#![forbid(unsafe_code)]

mod assign;
pub mod bits;
pub mod clients;
mod nearest;
pub mod number;
mod rows;
mod set;
mod show;
mod spec;
#[macro_use]
mod table_acme;
#[macro_use]
mod table_cache;
#[macro_use]
mod table_client;
#[macro_use]
mod table_backend;
#[macro_use]
mod table_h2;
#[macro_use]
mod table_process;
mod table_tags;
pub mod tokenize;
mod value;

pub use bits::{DebugBits, ExperimentalBits, FeatureBits, VccFeatureBits, VslMask};
pub use nearest::nearest;
pub use rows::rows;
pub use set::{Effect, ParamSet, SetError};
pub use show::Listing;
pub use spec::{ALIASES, Alias, Kind, Spec, flags};
pub use value::{PoolParam, Slot, SlotMut};

use value::Field;

macro_rules! field_type {
    (Bool) => {
        bool
    };
    (Double) => {
        f64
    };
    (Duration) => {
        f64
    };
    (Timeout) => {
        f64
    };
    (Uint) => {
        u32
    };
    (Natural) => {
        u32
    };
    (UintOrZero) => {
        u32
    };
    (Bytes) => {
        u64
    };
    (Text) => {
        String
    };
    (Clients) => {
        String
    };
    (Storage) => {
        String
    };
    (Pool) => {
        PoolParam
    };
    (Debug) => {
        DebugBits
    };
    (Experimental) => {
        ExperimentalBits
    };
    (Feature) => {
        FeatureBits
    };
    (VccFeature) => {
        VccFeatureBits
    };
    (Mask) => {
        VslMask
    };
}

macro_rules! define_params {
    ([] $($name:ident : $kind:ident = $default:literal { $($key:ident = $val:expr),* } $prose:literal ;)*) => {
        /// The values of all parameters. Durations are seconds (a timeout that never fires is
        /// infinite), sizes are bytes.
        #[allow(missing_docs)]
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct Params {
            $(#[doc = $prose] pub $name: field_type!($kind),)*
        }

        impl Params {
            fn blank() -> Params {
                Params { $($name: Default::default(),)* }
            }

            /// Returns a field for reading, by its parameter's name.
            pub fn slot(&self, name: &str) -> Option<Slot<'_>> {
                Some(match name {
                    $(stringify!($name) => self.$name.slot(),)*
                    _ => return None,
                })
            }

            /// Returns a field for writing, by its parameter's name.
            pub fn slot_mut(&mut self, name: &str) -> Option<SlotMut<'_>> {
                Some(match name {
                    $(stringify!($name) => self.$name.slot_mut(),)*
                    _ => return None,
                })
            }
        }

        use flags::*;

        /// All parameters in the order of the tables.
        pub const SPECS: &[Spec] = &[
            $(Spec::new(stringify!($name), Kind::$kind, $default, $prose)$(.$key($val))*,)*
        ];
    };
}

cache_params! { [acme_params client_params backend_params h2_params process_params define_params] }

/// Maximum number of reactors.
const MAX_REACTORS: usize = 64;

impl Params {
    /// Returns the number of reactors: the parameter, or the number of processors that this process may use.
    pub fn reactor_count(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if self.reactors > 0 { self.reactors as usize } else { processors().min(MAX_REACTORS) }
    }
}

impl Default for Params {
    fn default() -> Params {
        ParamSet::new().values().clone()
    }
}
