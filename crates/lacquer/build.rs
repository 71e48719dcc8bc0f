//! Lets the linker fold functions with the same machine code, which makes the daemon some 2 % smaller. Only LLVM's linker
//! does this; Rust's toolchain for x86-64 contains it and uses it by default.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let is = |name: &str, value: &str| std::env::var(name).as_deref() == Ok(value);
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") && has_linker() {
        println!("cargo::rustc-link-arg-bin=lacquerd=-Wl,--icf=all");
    }
}

/// Returns whether the toolchain contains LLVM's linker, and no flag chooses another one.
fn has_linker() -> bool {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output();
    let Ok(sysroot) = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()) else {
        return false;
    };
    let linker = Path::new(&sysroot).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_replaced = std::env::var_os("RUSTC_LINKER").is_some() || flags.contains("linker");
    linker.exists() && !is_replaced && !flags.contains("fuse-ld")
}
