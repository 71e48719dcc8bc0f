//! The names of the product: the version of Varnish that it is compatible with, and its own version.

/// The text for banners and `-V`.
pub const SHORT: &str = concat!("varnish-7.7.0 lacquer-", env!("CARGO_PKG_VERSION"));

/// Returns the text that `-V` prints.
pub fn long(program: &str) -> String {
    format!(
        "{program} ({SHORT})\nLacquer {}: a web accelerator, compatible with Varnish Cache 7.7.0\n",
        env!("CARGO_PKG_VERSION")
    )
}
