//! Our name: the version of Varnish whose behaviour users may count on, and our own version.

/// For banners and `-V`.
pub const SHORT: &str = concat!("varnish-7.7.0 lacquer-", env!("CARGO_PKG_VERSION"));

/// Returns the text that `-V` prints.
pub fn long(program: &str) -> String {
    format!(
        "{program} ({SHORT})\nLacquer {}: a web accelerator that takes over from Varnish Cache 7.7.0\n",
        env!("CARGO_PKG_VERSION")
    )
}
