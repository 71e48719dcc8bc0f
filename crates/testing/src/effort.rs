//! The size of attack tests: `make test` runs a short form of each, `make attack` the full form.

/// Returns `whole` under `make attack` (`ATTACK=whole` in the environment) and `short` otherwise.
pub fn effort<T>(short: T, whole: T) -> T {
    if std::env::var_os("ATTACK").is_some_and(|form| form == "whole") { whole } else { short }
}
